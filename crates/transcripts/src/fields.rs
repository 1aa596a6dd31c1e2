//! The fields of a JSON object, each with its text in the file.

use std::fmt;

use loopstore::model::Json;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object in their order.
#[derive(Default)]
pub struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl<'a> Fields<'a> {
    /// Reads `text` as an object.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(reason)
    }

    /// Returns the value of `key`; the last one if the key is repeated.
    pub(crate) fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| *value)
    }

    /// Reads `key` as a `T`; `None` if it is absent, null or something else.
    pub(super) fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_str(some(self.get(key))?.get()).ok()
    }

    /// Reads `key` as a text that is not empty.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.read(key).filter(|text: &String| !text.is_empty())
    }

    /// Reads `key` as an object.
    pub(super) fn child(&self, key: &str) -> Option<Self> {
        Self::parse(some(self.get(key))?.get()).ok()
    }

    /// Reads `key` as an object; any other value is read as an object without fields.
    pub(super) fn object(&self, key: &str) -> Self {
        self.child(key).unwrap_or_default()
    }

    /// Removes and returns `key`.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        let value = self.get(key)?;
        self.0.retain(|(name, _)| name != key);
        Some(value)
    }

    /// Sets `key`.
    pub(super) fn set(&mut self, key: &str, value: &'a RawValue) {
        self.take(key);
        self.0.push((key.to_owned(), value));
    }

    /// Removes and returns `key` if its value is a string.
    pub(super) fn take_string(&mut self, key: &str) -> Option<String> {
        let text = serde_json::from_str(self.get(key)?.get()).ok()?;
        self.take(key);
        Some(text)
    }

    /// Returns `key` as text if it is a string or a number. Only a string is removed: the text of a number alone does
    /// not show its type.
    pub(super) fn take_id(&mut self, key: &str) -> Option<String> {
        if let Some(text) = self.take_string(key) {
            return Some(text);
        }
        let number = self.get(key)?.get();
        number
            .starts_with(|c: char| c == '-' || c.is_ascii_digit())
            .then(|| number.into())
    }

    /// Removes every field for which `keep` returns false.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(key, _)| keep(key));
    }

    /// Removes every field that is `null`.
    pub(super) fn retain_some(&mut self) {
        self.0.retain(|(_, value)| value.get() != "null");
    }

    /// True if there are no fields.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_str(), *value))
    }

    /// Returns the fields as the text of an object.
    pub(super) fn to_text(&self) -> String {
        let field = |(key, value): &(String, &RawValue)| {
            format!("{}:{}", Json::string(key).as_str(), value.get())
        };
        format!(
            "{{{}}}",
            self.0.iter().map(field).collect::<Vec<_>>().join(",")
        )
    }

    /// Returns the fields as a JSON value.
    pub(super) fn to_json(&self) -> Result<Json, String> {
        Json::parse(&self.to_text()).map_err(reason)
    }
}

/// Reads `value` as a list.
pub(super) fn list(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// Returns a value unless it is absent or `null`.
pub(super) fn some(value: Option<&RawValue>) -> Option<&RawValue> {
    value.filter(|value| value.get() != "null")
}

/// Returns the reason why JSON could not be read, without the position: it counts within the part, not within the file.
pub(super) fn reason(error: serde_json::Error) -> String {
    let text = error.to_string();
    shown(
        text.rsplit_once(" at line ")
            .map_or(text.as_str(), |(reason, _)| reason),
    )
}

/// Returns `text` in the form for a message to people: no control characters, not too long.
pub(super) fn shown(text: &str) -> String {
    let plain = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.into()
        }
    };
    text.chars().take(200).map(plain).collect()
}
