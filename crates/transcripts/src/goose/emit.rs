//! Emits the messages of a session.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, Message, Time, Usage,
};
use serde_json::value::RawValue;

use super::TOOL;
use super::content::{GooseItems, items, result, text_in};
use crate::authors::by_harness;
use crate::extension::extension_of;
use crate::fields::Fields;
use crate::transcript::{Style, TranscriptBuilder};
use crate::values::{unix_millis, user};
use crate::{FoundEffect, ImportError, SessionHead, Sink};

/// A part of goose's message to the model after the summary of a compaction.
const COMPACTED: &str = "context was compacted";

/// A message as it is stored.
pub(super) struct GooseMessage<'a> {
    pub(super) id: Option<String>,
    pub(super) role: String,
    /// The list of items as JSON.
    pub(super) content: &'a str,
    pub(super) metadata: &'a str,
    /// The time of the message since the epoch, in any unit.
    pub(super) created: Option<i64>,
    /// The bytes in the file, kept for a message that no model sees.
    pub(super) raw: &'a str,
}

impl GooseMessage<'_> {
    /// Returns the text that a later import compares, without the fields that goose updates later: the visibility, and
    /// notes on calls.
    fn made_from(&self, found: &GooseItems) -> String {
        let results: Vec<Json> = found
            .results
            .iter()
            .filter_map(|result| {
                Json::of(&AgentMessage::from(Message::ToolResult(result.clone()))).ok()
            })
            .collect();
        let content = Json::of(&found.content).unwrap_or_default();
        let results = Json::of(&results).unwrap_or_default();
        let id = self.id.as_deref().unwrap_or_default();
        format!("{id}\n{}\n{}", content.as_str(), results.as_str())
    }
}

/// A user text that no person sees: a summary, if the next message confirms it.
struct HeldRow {
    message: AgentMessage,
    raw: Vec<u8>,
}

pub(super) struct GooseEmitter<'a> {
    transcript: TranscriptBuilder<'a>,
    model: Option<String>,
    /// The id of the answer that was emitted last, if no other message followed.
    answer: Option<String>,
    held: Option<HeldRow>,
    /// True if the last message reported a compaction: the prompt may be repeated after it.
    is_compacted: bool,
    messages: u64,
}

