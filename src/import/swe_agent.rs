//! SWE-agent: one document a run (`.traj`), in which `history` (what the model saw) and
//! `trajectory` (the steps) are two views of one run. Either may be missing.
//!
//! The messages come from `history`; what a step knows besides stays with its answer, and a step
//! that history has not is kept as a note. The run is one loop. Where actions stand in the text, the
//! observation is a message in the user's name and belongs to the turn of its action.

mod steps;

use std::path::Path;

use serde_json::value::RawValue;

use self::steps::Steps;
use super::fields::{Fields, list};
use super::openai_chat::calls::Calls;
use super::openai_chat::{head, message, run_extra};
use super::outline::Outline;
use super::pieces::{Lines, Pieces};
use super::thread::{Start, Thread};
use super::values::{add_cost, json, note, object, read, text, usage, with_thinking};
use super::{ImportError, Importer, Sink, Source, holds_conversation};
use crate::model::{AgentMessage, AssistantMessage, Content, LoopStatus, Message, Role, Usage};

/// Reads SWE-agent's trajectories.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweAgent;

impl Importer for SweAgent {
    fn format(&self) -> &'static str {
        "swe-agent"
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let outline = Outline::of(head);
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
        let (mut told, mut nth) = (false, 0);
        let mut pieces = Pieces::new(source)?;
        while let Some(piece) = pieces.next()? {
            match piece.text {
                Ok(text) => told |= run(&text, piece.line, nth, sink)?,
                Err(reason) => sink.skip(Some(piece.line), reason.into()),
            }
            nth += 1;
        }
        holds_conversation(told)
    }
}

/// Tells one run, and returns whether there was anything in it.
fn run(text: &str, line: u64, nth: u64, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let mut fields = match Fields::parse(text) {
        Ok(fields) => fields,
        Err(reason) => {
            sink.skip(Some(line), reason);
            return Ok(false);
        }
    };
    let mut taken = |key: &str| {
        let found = list(fields.get(key)?)?;
        fields.take(key);
        Some(found)
    };
    let history = taken("history").unwrap_or_default();
    let trajectory = taken("trajectory").unwrap_or_default();
    let info = object(&fields, "info");
    let (extra, bad) = run_extra(&fields);
    for reason in bad {
        sink.skip(Some(line), reason);
    }
    let has_info = fields.get("info").is_some();
    let mut run = Run {
        lines: Lines::new(text, line),
        calls: Calls::default(),
        answered: false,
        begun: false,
        nth: 0,
        thread: Thread::new(sink, head(nth.to_string(), extra)?),
    };
    match history.is_empty() {
        false => run.history(&history, Steps::of(&trajectory))?,
        true => run.steps(&trajectory)?,
    }
    run.thread.ended_as(status(&info, has_info));
    run.thread.usage = stats(&info);
    run.thread.end()
}

/// How the run ended; `None`: it may go on.
fn status(info: &Fields<'_>, has_info: bool) -> Option<LoopStatus> {
    match text(info, "exit_status") {
        None if has_info => None,
        None => Some(LoopStatus::Completed),
        Some(word) if word == "submitted" => Some(LoopStatus::Completed),
        Some(_) => Some(LoopStatus::Aborted),
    }
}

fn stats(info: &Fields<'_>) -> Option<Usage> {
    let stats = object(info, "model_stats");
    let cost = stats.get("instance_cost");
    let places = ["tokens_sent", "tokens_received", "", "", "", ""];
    let mut usage = usage(stats, places);
    add_cost(&mut usage, cost);
    usage
}

struct Run<'a> {
    lines: Lines<'a>,
    calls: Calls,
    answered: bool,
    begun: bool,
    nth: usize,
    thread: Thread<'a>,
}

