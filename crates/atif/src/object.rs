//! The fields of a JSON object, each with its text in the file.

use std::fmt;

use loopstore_model::{Extra, Json};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum number of fields that are kept one by one; an object with more is kept as one value.
const MAX_FIELDS: usize = 500;

/// The fields of an object in their order.
#[derive(Default)]
pub(crate) struct BorrowedFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for BorrowedFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = BorrowedFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(BorrowedFields(fields))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl<'a> BorrowedFields<'a> {
    /// Reads `text` as an object.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(reason)
    }

    /// Returns the value of `key` unless it is absent or `null`; the last one if the key is repeated.
    pub(crate) fn get(&self, key: &str) -> Option<&'a RawValue> {
        let mut fields = self.0.iter().rev();
        let (_, value) = fields.find(|(name, _)| name == key)?;
        Some(*value).filter(|value| value.get() != "null")
    }

    /// Removes and returns `key`.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        let value = self.get(key);
        self.0.retain(|(name, _)| name != key);
        value
    }

    /// Sets `key`.
    pub(crate) fn set(&mut self, key: &str, value: &'a RawValue) {
        self.0.retain(|(name, _)| name != key);
        self.0.push((key.to_owned(), value));
    }

    /// Reads `key` as a `T`; `None` if it is absent or something else.
    pub(crate) fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// Removes and returns `key` if its value is a string.
    pub(crate) fn take_text(&mut self, key: &str) -> Option<String> {
        let text = self.read(key)?;
        self.take(key);
        Some(text)
    }

    /// Reads `key` as an object; any other value is read as an object without fields.
    pub(crate) fn object(&self, key: &str) -> Self {
        let value = self.get(key);
        let read = value.map(|value| Self::parse(value.get()));
        read.and_then(Result::ok).unwrap_or_default()
    }

    /// Reads `key` as a list.
    pub(crate) fn list(&self, key: &str) -> Option<Vec<&'a RawValue>> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// Iterates over the keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// Returns the fields as the text of an object.
    pub(crate) fn to_text(&self) -> String {
        let field = |(key, value): &(String, &RawValue)| {
            format!("{}:{}", Json::string(key).as_str(), value.get())
        };
        let fields: Vec<String> = self.0.iter().map(field).collect();
        format!("{{{}}}", fields.join(","))
    }

    /// Returns each field as a value; a value that nests too deeply becomes a text.
    pub(crate) fn to_extra(&self) -> Extra {
        let value = |text: &str| Json::parse(text).unwrap_or_else(|_| Json::string(text));
        let mut extra = Extra::default();
        if self.0.len() > MAX_FIELDS {
            extra.insert("fields", value(&self.to_text()));
            return extra;
        }
        for (key, field) in &self.0 {
            extra.insert(key.as_str(), value(field.get()));
        }
        extra
    }
}

/// Returns the reason why JSON could not be read, without the position: it counts within the part, not within the file.
pub(crate) fn reason(error: serde_json::Error) -> String {
    let text = error.to_string();
    let (reason, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    let plain = reason.chars().take(200);
    plain
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
