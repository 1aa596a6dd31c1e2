//! Unknown fields of a message that its provider requires back: the caller of a call, the citations of a text, the mark
//! of a cached prefix.

use std::collections::HashMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use loopstore_model::{Extra, Json};

/// Such fields of a block or a message.
#[derive(Clone, Debug, Default)]
pub struct ReturnedFields(Vec<(&'static str, Json)>);

impl ReturnedFields {
    /// Takes the fields of `keys` that the block has.
    pub(super) fn of(extra: &Extra, keys: &[&'static str]) -> Self {
        Self::of_source(extra.get("source"), keys)
    }

    /// Takes the fields from the extra field `source`.
    pub(super) fn of_source(source: Option<&Json>, keys: &[&'static str]) -> Self {
        let source = source.and_then(|source| source.read::<HashMap<String, Json>>().ok());
        let Some(source) = source.filter(|source| !source.is_empty()) else {
            return Self::default();
        };
        let field = |key: &&'static str| {
            let value = source.get(*key).filter(|value| !value.is_null())?;
            Some((*key, value.clone()))
        };
        Self(keys.iter().filter_map(field).collect())
    }

    /// Adds a field.
    pub(super) fn push(&mut self, key: &'static str, value: Json) {
        self.0.push((key, value));
    }

    /// Sets a field, replacing one of the same name.
    pub(super) fn set(&mut self, key: &'static str, value: Json) {
        self.remove(key);
        self.push(key, value);
    }

    /// True if there is a field of this name.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| *name == key)
    }

    /// Removes a field and returns it.
    pub(super) fn remove(&mut self, key: &str) -> Option<Json> {
        let at = self.0.iter().position(|(name, _)| *name == key)?;
        Some(self.0.remove(at).1)
    }
}

impl Serialize for ReturnedFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