impl<'a> GooseEmitter<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink, head: SessionHead, model: Option<String>) -> Self {
        Self {
            transcript: TranscriptBuilder::new(sink, head, Style::Log),
            model,
            answer: None,
            held: None,
            is_compacted: false,
            messages: 0,
        }
    }

    /// Reports a record that is not used.
    pub(super) fn skip(&mut self, line: impl Into<Option<u64>>, reason: String) {
        self.transcript.skip(line, reason);
    }

    /// Repairs JSON of a row.
    pub(super) fn repair(&mut self, json: String, row: u64) -> String {
        self.transcript.repair(json, row)
    }

    /// Handles the next message; `line` is its line or row.
    pub(super) fn message(
        &mut self,
        message: GooseMessage<'_>,
        line: u64,
    ) -> Result<(), ImportError> {
        self.messages += 1;
        let millis = message.created.and_then(|at| unix_millis(at as f64));
        self.transcript.at(millis.and_then(Time::from_millis));
        let read = serde_json::from_str::<&RawValue>(message.content)
            .map_err(|error| error.to_string())
            .and_then(items);
        let found = match read {
            Ok(found) => found,
            Err(reason) => {
                self.transcript.skip(line, reason);
                return self.record(&message);
            }
        };
        let made_from = message.made_from(&found);
        let made_from = made_from.as_bytes();
        let about = Fields::parse(message.metadata).unwrap_or_default();
        let is_set = |key: &str| about.read::<bool>(key);
        let is_shown = is_set("userVisible") != Some(false);
        let is_injected = is_set("turnContext") == Some(true);
        match (&*message.role, is_shown) {
            ("assistant", false) if text_in(&found.content).contains(COMPACTED) => {
                self.compaction(found.content, &message)
            }
            ("assistant", _) => self.answer(found, &about, millis, (&message, made_from)),
            ("user", _) if !found.results.is_empty() => {
                self.flush_held()?;
                self.answer = None;
                for of in found.results {
                    let of = result(of, millis).into();
                    self.transcript.result(String::new, of, made_from)?;
                }
                if found.content.is_empty() {
                    return Ok(());
                }
                let message = by_harness(user(found.content, millis.map(Into::into)));
                self.transcript.input(message, made_from, false)
            }
            ("user", _) if found.content.is_empty() => self.record(&message),
            ("user", true) if !is_injected => {
                self.flush_held()?;
                self.answer = None;
                self.is_compacted = false;
                let name = message.id.clone();
                let name = name.unwrap_or_else(|| format!("message-{}", self.messages));
                let message = user(found.content, millis.map(Into::into));
                self.transcript.prompt(name, message, made_from)
            }
            ("user", _) if self.is_compacted && !is_injected => {
                // The prompt is repeated for the model only.
                self.is_compacted = false;
                self.record(&message)
            }
            ("user", _) => {
                self.flush_held()?;
                self.answer = None;
                let message = HeldRow {
                    message: by_harness(user(found.content, millis.map(Into::into))),
                    raw: made_from.to_vec(),
                };
                match is_injected {
                    true => self.added(message),
                    false => {
                        self.held = Some(message);
                        Ok(())
                    }
                }
            }
            _ => self.record(&message),
        }
    }

    /// Keeps a message that no model sees.
    fn record(&mut self, message: &GooseMessage<'_>) -> Result<(), ImportError> {
        let record = extension_of(Some("goose-message"), message.raw);
        self.transcript
            .extension(record, message.content.as_bytes())
    }

    fn added(&mut self, held: HeldRow) -> Result<(), ImportError> {
        self.transcript.input(held.message, &held.raw, false)
    }

    /// Emits the held text: it was not a summary.
    fn flush_held(&mut self) -> Result<(), ImportError> {
        match self.held.take() {
            Some(held) => self.added(held),
            None => Ok(()),
        }
    }

    fn answer(
        &mut self,
        found: GooseItems,
        about: &Fields<'_>,
        millis: Option<i64>,
        (message, made_from): (&GooseMessage<'_>, &[u8]),
    ) -> Result<(), ImportError> {
        self.flush_held()?;
        self.is_compacted = false;
        if found.content.is_empty() {
            return self.record(message);
        }
        let inference = about.object("inference");
        let model = inference
            .text("resolvedModel")
            .or_else(|| inference.text("requestedModel"));
        let is_call = |block: &Content| matches!(block, Content::ToolCall(_));
        let stop = match found.content.iter().any(is_call) {
            true => "toolUse",
            false => "stop",
        };
        let answer = Message::Assistant(AssistantMessage {
            stop_reason: Some(stop.into()),
            content: found.content,
            model: model.or_else(|| self.model.clone()),
            usage: usage(&about.object("usage")),
            timestamp: millis.map(Into::into),
            ..AssistantMessage::default()
        });
        // The parts of one answer are rows with one id.
        let is_more = message.id.is_some() && self.answer == message.id;
        self.answer.clone_from(&message.id);
        match is_more {
            true => self.transcript.more_of_answer(answer.into(), made_from),
            false => self
                .transcript
                .answer(String::new, answer.into(), made_from),
        }
    }

    /// Handles a compaction: the summary was held, and `content` belongs to it.
    fn compaction(
        &mut self,
        content: Vec<Content>,
        message: &GooseMessage<'_>,
    ) -> Result<(), ImportError> {
        self.answer = None;
        self.is_compacted = true;
        let Some(held) = self.held.take() else {
            return self.record(message);
        };
        if self.transcript.here().is_none() {
            // The range that the summary replaces is unknown.
            return self.transcript.input(held.message, &held.raw, false);
        }
        let note = Message::Assistant(AssistantMessage {
            content,
            ..AssistantMessage::default()
        });
        let effect = FoundEffect::Summary {
            messages: vec![held.message, note.into()],
            // Even in the middle of a turn, all messages are hidden; the model continues from the summary.
            first_kept: None,
        };
        let record = Json::parse(message.raw).unwrap_or_default();
        self.transcript.compaction(TOOL, effect, record)?;
        self.transcript.end_loop()
    }

    /// Ends the session. Returns true if there was a conversation.
    pub(super) fn finish(mut self) -> Result<bool, ImportError> {
        self.flush_held()?;
        self.transcript.finish()
    }
}

fn usage(fields: &Fields<'_>) -> Option<Usage> {
    let mut extra = Extra::default();
    if let Some(cost) = fields.get("cost")
        && let Ok(cost) = Json::parse(cost.get())
        && cost.read::<f64>().is_ok()
    {
        extra.insert("cost", cost);
    }
    Some(Usage {
        input: fields.read("inputTokens")?,
        output: fields.read("outputTokens").unwrap_or_else(|| 0.into()),
        reasoning: None,
        cache_read: fields.read("cacheReadTokens"),
        cache_write: fields.read("cacheWriteTokens"),
        total_tokens: fields.read("totalTokens"),
        extra,
    })
}
