//! Emits the messages of a task.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Int, Json, LoopStatus, Message, Time, Usage,
};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::condensed::CondensedMessage;
use super::content::{answer, blocks};
use super::prompt::{PromptText, UnansweredCall, read_prompt};
use super::task_files::{TaskFiles, usage_of};
use super::words::{END, MARKS, NO_ANSWER};
use crate::authors::by_harness;
use crate::extension::{extension_of, system_prompt};
use crate::fields::Fields;
use crate::transcript::{LoopTurn, Style, TranscriptBuilder};
use crate::values::{json, user, with_source};
use crate::{ImportError, SessionHead, Sink};

pub(super) struct TaskEmitter<'a> {
    pub(super) tool: &'static str,
    pub(super) transcript: TranscriptBuilder<'a>,
    pub(super) files: TaskFiles,
    /// The turn of each message.
    pub(super) places: Vec<Option<LoopTurn>>,
    pub(super) first: Option<AgentMessage>,
    pub(super) open: Vec<UnansweredCall>,
    /// True if the last answer ended the task.
    pub(super) is_ended: bool,
    /// The time of the last answer; earlier requests are not used for the next one.
    pub(super) answered_at: i64,
    pub(super) model: Option<String>,
    pub(super) held: Vec<CondensedMessage>,
}

/// The fields of a message that describe it.
pub(super) struct TaskRecord {
    pub(super) nth: usize,
    pub(super) millis: Option<i64>,
    /// The name of the loop that the message would begin.
    pub(super) name: String,
    /// The text that a later import compares.
    pub(super) made_from: String,
}

impl<'a> TaskEmitter<'a> {
    pub(super) fn new(
        tool: &'static str,
        sink: &'a mut dyn Sink,
        head: SessionHead,
        files: TaskFiles,
    ) -> Self {
        Self {
            tool,
            transcript: TranscriptBuilder::new(sink, head, Style::Log),
            files,
            places: Vec::new(),
            first: None,
            open: Vec::new(),
            is_ended: false,
            answered_at: 0,
            model: None,
            held: Vec::new(),
        }
    }

    /// Reports a record that is not used.
    pub(super) fn skip(&mut self, line: u64, reason: String) {
        self.transcript.skip(line, reason);
    }

    /// Emits the system prompt of a session.
    pub(super) fn system(&mut self, prompt: &RawValue) -> Result<(), ImportError> {
        match json(prompt).and_then(|prompt| system_prompt(&prompt)) {
            Ok(message) => self.transcript.extension(message, prompt.get().as_bytes()),
            Err(reason) => {
                self.transcript.skip(None, reason);
                Ok(())
            }
        }
    }

    /// Emits the next message.
    pub(super) fn record(&mut self, text: &str, line: u64) -> Result<(), ImportError> {
        let nth = self.places.len();
        self.places.push(None);
        let mut fields = match Fields::parse(text) {
            Ok(fields) => fields,
            Err(reason) => {
                self.transcript.skip(line, reason);
                return Ok(());
            }
        };
        fields.retain(|key| !MARKS.contains(&key));
        let head = record_head(nth, &fields);
        self.compactions(nth, head.millis)?;
        self.transcript.at(head.millis.and_then(Time::from_millis));
        let is_marker = |key: &str| fields.read::<bool>(key) == Some(true);
        let role = fields.text("role").unwrap_or_default();
        let done = match role.as_str() {
            _ if is_marker("isSummary") => self.summary(&head, &fields, &role),
            _ if is_marker("isTruncationMarker") => self.marker(&head, &fields),
            "user" => blocks(fields.get("content"))
                .and_then(|blocks| read_prompt(blocks, &mut self.open))
                .map(|prompt| self.prompt(&head, prompt, &fields)),
            "assistant" => answer(fields.get("content"), &format!("x{nth}"))
                .map(|content| self.answer(&head, content, &fields)),
            _ => Ok(self.keep(&head, &role)),
        };
        match done {
            Ok(done) => done,
            Err(reason) => {
                self.transcript
                    .skip(line, format!("message {}: {reason}", nth + 1));
                self.keep(&head, "message")
            }
        }
    }

    /// Keeps a record that no model sees.
    pub(super) fn keep(&mut self, head: &TaskRecord, kind: &str) -> Result<(), ImportError> {
        let record = extension_of(Some(kind), &head.made_from);
        self.transcript.extension(record, head.made_from.as_bytes())
    }

    /// Records the position of the first message of a record.
    fn emitted(&mut self, head: &TaskRecord) {
        if self.places[head.nth].is_none() {
            self.places[head.nth] = self.transcript.last_turn();
        }
    }

    fn prompt(
        &mut self,
        head: &TaskRecord,
        prompt: PromptText,
        fields: &Fields<'_>,
    ) -> Result<(), ImportError> {
        let raw = head.made_from.as_bytes();
        if prompt.results.is_empty() && prompt.content.is_empty() {
            return self.keep(head, "empty-message");
        }
        self.model = prompt
            .content
            .iter()
            .find_map(model_in)
            .or(self.model.take());
        let has_results = !prompt.results.is_empty();
        for mut result in prompt.results {
            result.timestamp = head.millis.map(Int::from);
            let result = Message::ToolResult(result).into();
            self.transcript.result(|| head.name.clone(), result, raw)?;
            self.emitted(head);
        }
        if prompt.content.is_empty() {
            return Ok(());
        }
        let message = user(prompt.content, head.millis.map(Int::from));
        let message = with_source(message, rest_of(fields));
        if self.first.is_none() {
            self.first = Some(message.clone());
        }
        let is_begun = self.transcript.here().is_none() || self.is_ended || !has_results;
        match (prompt.is_prompt, has_results) {
            (true, _) if is_begun => self.transcript.prompt(&*head.name, message, raw)?,
            (true, _) => self.transcript.input(message, raw, true)?,
            (false, true) => self.transcript.observation(message, raw)?,
            (false, false) => self.transcript.input(message, raw, false)?,
        }
        self.is_ended &= !prompt.is_prompt;
        self.emitted(head);
        Ok(())
    }

