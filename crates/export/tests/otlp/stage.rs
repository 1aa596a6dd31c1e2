//! Exports as spans.

use loopstore::extend::SessionStore;
use loopstore::{LoopId, SessionId};
use loopstore_export::{ExportForm, OtlpContent, OtlpReport, export};
use serde_json::Value;

/// An export: its text, its spans, and its report.
pub struct Traces {
    pub text: String,
    pub spans: Vec<Value>,
    pub report: OtlpReport,
}

pub fn traces(store: &dyn SessionStore, id: &SessionId, content: OtlpContent) -> Traces {
    traces_of(store, id, None, content)
}

pub fn traces_of(
    store: &dyn SessionStore,
    id: &SessionId,
    leaf: Option<&LoopId>,
    content: OtlpContent,
) -> Traces {
    let mut out = Vec::new();
    let report = export(store, id, leaf, ExportForm::Otlp(content), &mut out).unwrap();
    let report = report.traces.unwrap();
    let text = String::from_utf8(out).unwrap();
    let mut spans = Vec::new();
    for line in text.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let scopes = &request["resourceSpans"][0]["scopeSpans"][0];
        spans.extend(scopes["spans"].as_array().unwrap().iter().cloned());
    }
    assert_eq!(spans.len() as u64, report.spans);
    Traces {
        text,
        spans,
        report,
    }
}

impl Traces {
    /// Returns the spans of an operation.
    pub fn of(&self, operation: &str) -> Vec<&Value> {
        let spans = self.spans.iter();
        spans
            .filter(|span| attribute(span, "gen_ai.operation.name") == Some(operation.into()))
            .collect()
    }

    /// Returns the events with a name, of all spans.
    pub fn events(&self, name: &str) -> Vec<&Value> {
        let events = self.spans.iter().flat_map(|span| span["events"].as_array());
        events
            .flatten()
            .filter(|event| event["name"] == name)
            .collect()
    }
}

/// Returns an attribute of a span or an event as text.
pub fn attribute(of: &Value, key: &str) -> Option<String> {
    let attributes = of["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|one| one["key"] == key)?;
    let value = found["value"].as_object().unwrap().values().next().unwrap();
    Some(match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

/// Returns an attribute that is JSON.
pub fn json_attribute(of: &Value, key: &str) -> Value {
    serde_json::from_str(&attribute(of, key).unwrap()).unwrap()
}
