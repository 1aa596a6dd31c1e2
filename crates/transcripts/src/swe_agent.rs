//! SWE-agent: one document per run (`.traj`), in which `history` (what the model saw) and `trajectory` (the steps) are
//! two views of one run. Either may be missing.
//!
//! The messages come from `history`. Other fields of a step are kept with its answer, and a step that is not in the
//! history is kept as an extension. The run is one loop. If actions are in the text, the observation is a user message
//! and belongs to the turn of its action.

mod steps;

use std::path::Path;

use loopstore::model::{AgentMessage, AssistantMessage, Content, LoopStatus, Message, Role, Usage};
use serde_json::value::RawValue;

use self::steps::RunSteps;
use super::authors::by_harness;
use super::extension::extension;
use super::fields::{Fields, list};
use super::json_stream::{JsonDocument, LineCounter, documents};
use super::key_outline::KeyOutline;
use super::openai_chat::{head, message, run_extra};
use super::transcript::{Style, TranscriptBuilder};
use super::values::{add_cost, json, usage, with_thinking};
use super::{ImportError, Importer, Sink, Source, holds_conversation};

/// Reads SWE-agent's trajectories.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweAgent;

impl Importer for SweAgent {
    fn format(&self) -> &'static str {
        "swe-agent"
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let outline = KeyOutline::of(head);
        let has = |key: &str| outline.has(key);
        let steps = has("trajectory[].action")
            || has("trajectory[].response")
            || has("trajectory[].observation")
            || has("trajectory[].thought");
        let run = has("environment") || has("info") || has("replay_config");
        steps
            || has("history[].role") && (has("history[].message_type") || run)
            || has("trajectory") && has("history") && run
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        holds_conversation(documents(source, sink, &mut run)?)
    }
}

/// Reads one run. Returns true if it has any messages.
fn run(document: JsonDocument<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let JsonDocument {
        text: json,
        mut fields,
        line,
        nth,
    } = document;
    let mut taken = |key: &str| {
        let found = list(fields.get(key)?)?;
        fields.take(key);
        Some(found)
    };
    let history = taken("history").unwrap_or_default();
    let trajectory = taken("trajectory").unwrap_or_default();
    let info = fields.object("info");
    let (extra, bad) = run_extra(&fields);
    for reason in bad {
        sink.skip(Some(line), reason);
    }
    let has_info = fields.get("info").is_some();
    let mut run = RunReader {
        lines: LineCounter::new(json, line),
        answered: false,
        begun: false,
        nth: 0,
        transcript: TranscriptBuilder::new(sink, head(nth.to_string(), extra)?, Style::Document),
    };
    match history.is_empty() {
        false => run.history(&history, RunSteps::of(&trajectory))?,
        true => run.steps(&trajectory)?,
    }
    run.transcript.ended_as(status(&info, has_info));
    run.transcript.set_usage(stats(&info));
    run.transcript.finish()
}

/// Returns the status of the run; `None` if it may continue.
fn status(info: &Fields<'_>, has_info: bool) -> Option<LoopStatus> {
    match info.text("exit_status") {
        None if has_info => None,
        None => Some(LoopStatus::Completed),
        Some(word) if word == "submitted" => Some(LoopStatus::Completed),
        Some(_) => Some(LoopStatus::Aborted),
    }
}

fn stats(info: &Fields<'_>) -> Option<Usage> {
    let stats = info.object("model_stats");
    let cost = stats.get("instance_cost");
    let places = ["tokens_sent", "tokens_received", "", "", "", ""];
    let mut usage = usage(stats, places);
    add_cost(&mut usage, cost);
    usage
}

struct RunReader<'a> {
    lines: LineCounter<'a>,
    answered: bool,
    /// True if the user has set a task.
    begun: bool,
    nth: usize,
    transcript: TranscriptBuilder<'a>,
}