    fn answer(
        &mut self,
        head: &TaskRecord,
        content: Vec<Content>,
        fields: &Fields<'_>,
    ) -> Result<(), ImportError> {
        if content.is_empty() {
            return self.keep(head, "empty-message");
        }
        let calls = || {
            content.iter().filter_map(|block| match block {
                Content::ToolCall(call) => Some(call),
                _ => None,
            })
        };
        self.open = calls().map(UnansweredCall::of).collect();
        let was_ended = std::mem::replace(&mut self.is_ended, calls().any(|call| call.name == END));
        let stop = match calls().next() {
            Some(_) => "toolUse",
            None => "stop",
        };
        let last = content.iter().rev().find_map(|block| match block {
            Content::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        let last = last.unwrap_or_default().trim_end();
        let is_made_up = last == NO_ANSWER && content.len() == 1;
        let is_cut = ["user]", "API Error]"]
            .iter()
            .any(|by| last.ends_with(&format!("[Response interrupted by {by}")));
        let info = fields.object("modelInfo");
        let model = info.text("modelId").or_else(|| info.text("id"));
        let message = Message::Assistant(AssistantMessage {
            content,
            stop_reason: Some(stop.into()),
            model: model.or_else(|| self.model_at(head.millis)),
            usage: self.usage(head, fields),
            timestamp: head.millis.map(Int::from),
            ..AssistantMessage::default()
        });
        let mut message = with_source(message.into(), rest_of(fields));
        if is_made_up {
            message = by_harness(message);
        }
        self.answered_at = head.millis.unwrap_or(self.answered_at);
        let raw = head.made_from.as_bytes();
        self.transcript.answer(|| head.name.clone(), message, raw)?;
        self.emitted(head);
        if is_cut {
            self.transcript.interrupted();
        }
        if self.is_ended {
            self.transcript.ended_as(Some(LoopStatus::Completed));
        } else if was_ended {
            self.transcript.ended_as(None);
        }
        Ok(())
    }

    /// Returns the model that was active at a time.
    fn model_at(&self, millis: Option<i64>) -> Option<String> {
        let known = self.files.models.iter().rev();
        let named = millis.and_then(|at| known.into_iter().find(|(from, _)| *from <= at));
        named
            .map(|(_, model)| model.clone())
            .or_else(|| self.model.clone())
    }

    /// Returns the tokens of an answer: its own, else those in the display log.
    fn usage(&self, head: &TaskRecord, fields: &Fields<'_>) -> Option<Usage> {
        let metrics = fields.object("metrics");
        let tokens = metrics.object("tokens");
        let own = usage_of(
            [tokens.get("prompt"), tokens.get("completion")],
            [tokens.get("cached"), None],
            metrics.get("cost"),
        );
        let newer = || {
            usage_of(
                [metrics.get("inputTokens"), metrics.get("outputTokens")],
                [
                    metrics.get("cacheReadTokens"),
                    metrics.get("cacheWriteTokens"),
                ],
                metrics.get("cost"),
            )
        };
        let logged = || {
            let requests = &self.files.requests;
            let by_number = requests.iter().rfind(|one| one.answer == Some(head.nth));
            let since = |at: i64| self.answered_at < at && head.millis.is_some_and(|own| at <= own);
            let by_time = || {
                let mut requests = requests.iter().rev();
                requests.find(|one| one.answer.is_none() && since(one.at))
            };
            by_number.or_else(by_time).map(|one| one.usage.clone())
        };
        own.or_else(newer).or_else(logged)
    }

    /// Ends the session. Returns true if there was a conversation.
    pub(super) fn finish(mut self) -> Result<bool, ImportError> {
        self.last_compactions()?;
        self.transcript.finish()
    }
}

fn record_head(nth: usize, fields: &Fields<'_>) -> TaskRecord {
    let made_from = fields.to_text();
    let millis: Option<i64> = fields.read("ts");
    // Without a time, two messages at the same index are distinguished by their content.
    let name = match millis {
        Some(millis) => format!("at-{millis}"),
        None => format!(
            "message-{nth}-{}",
            &hex::encode(Sha256::digest(&made_from))[..8]
        ),
    };
    TaskRecord {
        nth,
        millis,
        name,
        made_from,
    }
}

/// Returns the other fields of a record.
fn rest_of(fields: &Fields<'_>) -> Option<Json> {
    let taken = ["role", "content", "ts"];
    let rest: Vec<String> = fields
        .iter()
        .filter(|(key, _)| !taken.contains(key))
        .map(|(key, value)| format!("{}:{}", Json::string(key).as_str(), value.get()))
        .collect();
    match rest.is_empty() {
        true => None,
        false => Json::parse(&format!("{{{}}}", rest.join(","))).ok(),
    }
}

/// Returns the model that the state of an editor names.
fn model_in(content: &Content) -> Option<String> {
    let Content::Text(text) = content else {
        return None;
    };
    let state = text.text.trim_start();
    let state = state.strip_prefix("<environment_details>")?;
    let (_, rest) = state.split_once("<model>")?;
    let (model, _) = rest.split_once("</model>")?;
    (!model.is_empty() && model.len() <= 200).then(|| model.to_owned())
}
