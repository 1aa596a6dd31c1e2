//! JSON as compact text, with the text of numbers unchanged.
//!
//! [`Json`] is any value that loopstore does not interpret: tool arguments, metadata, unknown fields. [`Extra`] has the
//! unknown fields of an object of the interchange format, so that a document is written back as it was read.
//! `json_object!` declares such an object.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr2};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The deepest nesting of a JSON value. SQLite's JSON functions accept 1,000 levels, `serde_json` 128.
pub const MAX_JSON_DEPTH: usize = 128;

/// Any JSON value as compact text. It has no white space outside strings, and string escapes are normalised. Numbers
/// and the order of keys are as they were read.
///
/// ```
/// use loopstore_model::Json;
///
/// let json = Json::parse(r#"{ "days": 3, "at": 1.50 }"#)?;
/// assert_eq!(json.as_str(), r#"{"days":3,"at":1.50}"#);
/// assert_eq!(json.read::<serde_json::Value>()?["days"], 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Returns the value `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// Parses `text` as one JSON value.
    ///
    /// # Errors
    /// If `text` is not one JSON value or nests deeper than [`MAX_JSON_DEPTH`].
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Serialises `value`.
    ///
    /// # Errors
    /// If `value` cannot be written as JSON (a map with keys that are not strings, say).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        Self::parse(&serde_json::to_string(value)?)
    }

    /// Returns `text` as a JSON string.
    pub fn string(text: &str) -> Self {
        serde_json::value::to_raw_value(text).map_or_else(|_| Self::null(), Self)
    }

    /// Returns the compact text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Reads the value as a `T`.
    ///
    /// # Errors
    /// If the value has another shape.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str())
    }

    /// Returns the field `type` of an object, if it is a text.
    #[doc(hidden)]
    pub fn type_name(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Tag {
            r#type: Option<String>,
        }
        self.read::<Tag>().ok()?.r#type
    }

    /// True if the value is `null`.
    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }
}

/// A value that nests deeper than [`MAX_JSON_DEPTH`] becomes its text, as a JSON string.
impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        let text = value.to_string();
        Self::parse(&text).unwrap_or_else(|_| Self::string(&text))
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match compact(raw.get()).map_err(D::Error::custom)? {
            None => Ok(Self(raw)),
            Some(text) => RawValue::from_string(text)
                .map(Self)
                .map_err(D::Error::custom),
        }
    }
}

/// Returns the compact form of valid JSON, or `None` if `text` already is compact.
fn compact(text: &str) -> Result<Option<String>, String> {
    let bytes = text.as_bytes();
    let mut out: Option<String> = None;
    let (mut copied, mut at, mut depth) = (0, 0, 0usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let (end, escaped) = string_end(bytes, at);
                if escaped && !has_normal_escapes(&bytes[at..end]) {
                    let plain = normal_string(&text[at..end])?;
                    if plain != text[at..end] {
                        let out = out.get_or_insert_with(String::new);
                        out.push_str(&text[copied..at]);
                        out.push_str(&plain);
                        copied = end;
                    }
                }
                at = end;
                continue;
            }
            b' ' | b'\n' | b'\r' | b'\t' => {
                let out = out.get_or_insert_with(String::new);
                out.push_str(&text[copied..at]);
                copied = at + 1;
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_JSON_DEPTH {
                    return Err(format!("JSON nested deeper than {MAX_JSON_DEPTH} levels"));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(out.map(|mut out| {
        out.push_str(&text[copied..]);
        out
    }))
}

/// Returns the index after the closing quote of the string at `start`, and whether it has escapes.
fn string_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let (mut at, mut escaped) = (start + 1, false);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return (at + 1, escaped);
        }
        escaped = true;
        at += 2;
    }
    (bytes.len(), escaped)
}

/// True if every escape of a string is surely in normal form. For most strings this saves writing the string again for
/// a comparison.
fn has_normal_escapes(quoted: &[u8]) -> bool {
    let mut rest = quoted;
    while let Some(found) = memchr(b'\\', rest) {
        if !matches!(
            rest.get(found + 1),
            Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't')
        ) {
            return false;
        }
        rest = rest.get(found + 2..).unwrap_or_default();
    }
    true
}

fn normal_string(quoted: &str) -> Result<String, String> {
    let plain: String = serde_json::from_str(quoted).map_err(|e| e.to_string())?;
    serde_json::to_string(&plain).map_err(|e| e.to_string())
}

/// An integer, with the text that it was read from if that is not its plain decimal form.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Int {
    value: i64,
    text: Option<Box<str>>,
}

impl Int {
    /// Returns the value; a fraction is truncated.
    pub fn get(&self) -> i64 {
        self.value
    }
}

impl From<i64> for Int {
    fn from(value: i64) -> Self {
        Self { value, text: None }
    }
}

impl fmt::Debug for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.as_deref().unwrap_or(&self.value.to_string()))
    }
}

