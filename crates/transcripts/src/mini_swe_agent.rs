//! mini-swe-agent: a list of messages, or a document `{info, messages, trajectory_format,
//! instance_id}`.
//!
//! The run is one loop: the first messages of the user are the task, the later ones are the outputs of the
//! commands in the answers, and belong to the turn of their answer. Version 2 calls tools; with the
//! Responses API an answer is a list of items.

mod message;

use std::path::Path;

use loopstore::model::{Extra, LoopStatus, Role};
use serde_json::value::RawValue;

use super::fields::{Fields, list};
use super::json_stream::{JsonStream, LineCounter, LooseItems, StreamItem};
use super::key_outline::KeyOutline;
use super::openai_chat::{head, run_extra};
use super::signs::is_bare_trajectory;
use super::transcript::{Style, TranscriptBuilder};
use super::values::add_cost;
use super::{ImportError, Importer, Sink, Source, holds_conversation};

/// Reads mini-swe-agent's trajectories.
#[derive(Clone, Copy, Debug, Default)]
pub struct MiniSweAgent;

impl Importer for MiniSweAgent {
    fn format(&self) -> &'static str {
        "mini-swe-agent"
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let outline = KeyOutline::of(head);
        let has = |key: &str| outline.has(key);
        if has("history") || has("trajectory") || has("info.id") || has("traj") {
            return false;
        }
        let described = ["mini_version", "model_stats", "exit_status", "config"];
        let described = described.iter().any(|key| has(&format!("info.{key}")));
        let messages = has("messages[].role") || has("messages[].content") || has("messages");
        messages && (has("trajectory_format") || described) || is_bare_trajectory(head)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let mut runs = RunsReader {
            sink,
            loose: LooseItems::new(),
            nth: 0,
            any: false,
        };
        let mut pieces = JsonStream::new(source)?;
        while let Some(piece) = pieces.next()? {
            runs.piece(piece)?;
        }
        let ended = runs.loose.take();
        runs.loose_run(ended)?;
        holds_conversation(runs.any)
    }
}

struct RunsReader<'a> {
    sink: &'a mut dyn Sink,
    /// Messages without a document around them.
    loose: LooseItems<(u64, String)>,
    nth: u64,
    any: bool,
}

impl RunsReader<'_> {
    fn piece(&mut self, piece: StreamItem) -> Result<(), ImportError> {
        let text = match piece.text {
            Ok(text) => text,
            Err(reason) => return self.skip(piece.line, reason.into()),
        };
        let mut fields = match Fields::parse(&text) {
            Ok(fields) => fields,
            Err(reason) => return self.skip(piece.line, reason),
        };
        let Some(messages) = fields.take("messages") else {
            let is_message = fields.get("role").is_some() || fields.get("type").is_some();
            return match is_message || fields.get("output").is_some() {
                true => {
                    let ended = self.loose.add(piece.list, (piece.line, text));
                    self.loose_run(ended)
                }
                false => self.skip(piece.line, "neither a run nor a message".into()),
            };
        };
        let ended = self.loose.take();
        self.loose_run(ended)?;
        let Some(messages) = list(messages) else {
            return self.skip(piece.line, "the messages of the run are not a list".into());
        };
        let mut lines = LineCounter::new(&text, piece.line);
        let messages: Vec<(u64, &RawValue)> = messages
            .into_iter()
            .map(|raw| (lines.of(raw.get()), raw))
            .collect();
        let (extra, bad) = run_extra(&fields);
        bad.into_iter()
            .for_each(|reason| self.sink.skip(Some(piece.line), reason));
        self.run(Some(&fields), extra, &messages)
    }

    fn skip(&mut self, line: u64, reason: String) -> Result<(), ImportError> {
        self.sink.skip(Some(line), reason);
        Ok(())
    }

    fn loose_run(&mut self, loose: Option<Vec<(u64, String)>>) -> Result<(), ImportError> {
        let Some(loose) = loose else {
            return Ok(());
        };
        let raw = |(line, text): &'_ (u64, String)| -> Option<(u64, Box<RawValue>)> {
            Some((*line, serde_json::from_str(text).ok()?))
        };
        let messages: Vec<(u64, Box<RawValue>)> = loose.iter().filter_map(raw).collect();
        let messages: Vec<(u64, &RawValue)> =
            messages.iter().map(|(line, raw)| (*line, &**raw)).collect();
        self.run(None, Extra::default(), &messages)
    }

    fn run(
        &mut self,
        document: Option<&Fields<'_>>,
        extra: Extra,
        messages: &[(u64, &RawValue)],
    ) -> Result<(), ImportError> {
        let id = document.and_then(|fields| fields.text("instance_id"));
        let key = id.unwrap_or_else(|| self.nth.to_string());
        self.nth += 1;
        let head = head(key, extra)?;
        let mut transcript = TranscriptBuilder::new(&mut *self.sink, head, Style::Document);
        let exit = read_messages(&mut transcript, messages)?;
        match document.map(|fields| fields.object("info")) {
            Some(info) => {
                transcript.ended_as(status(info.text("exit_status").or(exit)));
                let mut usage = None;
                add_cost(&mut usage, info.object("model_stats").get("instance_cost"));
                transcript.set_usage(usage);
            }
            // The list is written when the run is over.
            None => transcript.ended_as(Some(LoopStatus::Completed)),
        }
        self.any |= transcript.finish()?;
        Ok(())
    }
}

/// Returns the status for an exit status of a run; `None` if the run may continue.
fn status(exit: Option<String>) -> Option<LoopStatus> {
    match exit?.as_str() {
        "Submitted" | "submitted" => Some(LoopStatus::Completed),
        _ => Some(LoopStatus::Aborted),
    }
}

/// Reads the messages of a run, and returns the exit status that they contain.
fn read_messages(
    transcript: &mut TranscriptBuilder<'_>,
    messages: &[(u64, &RawValue)],
) -> Result<Option<String>, ImportError> {
    let (mut answered, mut begun, mut exit) = (false, false, None);
    for (nth, (line, raw)) in messages.iter().enumerate() {
        let bytes = raw.get().as_bytes();
        let read = match message::read(raw, nth) {
            Ok(read) => read,
            Err(reason) => {
                transcript.skip(*line, format!("message {}: {reason}", nth + 1));
                continue;
            }
        };
        exit = read.exit_status.or(exit);
        match read.message.role() {
            Role::User if answered && !read.new_task => {
                transcript.observation(read.message, bytes)?;
            }
            Role::User if !begun || read.new_task => {
                (begun, answered) = (true, false);
                transcript.prompt("", read.message, bytes)?;
            }
            Role::User => transcript.input(read.message, bytes, true)?,
            role => {
                answered |= role == Role::Assistant;
                transcript.message(String::new, read.message, bytes)?;
            }
        }
    }
    Ok(exit)
}