impl<'a> Run<'a> {
    fn history(
        &mut self,
        history: &[&'a RawValue],
        mut steps: Steps<'a>,
    ) -> Result<(), ImportError> {
        for (at, raw) in history.iter().enumerate() {
            steps.seen = history.get(at + 1).and_then(|next| seen(next));
            self.message(raw, Some(&mut steps))?;
        }
        for step in steps.left() {
            self.left(step)?;
        }
        Ok(())
    }

    fn message(
        &mut self,
        raw: &'a RawValue,
        steps: Option<&mut Steps<'a>>,
    ) -> Result<(), ImportError> {
        let line = self.lines.of(raw.get());
        self.nth += 1;
        match self.read(raw) {
            Ok(message) => self.tell(message, raw, steps),
            Err(reason) => {
                let reason = format!("message {}: {reason}", self.nth);
                self.thread.sink.skip(Some(line), reason);
                Ok(())
            }
        }
    }

    /// Reads a message of `history`: as in a chat, but that a result lists the calls it is of.
    fn read(&mut self, raw: &RawValue) -> Result<AgentMessage, String> {
        let record = json(raw)?;
        let mut fields = Fields::parse(raw.get())?;
        let role = text(&fields, "role").ok_or("its role is missing or no text")?;
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
            return Ok(note(&role, record));
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
        let message = message::read(&fields.to_json()?, self.nth, &mut self.calls)?;
        Ok(with_thinking(message, &fields))
    }

    fn tell(
        &mut self,
        mut message: AgentMessage,
        raw: &RawValue,
        steps: Option<&mut Steps<'a>>,
    ) -> Result<(), ImportError> {
        let bytes = raw.get().as_bytes();
        match message.role() {
            Role::User if self.answered => self.thread.observation(message, bytes),
            Role::User => {
                if !std::mem::replace(&mut self.begun, true) {
                    self.thread.begin(Start::default())?;
                }
                self.thread.prompt(message, bytes)
            }
            Role::Assistant => {
                self.answered = true;
                let record = Fields::parse(raw.get()).unwrap_or_default();
                let is_demo = read(&record, "is_demo") == Some(true);
                if let Some(steps) = steps.filter(|_| !is_demo) {
                    let (missed, step) = steps.of_answer(&record);
                    for step in missed {
                        self.left(step)?;
                    }
                    if let Some(step) = step {
                        message.extra_mut().insert("step", step);
                    }
                }
                self.thread.answer(message, bytes, false)
            }
            Role::ToolResult => self.thread.result(message, bytes),
            Role::Extension => self.thread.note(message, bytes),
        }
    }

    /// Keeps a step that history does not have.
    fn left(&mut self, step: &RawValue) -> Result<(), ImportError> {
        match steps::alone(step) {
            Ok(data) if data.is_null() => Ok(()),
            Ok(data) => self.thread.note(note("step", data), step.get().as_bytes()),
            Err(reason) => {
                let line = self.lines.of(step.get());
                self.thread
                    .sink
                    .skip(Some(line), format!("a step: {reason}"));
                Ok(())
            }
        }
    }

    /// Tells a run of which there are only steps: what was asked, then answers and observations.
    fn steps(&mut self, steps: &[&'a RawValue]) -> Result<(), ImportError> {
        for (nth, raw) in steps.iter().enumerate() {
            let line = self.lines.of(raw.get());
            let fields = match Fields::parse(raw.get()) {
                Ok(fields) => fields,
                Err(reason) => {
                    let reason = format!("step {}: {reason}", nth + 1);
                    self.thread.sink.skip(Some(line), reason);
                    continue;
                }
            };
            let asked = ["query", "messages"]
                .iter()
                .find_map(|key| list(fields.get(key)?));
            for raw in asked.filter(|_| nth == 0).unwrap_or_default() {
                self.message(raw, None)?;
            }
            self.step(raw, &fields)?;
        }
        Ok(())
    }

    fn step(&mut self, raw: &RawValue, fields: &Fields<'_>) -> Result<(), ImportError> {
        let said = ["response", "thought", "action"]
            .iter()
            .find_map(|key| text(fields, key));
        let answer = Message::Assistant(AssistantMessage {
            content: said.iter().map(Content::text).collect(),
            ..AssistantMessage::default()
        });
        let mut message = AgentMessage::from(answer);
        let step = steps::besides(fields, &["response", "observation"]);
        message.extra_mut().insert("step", step);
        let key = |kind: &str| format!("{kind}\n{}", raw_of(fields, kind));
        self.answered = true;
        self.thread
            .answer(message, key("response").as_bytes(), false)?;
        match text(fields, "observation") {
            Some(seen) => {
                let message = AgentMessage::from(Message::user(seen));
                self.thread
                    .observation(message, key("observation").as_bytes())
            }
            None => {
                // What is no text is kept as it is.
                let odd = fields
                    .get("observation")
                    .filter(|seen| !["null", "\"\""].contains(&seen.get()));
                match odd.and_then(|seen| json(seen).ok()) {
                    Some(seen) => self
                        .thread
                        .note(note("observation", seen), raw.get().as_bytes()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// What the model was shown of an observation.
fn seen(next: &RawValue) -> Option<String> {
    let fields = Fields::parse(next.get()).ok()?;
    text(&fields, "content")
}

/// What a later state of the file is compared by: of an answer also the action.
fn raw_of(fields: &Fields<'_>, kind: &str) -> String {
    let part = |key: &str| fields.get(key).map_or("null", RawValue::get).to_owned();
    match kind {
        "response" => format!("{}\n{}", part("response"), part("action")),
        _ => part(kind),
    }
}