impl Serialize for Int {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.text {
            None => serializer.serialize_i64(self.value),
            Some(text) => RawValue::from_string(text.to_string())
                .map_err(S::Error::custom)?
                .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <Box<RawValue>>::deserialize(deserializer)?;
        let text = raw.get();
        if let Ok(value) = text.parse::<i64>()
            && !text.starts_with("-0")
        {
            return Ok(Self { value, text: None });
        }
        let wide: f64 = serde_json::from_str(text)
            .map_err(|_| D::Error::custom(format!("expected a number, found {}", shorten(text))))?;
        // `as` saturates: a number out of range keeps its text and counts as the nearest i64.
        Ok(Self {
            value: wide as i64,
            text: Some(text.into()),
        })
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The unknown fields of an object, in the order of the document.
///
/// It also records the known fields that were absent, so that the document is written back as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    fields: Vec<(String, Json)>,
    absent: Vec<&'static str>,
}

impl Extra {
    /// Returns the value of the unknown field `key`.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.fields.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// Sets the field `key`, replacing an earlier value.
    pub fn insert(&mut self, key: impl Into<String>, value: Json) {
        let key = key.into();
        match self.fields.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value,
            None => self.fields.push((key, value)),
        }
    }

    /// Removes the field `key` and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        let at = self.fields.iter().position(|(k, _)| k == key)?;
        Some(self.fields.remove(at).1)
    }

    /// Iterates over the unknown fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.fields.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// True if there is no unknown field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    #[doc(hidden)]
    pub fn mark_absent(&mut self, key: &'static str) {
        self.absent.push(key);
    }

    #[doc(hidden)]
    pub fn was_absent(&self, key: &str) -> bool {
        self.absent.contains(&key)
    }

    /// True if a known field was absent.
    #[doc(hidden)]
    pub fn lacks_fields(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Sets the known fields that were absent.
    #[doc(hidden)]
    pub fn set_absent(&mut self, keys: &[&'static str]) {
        self.absent = keys.to_vec();
    }
}

/// The key of a field, borrowed if it has no escapes; `Cow` itself would always copy it.
#[doc(hidden)]
pub struct FieldName<'a>(pub Cow<'a, str>);

