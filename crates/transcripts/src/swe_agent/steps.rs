//! The steps of a run, next to its history.

use std::collections::VecDeque;

use loopstore::model::Json;
use serde_json::value::RawValue;

use super::super::fields::Fields;
use super::super::values::{json, object_of, rest};

/// The fields of a step that repeat the messages that the model saw.
const COPIES: [&str; 2] = ["query", "messages"];

/// A step, with the key of the answer that it belongs to.
struct TrajectoryStep<'a> {
    raw: &'a RawValue,
    action: Option<String>,
    thought: Option<String>,
    response: Option<String>,
}

impl<'a> TrajectoryStep<'a> {
    fn of(raw: &'a RawValue) -> Self {
        let fields = Fields::parse(raw.get()).unwrap_or_default();
        Self {
            raw,
            action: fields.text("action"),
            thought: fields.text("thought"),
            response: fields.text("response"),
        }
    }

    /// True if the step belongs to an answer.
    fn belongs(&self, answer: &AnswerKey) -> bool {
        let same = |own: &Option<String>, its: &Option<String>| own.is_some() && own == its;
        let compared = |own: &Option<String>, its: &Option<String>| own.is_some() && its.is_some();
        let is_same_text =
            same(&self.response, &answer.content) || same(&self.thought, &answer.thought);
        let says = compared(&self.response, &answer.content);
        match compared(&self.action, &answer.action) {
            true => same(&self.action, &answer.action) && (is_same_text || !says),
            false => is_same_text,
        }
    }
}

/// The key of an answer.
struct AnswerKey {
    action: Option<String>,
    thought: Option<String>,
    content: Option<String>,
}

/// The steps that no answer was found for yet.
pub(super) struct RunSteps<'a> {
    steps: VecDeque<TrajectoryStep<'a>>,
    /// The messages after the answer that the model saw.
    pub(super) seen: Option<String>,
}

impl<'a> RunSteps<'a> {
    pub(super) fn of(steps: &[&'a RawValue]) -> Self {
        Self {
            steps: steps.iter().map(|raw| TrajectoryStep::of(raw)).collect(),
            seen: None,
        }
    }

    /// Removes the step of an answer. Returns the steps before it that have no answer, and its other fields.
    pub(super) fn of_answer(&mut self, answer: &Fields<'_>) -> (Vec<&'a RawValue>, Option<Json>) {
        let known = AnswerKey {
            action: answer.text("action"),
            thought: answer.text("thought"),
            content: answer.text("content"),
        };
        let Some(at) = self.steps.iter().position(|step| step.belongs(&known)) else {
            return (Vec::new(), None);
        };
        let missed = self.steps.drain(..at).map(|step| step.raw).collect();
        let step = self.steps.pop_front();
        let step = step.and_then(|step| Fields::parse(step.raw.get()).ok());
        (missed, step.map(|step| self.other_fields(&step, answer)))
    }

    /// Returns the fields of a step other than its answer and the observation that the model saw.
    fn other_fields(&self, step: &Fields<'_>, answer: &Fields<'_>) -> Json {
        let same = |key: &&str| raw(step, key) == raw(answer, key);
        let mut known: Vec<&str> = ["action", "thought"].into_iter().filter(same).collect();
        if raw(step, "response") == raw(answer, "content") {
            known.push("response");
        }
        let observed = step.text("observation").zip(self.seen.as_deref());
        // Line ends of the terminal are normalised in what the model sees.
        if observed.is_some_and(|(text, seen)| seen.contains(&text.replace("\r\n", "\n"))) {
            known.push("observation");
        }
        other_fields(step, &known)
    }

    /// Returns all remaining steps.
    pub(super) fn into_remaining(self) -> impl Iterator<Item = &'a RawValue> {
        self.steps.into_iter().map(|step| step.raw)
    }
}

fn raw<'a>(fields: &Fields<'a>, key: &str) -> &'a str {
    fields.get(key).map_or("null", RawValue::get)
}

/// Returns the fields of a step other than `known`.
pub(super) fn other_fields(step: &Fields<'_>, known: &[&str]) -> Json {
    let mut rest = rest(step);
    for key in known.iter().chain(&COPIES) {
        rest.remove(key);
    }
    object_of(&rest)
}

/// Returns a step without its copy of what the model saw.
pub(super) fn without_copies(step: &RawValue) -> Result<Json, String> {
    let record = json(step)?;
    match Fields::parse(step.get()) {
        Ok(fields) => Ok(other_fields(&fields, &[])),
        Err(_) => Ok(record),
    }
}