impl<'a> RunReader<'a> {
    fn history(
        &mut self,
        history: &[&'a RawValue],
        mut steps: RunSteps<'a>,
    ) -> Result<(), ImportError> {
        for (at, raw) in history.iter().enumerate() {
            steps.seen = history.get(at + 1).and_then(|next| content_of(next));
            self.message(raw, Some(&mut steps))?;
        }
        for step in steps.into_remaining() {
            self.keep_step(step)?;
        }
        Ok(())
    }

    fn message(
        &mut self,
        raw: &'a RawValue,
        steps: Option<&mut RunSteps<'a>>,
    ) -> Result<(), ImportError> {
        let line = self.lines.of(raw.get());
        self.nth += 1;
        match self.read(raw) {
            Ok(message) => self.emit(message, raw, steps),
            Err(reason) => {
                let reason = format!("message {}: {reason}", self.nth);
                self.transcript.skip(line, reason);
                Ok(())
            }
        }
    }

    /// Reads a message of `history`, which is like a chat message, except that a result lists its calls.
    fn read(&mut self, raw: &RawValue) -> Result<AgentMessage, String> {
        let record = json(raw)?;
        let mut fields = Fields::parse(raw.get())?;
        let role = fields
            .text("role")
            .ok_or("its role is missing or no text")?;
        if ![
            "system",
            "developer",
            "user",
            "assistant",
            "tool",
            "function",
        ]
        .contains(&&*role)
        {
            return Ok(extension(Some(&role), record));
        }
        let ids = fields
            .get("tool_call_ids")
            .and_then(list)
            .unwrap_or_default();
        if let (Some(first), None) = (ids.first(), fields.get("tool_call_id")) {
            fields.set("tool_call_id", first);
            if ids.len() == 1 {
                fields.take("tool_call_ids");
            }
        }
        let message = message::read(&fields.to_json()?, self.nth)?;
        Ok(with_thinking(message, &fields))
    }

    fn emit(
        &mut self,
        mut message: AgentMessage,
        raw: &RawValue,
        steps: Option<&mut RunSteps<'a>>,
    ) -> Result<(), ImportError> {
        let bytes = raw.get().as_bytes();
        if is_shown(raw) {
            message = by_harness(message);
        }
        match message.role() {
            Role::User if self.answered => return self.transcript.observation(message, bytes),
            Role::User if std::mem::replace(&mut self.begun, true) => {
                return self.transcript.input(message, bytes, true);
            }
            Role::Assistant => {
                self.answered = true;
                let record = Fields::parse(raw.get()).unwrap_or_default();
                let is_demo = record.read("is_demo") == Some(true);
                if let Some(steps) = steps.filter(|_| !is_demo) {
                    let (missed, step) = steps.of_answer(&record);
                    for step in missed {
                        self.keep_step(step)?;
                    }
                    if let Some(step) = step {
                        message.extra_mut().insert("step", step);
                    }
                }
            }
            _ => {}
        }
        self.transcript.message(String::new, message, bytes)
    }

    /// Keeps a step that is not in the history.
    fn keep_step(&mut self, step: &RawValue) -> Result<(), ImportError> {
        match steps::without_copies(step) {
            Ok(data) if data.is_null() => Ok(()),
            Ok(data) => self
                .transcript
                .extension(extension(Some("step"), data), step.get().as_bytes()),
            Err(reason) => {
                let line = self.lines.of(step.get());
                self.transcript.skip(line, format!("a step: {reason}"));
                Ok(())
            }
        }
    }

    /// Reads a run that consists only of steps: the query, then answers and observations.
    fn steps(&mut self, steps: &[&'a RawValue]) -> Result<(), ImportError> {
        for (nth, raw) in steps.iter().enumerate() {
            let line = self.lines.of(raw.get());
            let fields = match Fields::parse(raw.get()) {
                Ok(fields) => fields,
                Err(reason) => {
                    let reason = format!("step {}: {reason}", nth + 1);
                    self.transcript.skip(line, reason);
                    continue;
                }
            };
            let query = ["query", "messages"]
                .iter()
                .find_map(|key| list(fields.get(key)?));
            for raw in query.filter(|_| nth == 0).unwrap_or_default() {
                self.message(raw, None)?;
            }
            self.step(raw, &fields)?;
        }
        Ok(())
    }

    fn step(&mut self, raw: &RawValue, fields: &Fields<'_>) -> Result<(), ImportError> {
        let answer_texts = ["response", "thought", "action"]
            .iter()
            .find_map(|key| fields.text(key));
        let answer = Message::Assistant(AssistantMessage {
            content: answer_texts.iter().map(Content::text).collect(),
            ..AssistantMessage::default()
        });
        let mut message = AgentMessage::from(answer);
        let step = steps::other_fields(fields, &["response", "observation"]);
        message.extra_mut().insert("step", step);
        let key = |kind: &str| format!("{kind}\n{}", raw_of(fields, kind));
        self.answered = true;
        self.transcript
            .answer(String::new, message, key("response").as_bytes())?;
        match fields.text("observation") {
            Some(seen) => {
                let message = AgentMessage::from(Message::user(seen));
                self.transcript
                    .observation(message, key("observation").as_bytes())
            }
            None => {
                // Content that is not text is kept unchanged.
                let odd = fields
                    .get("observation")
                    .filter(|seen| !["null", "\"\""].contains(&seen.get()));
                match odd.and_then(|seen| json(seen).ok()) {
                    Some(seen) => self
                        .transcript
                        .extension(extension(Some("observation"), seen), raw.get().as_bytes()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// True if a message is a demonstration or the output of a tool, not a task that the user set.
fn is_shown(raw: &RawValue) -> bool {
    let fields = Fields::parse(raw.get()).unwrap_or_default();
    let kind = fields.text("message_type");
    let is_shown_kind = |kind: &str| matches!(kind, "demonstration" | "observation");
    fields.text("role").as_deref() == Some("user")
        && (fields.read("is_demo") == Some(true) || kind.as_deref().is_some_and(is_shown_kind))
}

/// Returns the part of an observation that the model saw.
fn content_of(next: &RawValue) -> Option<String> {
    let fields = Fields::parse(next.get()).ok()?;
    fields.text("content")
}

/// Returns the text by which a later state of the file is compared; for an answer it includes the action.
fn raw_of(fields: &Fields<'_>, kind: &str) -> String {
    let part = |key: &str| fields.get(key).map_or("null", RawValue::get).to_owned();
    match kind {
        "response" => format!("{}\n{}", part("response"), part("action")),
        _ => part(kind),
    }
}
