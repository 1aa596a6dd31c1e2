//! The texts in a value of JSON, with their keys.

use serde_json::Value;

use super::super::values::is_value;

/// Calls `each` with the key and text of each leaf, and whether the text is a key itself: a key with letters and digits
/// is taken for a value of the key above it.
pub(super) fn leaves(value: &Value, key: &str, each: &mut dyn FnMut(&str, &str, bool)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if names_a_thing(name) {
                    each(key, name, true);
                }
                leaves(value, name, each);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(item, key, each)),
        Value::String(text) => each(key, text, false),
        Value::Number(number) => each(key, &number.to_string(), false),
        Value::Bool(_) | Value::Null => {}
    }
}

fn names_a_thing(key: &str) -> bool {
    is_value(key) && key.contains(|c: char| c.is_ascii_digit()) && key.contains(char::is_alphabetic)
}
