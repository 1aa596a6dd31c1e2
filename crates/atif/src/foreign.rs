//! A step of another writer. A field that cannot be read is reported and kept with the message.

use loopstore_model::{Extra, Json};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::form::{Metrics, Observation, Step, StepCall, StepSource};
use crate::object::{BorrowedFields, reason};

/// The fields of metrics that have a place in a message.
const METRICS: [&str; 5] = [
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cost_usd",
    "extra",
];

/// A step, and its fields that have no place in a message.
pub struct ForeignStep {
    /// The originator as the step names it.
    pub source: String,
    /// The step; `None` if its originator is unknown.
    pub step: Option<Step>,
    /// The step without its results, by which a later import compares it.
    pub text: String,
    /// The reasons why fields could not be used.
    pub notes: Vec<String>,
    /// The other fields.
    pub rest: Extra,
}

impl ForeignStep {
    /// Reads a step.
    ///
    /// # Errors
    /// If the step has no originator or no message; the error gives the reason.
    pub fn read(raw: &RawValue) -> Result<Self, String> {
        let mut fields = BorrowedFields::parse(raw.get())?;
        let source = fields.read::<String>("source");
        let source = source.filter(|source| !source.is_empty());
        let source = source.ok_or("its `source` is missing or no text")?;
        let known: Option<StepSource> = fields.read("source");
        let mut read = Self {
            source,
            step: None,
            text: String::new(),
            notes: Vec::new(),
            rest: Extra::default(),
        };
        let Some(known) = known else {
            return Ok(read);
        };
        let has_message = fields.keys().any(|key| key == "message");
        if !has_message {
            return Err("it has no `message`".into());
        }
        let message = fields.take("message").map(RawValue::get);
        let message = message.unwrap_or("null");
        let mut step = Step::new(known, Json::parse(message).map_err(reason)?);
        let observation = read.take(&mut fields, "observation");
        step.observation = observation.filter(|seen: &Observation| !seen.results.is_empty());
        let extra = fields.take("extra");
        let (more, _) = without_rows(extra).unwrap_or_else(|reason| {
            read.notes.push(format!("field `extra`: {reason}"));
            (None, false)
        });
        let text = more.as_ref().map_or("", Json::as_str);
        read.text = format!("{message}{}{text}", fields.to_text());
        fields.take("source");
        fields.take("step_id");
        step.is_copied_context = fields.read("is_copied_context").unwrap_or(false);
        step.extra = extra.map(ToOwned::to_owned);
        step.timestamp = fields.take_text("timestamp");
        if known == StepSource::Agent {
            step.model_name = fields.take_text("model_name");
            let thinking = fields.take_text("reasoning_content");
            step.reasoning_content = thinking.filter(|text| !text.is_empty());
            step.tool_calls = read.calls(&mut fields);
            step.metrics = read.metrics(&mut fields);
        }
        read.rest = fields.to_extra();
        if let Some(more) = more {
            read.rest.insert("extra", more);
        }
        read.step = Some(step);
        Ok(read)
    }

    /// Reads a field; if it cannot be read, it stays among the others.
    fn take<T: DeserializeOwned>(
        &mut self,
        fields: &mut BorrowedFields<'_>,
        key: &str,
    ) -> Option<T> {
        let value = fields.get(key)?;
        match serde_json::from_str(value.get()) {
            Ok(read) => {
                fields.take(key);
                Some(read)
            }
            Err(error) => {
                self.notes.push(format!("field `{key}`: {}", reason(error)));
                None
            }
        }
    }

    fn calls(&mut self, fields: &mut BorrowedFields<'_>) -> Vec<StepCall> {
        if fields.get("tool_calls").is_none() {
            fields.take("tool_calls");
            return Vec::new();
        }
        let Some(values) = fields.list("tool_calls") else {
            self.notes.push("field `tool_calls`: no list".into());
            return Vec::new();
        };
        let (mut calls, before) = (Vec::new(), self.notes.len());
        for value in values {
            match serde_json::from_str::<StepCall>(value.get()) {
                Ok(call) => calls.push(call),
                Err(error) => self.notes.push(format!("a tool call: {}", reason(error))),
            }
        }
        if self.notes.len() == before {
            fields.take("tool_calls");
        }
        calls
    }

    fn metrics(&mut self, fields: &mut BorrowedFields<'_>) -> Option<Metrics> {
        let value = fields.get("metrics")?;
        let metrics = self.take(fields, "metrics")?;
        let inner = BorrowedFields::parse(value.get()).unwrap_or_default();
        if inner.keys().any(|key| !METRICS.contains(&key)) {
            fields.set("metrics", value);
        }
        Some(metrics)
    }
}

/// Returns an `extra` without the rows of loopstore, and true if it had rows.
///
/// # Errors
/// If it nests too deeply.
pub fn without_rows(extra: Option<&RawValue>) -> Result<(Option<Json>, bool), String> {
    let Some(extra) = extra else {
        return Ok((None, false));
    };
    let Ok(mut fields) = BorrowedFields::parse(extra.get()) else {
        return Ok((Some(Json::parse(extra.get()).map_err(reason)?), false));
    };
    let had_rows = fields.take("loopstore").is_some();
    match fields.keys().next().is_none() {
        true => Ok((None, had_rows)),
        false => {
            let rest = Json::parse(&fields.to_text()).map_err(reason)?;
            Ok((Some(rest), had_rows))
        }
    }
}
