//! The messages of the protocol as far as the proxy reads them, and changes of single fields.
//!
//! Only fields that the recorder uses are read, all of them leniently: an agent of a later version sends others. A
//! changed line differs from the original in the changed field only: its text is replaced in place.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A request, a notification or a response.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    #[serde(default)]
    pub method: Option<String>,
    #[serde(borrow, default)]
    pub params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Returns the message in a line; `None` if the line has none.
    pub fn read(line: &'a [u8]) -> Option<Self> {
        // A struct would also be read from an array.
        let is_object = line.trim_ascii_start().first() == Some(&b'{');
        is_object.then(|| serde_json::from_slice(line).ok())?
    }

    /// Returns the id as a key: ids that mean the same have the same key.
    pub fn id_key(&self) -> Option<String> {
        id_key(self.id?)
    }

    /// Returns the session that a request or notification is for.
    pub fn session_id(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct OfSession {
            session_id: String,
        }
        let params: OfSession = serde_json::from_str(self.params?.get()).ok()?;
        Some(params.session_id)
    }
}

/// Returns the key of an id: a number or a text.
pub(crate) fn id_key(id: &RawValue) -> Option<String> {
    match serde_json::from_str(id.get()).ok()? {
        value @ (serde_json::Value::Number(_) | serde_json::Value::String(_)) => {
            Some(value.to_string())
        }
        _ => None,
    }
}

/// The fields of an object, as they are written.
pub(crate) type WireFields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Returns the fields of an object.
pub(crate) fn fields(object: &str) -> Option<WireFields<'_>> {
    serde_json::from_str(object).ok()
}

/// Returns the place of a part of a line, which must be a part of this line.
pub(crate) fn place_of(line: &[u8], part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(line.as_ptr().addr())?;
    let end = start + part.len();
    (end <= line.len()).then_some(start..end)
}

/// Returns a line with a part of it replaced.
pub(crate) fn replaced(line: &[u8], part: &str, new: &str) -> Option<Vec<u8>> {
    let place = place_of(line, part)?;
    let mut changed = Vec::with_capacity(line.len() + new.len());
    changed.extend_from_slice(&line[..place.start]);
    changed.extend_from_slice(new.as_bytes());
    changed.extend_from_slice(&line[place.end..]);
    Some(changed)
}

/// Returns an object with a field set; the text of all others stays.
pub(crate) fn with_field(object: &str, name: &str, value: &str) -> Option<String> {
    let fields = fields(object)?;
    if let Some(old) = fields.get(name) {
        let changed = replaced(object.as_bytes(), old.get(), value)?;
        return String::from_utf8(changed).ok();
    }
    let inside = object.trim_start().strip_prefix('{')?;
    let name = serde_json::to_string(name).ok()?;
    let comma = if fields.is_empty() { "" } else { "," };
    Some(format!("{{{name}:{value}{comma}{inside}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_with_valid_json_are_messages() {
        let read = |line: &str| Envelope::read(line.as_bytes()).is_some();
        assert!(read(r#" {"jsonrpc":"2.0","id":1,"method":"a"} "#));
        assert!(read("{}\r"));
        for line in [
            "",
            "[1,\"m\"]",
            "{",
            "{\"id\":1,\"id\":2}",
            "null",
            "{\"id\":01}",
        ] {
            assert!(!read(line), "{line}");
        }
        assert!(Envelope::read(b"{\"method\":\"\xff\"}").is_none());
    }

    #[test]
    fn ids_that_mean_the_same_have_one_key() {
        let key = |line: &'static str| Envelope::read(line.as_bytes()).unwrap().id_key();
        assert_eq!(key(r#"{"id":"a"}"#), key(r#"{"id":"\u0061"}"#));
        assert_ne!(key(r#"{"id":"1"}"#), key(r#"{"id":1}"#));
        assert_eq!(key(r#"{"id":null}"#), None);
        assert_eq!(key(r#"{"id":[1]}"#), None);
    }

    #[test]
    fn a_changed_field_leaves_the_rest_of_the_text_as_it_was() {
        let object = r#"{ "a" : 1.0 , "b":{"c":"\u00e9"} }"#;
        let changed = with_field(object, "a", "true").unwrap();
        assert_eq!(changed, r#"{ "a" : true , "b":{"c":"\u00e9"} }"#);
        let added = with_field(object, "d", "[]").unwrap();
        assert_eq!(added, r#"{"d":[], "a" : 1.0 , "b":{"c":"\u00e9"} }"#);
        assert_eq!(with_field(" {}", "d", "1").unwrap(), r#"{"d":1}"#);
        assert_eq!(with_field("[]", "d", "1"), None);
    }
}
