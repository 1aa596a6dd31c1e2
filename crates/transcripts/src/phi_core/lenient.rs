//! Reads objects in which some fields have a wrong type.

use std::collections::HashSet;

use loopstore::model::{Extra, Json};
use serde::de::DeserializeOwned;

use super::super::fields::{Fields, reason, shown};

/// Fields that could not be read, with the reasons.
#[derive(Default)]
pub(super) struct UnreadableFields(Vec<(String, Option<Json>, String)>);

impl UnreadableFields {
    /// Keeps the values in the field `unreadable` of `extra` and returns the reasons.
    pub(super) fn keep_in(self, extra: &mut Extra) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut kept = Vec::new();
        for (key, value, reason) in self.0 {
            reasons.push(format!("field `{}`: {reason}", shown(&key)));
            if let Some(value) = value {
                kept.push(format!(
                    "{}:{}",
                    Json::string(&key).as_str(),
                    value.as_str()
                ));
            }
        }
        if !kept.is_empty()
            && let Ok(kept) = Json::parse(&format!("{{{}}}", kept.join(",")))
        {
            extra.insert("unreadable", kept);
        }
        reasons
    }
}

/// Reads an object without the fields that cannot be read. The field `must` is required.
///
/// # Errors
/// If `must` cannot be read.
pub(super) fn read<T: DeserializeOwned>(
    fields: &mut Fields<'_>,
    must: &str,
) -> Result<(T, UnreadableFields), String> {
    let first = parse(&fields.to_text());
    if let Ok(object) = first {
        return Ok((object, UnreadableFields::default()));
    }
    let id = fields
        .get(must)
        .ok_or_else(|| format!("`{must}` is missing"))?;
    let alone = |key: &str, value: &str| {
        format!("{{{}:{},{}:{value}}}", quoted(must), id.get(), quoted(key))
    };
    parse::<T>(&alone(must, id.get())).map_err(|reason| format!("`{must}`: {reason}"))?;
    let mut bad = UnreadableFields::default();
    for (key, value) in fields.iter().filter(|(key, _)| *key != must) {
        if let Err(reason) = parse::<T>(&alone(key, value.get())) {
            bad.0
                .push((key.to_owned(), Json::parse(value.get()).ok(), reason));
        }
    }
    let names: HashSet<&str> = bad.0.iter().map(|(key, ..)| key.as_str()).collect();
    fields.retain(|key| !names.contains(key));
    parse(&fields.to_text()).map(|object| (object, bad))
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(reason)
}

fn quoted(key: &str) -> String {
    Json::string(key).as_str().to_owned()
}
