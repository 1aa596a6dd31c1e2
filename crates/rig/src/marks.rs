//! JSON with marks in place of values that are stored in the message.
//!
//! A message is stored in the form of loopstore, and in an extra field as rig wrote it. Values of both (a long text,
//! the arguments of a call, an image) are only in the first: so nothing is stored twice, and content that a
//! compaction shortened is returned short.

use serde_json::{Map, Value, json};

/// The field of an object that replaces a block of the message; its value is the number of the block.
const MARK: &str = "$loopstore";
/// The field that marks the text of the block as written JSON.
const AS_JSON: &str = "json";
/// Shorter texts are not replaced.
const SHORT: usize = 32;

/// The value of a block of a stored message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BlockValue {
    /// No value that rig's JSON would repeat.
    Nothing,
    /// A value that is in rig's JSON unchanged.
    Value(Value),
    /// A value of rig's JSON whose text is in the block.
    Written(Value),
}

impl BlockValue {
    pub(crate) fn text(text: &str) -> Self {
        match text.len() < SHORT {
            true => Self::Nothing,
            false => Self::Value(Value::String(text.to_owned())),
        }
    }

    /// Returns the value of an object such as the arguments of a call; an empty one is not replaced.
    pub(crate) fn object(fields: &Map<String, Value>) -> Self {
        match fields.is_empty() {
            true => Self::Nothing,
            false => Self::Value(Value::Object(fields.clone())),
        }
    }
}

/// True if a value has a field that would pass for a mark.
pub(crate) fn has_mark(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key(MARK) || fields.values().any(has_mark),
        Value::Array(items) => items.iter().any(has_mark),
        _ => false,
    }
}

/// Replaces the values of the blocks by marks.
pub(crate) fn put(value: &mut Value, blocks: &[BlockValue]) {
    let is_long = match value {
        Value::String(text) => text.len() >= SHORT,
        Value::Object(_) | Value::Array(_) => true,
        _ => false,
    };
    if !is_long {
        return;
    }
    let found = blocks
        .iter()
        .enumerate()
        .find_map(|(at, block)| match block {
            BlockValue::Value(held) if held == value => Some(json!({ MARK: at })),
            BlockValue::Written(held) if held == value => Some(json!({ MARK: at, AS_JSON: true })),
            _ => None,
        });
    match (found, value) {
        (Some(mark), value) => *value = mark,
        (None, Value::Object(fields)) => fields.values_mut().for_each(|inner| put(inner, blocks)),
        (None, Value::Array(items)) => items.iter_mut().for_each(|inner| put(inner, blocks)),
        (None, _) => {}
    }
}

/// Replaces the marks by the values of the blocks; `None` if a mark has no block.
pub(crate) fn fill(value: &mut Value, blocks: &[Value]) -> Option<()> {
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(|inner| fill(inner, blocks)),
        Value::Object(fields) => {
            let Some(mark) = fields.get(MARK) else {
                return fields
                    .values_mut()
                    .try_for_each(|inner| fill(inner, blocks));
            };
            let at = usize::try_from(mark.as_u64()?).ok()?;
            let held = blocks.get(at)?;
            *value = match held {
                // A shortened value is not JSON any more.
                Value::String(text) if fields.contains_key(AS_JSON) => {
                    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
                }
                held => held.clone(),
            };
            Some(())
        }
        _ => Some(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "a text that is longer than what stays where it is";

    #[test]
    fn what_a_block_holds_is_written_once_and_comes_back() {
        let whole = json!({"text": LONG, "native": {"item": [LONG, {"q": 1}]}, "short": "a text"});
        let blocks = [BlockValue::text(LONG), BlockValue::Value(json!({"q": 1}))];
        let mut marked = whole.clone();
        put(&mut marked, &blocks);
        assert!(!marked.to_string().contains(LONG), "{marked}");
        fill(&mut marked, &[json!(LONG), json!({"q": 1})]).unwrap();
        assert_eq!(marked, whole);
    }

    #[test]
    fn a_mark_for_a_block_that_is_not_there_is_no_value() {
        for mark in [
            json!({MARK: 1}),
            json!({MARK: -1}),
            json!({MARK: "0"}),
            json!([{MARK: u64::MAX}]),
        ] {
            assert_eq!(fill(&mut mark.clone(), &[json!(LONG)]), None, "{mark}");
        }
    }

    #[test]
    fn written_json_that_was_shortened_is_a_text() {
        let mut marked = json!({"value": {MARK: 0, AS_JSON: true}});
        fill(&mut marked, &[json!("{\"rows\": [1, …")]).unwrap();
        assert_eq!(marked, json!({"value": "{\"rows\": [1, …"}));
    }
}
