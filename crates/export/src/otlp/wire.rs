//! The messages of OTLP in their JSON form: ids as hex, times and integers as texts, enums as numbers.

use serde::Serialize;

/// `SPAN_KIND_INTERNAL`.
pub(super) const INTERNAL: u8 = 1;
/// `SPAN_KIND_CLIENT`.
pub(super) const CLIENT: u8 = 3;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// A span.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtlpSpan {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_span_id: Option<String>,
    pub(super) name: String,
    pub(super) kind: u8,
    pub(super) start_time_unix_nano: UnixNano,
    pub(super) end_time_unix_nano: UnixNano,
    pub(super) attributes: OtlpAttributes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<OtlpEvent>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) links: Vec<OtlpLink>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<OtlpStatus>,
}

/// An event of a span.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtlpEvent {
    pub(super) time_unix_nano: UnixNano,
    pub(super) name: &'static str,
    pub(super) attributes: OtlpAttributes,
}

/// A reference to a span of another trace.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtlpLink {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) attributes: OtlpAttributes,
}

/// The status of a span that failed.
#[derive(Serialize)]
pub(super) struct OtlpStatus {
    code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl OtlpStatus {
    pub(super) fn error(message: Option<String>) -> Self {
        Self {
            code: ERROR,
            message,
        }
    }
}

/// A time, from milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnixNano(u64);

impl UnixNano {
    /// Returns the time; `None` if OTLP cannot express it.
    pub(super) fn from_millis(ms: i64) -> Option<Self> {
        u64::try_from(ms).ok()?.checked_mul(1_000_000).map(Self)
    }
}

impl Serialize for UnixNano {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Attributes in the order in which they were added.
#[derive(Default, Serialize)]
#[serde(transparent)]
pub(super) struct OtlpAttributes(Vec<OtlpAttribute>);

#[derive(Serialize)]
struct OtlpAttribute {
    key: String,
    value: OtlpValue,
}

#[derive(Serialize)]
enum OtlpValue {
    #[serde(rename = "stringValue")]
    Text(String),
    #[serde(rename = "boolValue")]
    Flag(bool),
    /// A 64-bit integer is a text in the JSON form.
    #[serde(rename = "intValue")]
    Int(String),
    #[serde(rename = "arrayValue")]
    List { values: Vec<OtlpValue> },
}

impl OtlpAttributes {
    pub(super) fn text(&mut self, key: &str, value: impl Into<String>) {
        self.push(key, OtlpValue::Text(value.into()));
    }

    pub(super) fn text_if(&mut self, key: &str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(super) fn int(&mut self, key: &str, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.push(key, OtlpValue::Int(value.to_string()));
    }

    pub(super) fn flag(&mut self, key: &str) {
        self.push(key, OtlpValue::Flag(true));
    }

    pub(super) fn list(&mut self, key: &str, values: impl IntoIterator<Item = String>) {
        let values = values.into_iter().map(OtlpValue::Text).collect();
        self.push(key, OtlpValue::List { values });
    }

    fn push(&mut self, key: &str, value: OtlpValue) {
        let key = key.to_owned();
        self.0.push(OtlpAttribute { key, value });
    }
}

/// Returns a word or a name of a source, or `other` if it is a text: content must not hide in a name.
pub(super) fn word(text: &str) -> &str {
    let is_sign = |c| matches!(c, '_' | '-' | '.' | ':' | '/' | '@');
    let is_part = |c: char| c.is_ascii_alphanumeric() || is_sign(c);
    match !text.is_empty() && text.len() <= 128 && text.chars().all(is_part) {
        true => text,
        false => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_texts_of_nanoseconds_and_integers_are_texts() {
        assert_eq!(UnixNano::from_millis(-1), None);
        assert_eq!(UnixNano::from_millis(i64::MAX), None);
        let time = UnixNano::from_millis(1_700_000_000_123).unwrap();
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"1700000000123000000\"");
        let mut attributes = OtlpAttributes::default();
        attributes.int("n", u64::MAX);
        attributes.flag("f");
        attributes.list("l", ["a".to_owned()]);
        assert_eq!(
            serde_json::to_string(&attributes).unwrap(),
            r#"[{"key":"n","value":{"intValue":"9223372036854775807"}},{"key":"f","value":{"boolValue":true}},{"key":"l","value":{"arrayValue":{"values":[{"stringValue":"a"}]}}}]"#
        );
    }

    #[test]
    fn sentences_are_no_words() {
        assert_eq!(word("toolUse"), "toolUse");
        assert_eq!(word("gave up: no key"), "other");
        assert_eq!(word(""), "other");
    }
}