impl<'de> Deserialize<'de> for FieldName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = FieldName<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<FieldName<'de>, E> {
                Ok(FieldName(Cow::Borrowed(key)))
            }
            fn visit_str<E>(self, key: &str) -> Result<FieldName<'de>, E> {
                Ok(FieldName(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

#[doc(hidden)]
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares a struct of the interchange format with `Serialize` and `Deserialize`.
///
/// Each field is `kind name: Type = "key"` with one of these kinds: `must` (an error if absent), `maybe` (an `Option`,
/// written only if set), `null` (an `Option`, written as `null` if not set, unless it was absent), `list` (any type
/// with a default, which an absent field has).
#[doc(hidden)]
#[macro_export]
macro_rules! json_object {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$fmeta:meta])* $kind:ident $field:ident : $ty:ty = $key:literal ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $crate::json::json_object!(@type $kind $ty), )*
            /// Fields that loopstore does not know, kept and written back.
            pub extra: $crate::json::Extra,
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                $( $crate::json::json_object!(@write $kind map, self, $field, $key); )*
                for (key, value) in self.extra.iter() {
                    let known = match key {
                        $( $key => $crate::json::json_object!(@is_set $kind self, $field), )*
                        _ => false,
                    };
                    if !known {
                        map.serialize_entry(key, value)?;
                    }
                }
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("an object (", stringify!($name), ")"))
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<$name, A::Error> {
                        $( let mut $field: Option<$ty> = None; )*
                        let mut extra = $crate::json::Extra::default();
                        // The `null` fields that are `null`; the others without a value are absent.
                        #[allow(unused_mut, unused_variables)]
                        let mut nulls: Vec<&'static str> = Vec::new();
                        while let Some(key) = map.next_key::<$crate::json::FieldName<'de>>()? {
                            match &*key.0 {
                                $( $key => $crate::json::json_object!(
                                    @read $kind map, extra, nulls, $field, $key, $ty
                                ), )*
                                _ => {
                                    let value = map.next_value()?;
                                    extra.insert(key.0, value);
                                }
                            }
                        }
                        Ok($name {
                            $( $field: $crate::json::json_object!(
                                @finish $kind extra, nulls, $field, $key, A
                            ), )*
                            extra,
                        })
                    }
                }
                deserializer.deserialize_map(Visitor)
            }
        }
    };

    (@type must $ty:ty) => { $ty };
    (@type list $ty:ty) => { $ty };
    (@type $kind:ident $ty:ty) => { Option<$ty> };

    (@is_set must $self:ident, $field:ident) => { true };
    (@is_set list $self:ident, $field:ident) => { true };
    (@is_set $kind:ident $self:ident, $field:ident) => { $self.$field.is_some() };

    (@write must $map:ident, $self:ident, $field:ident, $key:literal) => {
        $map.serialize_entry($key, &$self.$field)?;
    };
    (@write maybe $map:ident, $self:ident, $field:ident, $key:literal) => {
        if let Some(value) = &$self.$field {
            $map.serialize_entry($key, value)?;
        }
    };
    (@write null $map:ident, $self:ident, $field:ident, $key:literal) => {
        if $self.$field.is_some() || !$self.extra.was_absent($key) {
            $map.serialize_entry($key, &$self.$field)?;
        }
    };
    (@write list $map:ident, $self:ident, $field:ident, $key:literal) => {
        if !$self.extra.was_absent($key) || !$crate::json::is_default(&$self.$field) {
            $map.serialize_entry($key, &$self.$field)?;
        }
    };

    (@read must $map:ident, $extra:ident, $nulls:ident, $field:ident, $key:literal, $ty:ty) => {
        $field = Some($map.next_value()?)
    };
    (@read maybe $map:ident, $extra:ident, $nulls:ident, $field:ident, $key:literal, $ty:ty) => {{
        $field = $map.next_value::<Option<$ty>>()?;
        if $field.is_none() {
            $extra.insert($key, $crate::json::Json::null());
        }
    }};
    (@read null $map:ident, $extra:ident, $nulls:ident, $field:ident, $key:literal, $ty:ty) => {{
        $field = $map.next_value::<Option<$ty>>()?;
        if $field.is_none() {
            $nulls.push($key);
        }
    }};
    (@read list $map:ident, $extra:ident, $nulls:ident, $field:ident, $key:literal, $ty:ty) => {
        $field = Some($map.next_value()?)
    };

    (@finish must $extra:ident, $nulls:ident, $field:ident, $key:literal, $access:ident) => {
        $field.ok_or_else(|| <$access::Error as serde::de::Error>::missing_field($key))?
    };
    (@finish maybe $extra:ident, $nulls:ident, $field:ident, $key:literal, $access:ident) => { $field };
    (@finish null $extra:ident, $nulls:ident, $field:ident, $key:literal, $access:ident) => {{
        if $field.is_none() && !$nulls.contains(&$key) {
            $extra.mark_absent($key);
        }
        $field
    }};
    (@finish list $extra:ident, $nulls:ident, $field:ident, $key:literal, $access:ident) => {
        $field.unwrap_or_else(|| {
            $extra.mark_absent($key);
            Default::default()
        })
    };
}
#[doc(hidden)]
pub use crate::json_object;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_compact_and_keeps_the_text_of_numbers() {
        let json = Json::parse(
            "{ \"b\" : [1.0, 1e5,\n 12345678901234567890123] , \"a\":\"x \\u00e9 \\/\" }",
        );
        let text = json.map(|j| j.as_str().to_owned()).unwrap();
        assert_eq!(
            text,
            r#"{"b":[1.0,1e5,12345678901234567890123],"a":"x é /"}"#
        );
    }

    #[test]
    fn strings_are_as_writing_them_again_gives_them() {
        let strings = [
            r#""a\n\t\r\b\f\"\\""#,
            r#""\/""#,
            r#""\\/""#,
            r#""\u000a\u001f\u001F\u0007\u007f""#,
            r#""\\u000a \n\u00e9 \ud83d\ude00 \u0022""#,
            r#""\n\\""#,
        ];
        for quoted in strings {
            let plain: String = serde_json::from_str(quoted).unwrap();
            let json = Json::parse(quoted).unwrap();
            assert_eq!(json.as_str(), serde_json::to_string(&plain).unwrap());
        }
        assert!(Json::parse(r#""\n\ud800""#).is_err());
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(Json::parse(&nested(MAX_JSON_DEPTH)).is_ok());
        assert!(Json::parse(&nested(MAX_JSON_DEPTH + 1)).is_err());
        assert!(Json::parse(&nested(10_000)).is_err());
        assert!(Json::parse(r#""[[[[" "#).is_ok());
    }

    #[test]
    fn integers_keep_an_unusual_text() {
        for text in ["7", "-0", "1.5e3", "99999999999999999999"] {
            let int: Int = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&int).unwrap(), text);
        }
        assert_eq!(serde_json::from_str::<Int>("1.5e3").unwrap().get(), 1500);
        assert!(serde_json::from_str::<Int>("\"7\"").is_err());
    }

    #[test]
    fn absent_and_null_fields_are_written_back_as_they_were() {
        for text in [
            r#"{"loop_id":"a","session_id":null,"null session_id":null}"#,
            r#"{"loop_id":"a","null session_id":1,"agent_id":"b"}"#,
            r#"{"loop_id":"a"}"#,
        ] {
            let read: crate::LoopRecord = serde_json::from_str(text).unwrap();
            let written: serde_json::Value = serde_json::to_value(&read).unwrap();
            assert_eq!(
                written,
                serde_json::from_str::<serde_json::Value>(text).unwrap()
            );
        }
    }
}
