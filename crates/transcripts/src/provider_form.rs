//! Conversations in the form of a provider's API: `anthropic` (messages whose blocks are calls and results) and
//! `responses` (items): a request, a list, or one message or item per line.
//!
//! Records are read one at a time with [`provider::read`](loopstore::provider::read), so that only a rejected record is
//! left out, with the reason. A user message begins a loop; consecutive output items of Responses are one answer.

use std::path::Path;

use loopstore::model::{AgentMessage, Extra, LoopStatus, Role};
use loopstore::provider::{Form, read_str};
use loopstore_model::received::name_calls;
use serde_json::value::RawValue;

use super::fields::{Fields, list};
use super::json_stream::{JsonStream, LineCounter, LooseItems, StreamItem};
use super::key_outline::KeyOutline;
use super::openai_chat::{head, is_others, run_extra};
use super::signs::is_task;
use super::transcript::{Style, TranscriptBuilder};
use super::{ImportError, Importer, MAX_RECORD_BYTES, Sink, Source, holds_conversation};

/// Reads conversations in the form of a provider's requests.
#[derive(Clone, Copy, Debug)]
pub struct ProviderForm(Form);

impl ProviderForm {
    /// Messages of Anthropic's API.
    pub const ANTHROPIC: Self = Self(Form::Anthropic);
    /// Items of OpenAI's Responses API.
    pub const RESPONSES: Self = Self(Form::OpenAiResponses);

    /// Returns the names of the two fields of a request: the instructions before the conversation, and the
    /// conversation.
    fn keys(self) -> (&'static str, &'static str) {
        match self.0 {
            Form::OpenAiResponses => ("instructions", "input"),
            _ => ("system", "messages"),
        }
    }
}

impl Importer for ProviderForm {
    fn format(&self) -> &'static str {
        self.0.as_str()
    }

    fn detect(&self, path: &Path, head: &[u8]) -> bool {
        if is_task(path, head) {
            return false;
        }
        match self.0 {
            Form::Anthropic => is_anthropic(head),
            Form::OpenAiResponses => is_responses(head),
            _ => false,
        }
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let mut reader = FormReader {
            form: *self,
            sink,
            loose: LooseItems::new(),
            nth: 0,
            any: false,
        };
        let mut pieces = JsonStream::new(source)?;
        while let Some(piece) = pieces.next()? {
            reader.piece(piece)?;
        }
        let ended = reader.loose.take();
        reader.loose_session(ended)?;
        holds_conversation(reader.any)
    }
}

/// True if a file begins like a chat and contains blocks that only Anthropic has.
fn is_anthropic(head: &[u8]) -> bool {
    const BLOCKS: [&str; 4] = [
        "redacted_thinking",
        "server_tool_use",
        "tool_result",
        "tool_use",
    ];
    let outline = KeyOutline::of(head);
    let holds_messages = ["", "[]."].iter().any(|at| {
        let has = |key: &str| outline.has(&format!("{at}{key}"));
        let is_chat = has("messages[].role") || has("role") && has("content");
        is_chat && !has("traj") && !is_others(&outline, at)
    });
    let is_request = outline.has("system") && outline.has("messages[].role");
    let is_chat = has_field(head, "role", &["tool", "function"]) || names(head, "tool_calls");
    // The compactions of OpenAI are opaque.
    let is_compacted =
        has_field(head, "type", &["compaction"]) && !names(head, "encrypted_content");
    holds_messages && !is_chat && (is_request || is_compacted || has_field(head, "type", &BLOCKS))
}

/// True if a file begins with items of Responses.
fn is_responses(head: &[u8]) -> bool {
    const ITEMS: [&str; 8] = [
        "custom_tool_call",
        "function_call",
        "function_call_output",
        "input_image",
        "input_text",
        "output_text",
        "reasoning",
        "web_search_call",
    ];
    let outline = KeyOutline::of(head);
    let has = |key: &str| outline.has(key);
    if has("messages")
        || has("[].messages")
        || is_others(&outline, "")
        || is_others(&outline, "[].")
    {
        return false;
    }
    let is_item = |at: &str| {
        let has = |key: &str| has(&format!("{at}{key}"));
        has("role") && has("content")
            || has("type") && (has("call_id") || has("summary") || has("encrypted_content"))
    };
    let is_list = is_item("") || is_item("[].");
    is_item("input[].") || is_list && has_field(head, "type", &ITEMS)
}

/// True if the JSON text contains a field of this name at any depth.
fn names(head: &[u8], key: &str) -> bool {
    !fields_named(&String::from_utf8_lossy(head), key).is_empty()
}

/// True if the JSON text contains a field of this name with one of these values.
fn has_field(head: &[u8], key: &str, values: &[&str]) -> bool {
    let text = String::from_utf8_lossy(head);
    let is_one = |rest: &&str| {
        let value = rest.trim_start().strip_prefix('"');
        let value = value.and_then(|rest| rest.split_once('"'));
        value.is_some_and(|(value, _)| values.contains(&value))
    };
    fields_named(&text, key).iter().any(is_one)
}

/// Returns the texts that follow each field of this name. Within a string the quotes would be escaped.
fn fields_named<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let quoted = format!("\"{key}\"");
    let found = text.match_indices(&quoted);
    let after = found.filter_map(|(at, _)| {
        let rest = text[at + quoted.len()..].trim_start();
        rest.strip_prefix(':')
    });
    after.collect()
}

/// A record as it is in the file, with its line.
type FormRecord = (u64, String);

struct FormReader<'a> {
    form: ProviderForm,
    sink: &'a mut dyn Sink,
    /// Records without a request around them.
    loose: LooseItems<FormRecord>,
    nth: u64,
    any: bool,
}

impl FormReader<'_> {
    fn piece(&mut self, piece: StreamItem) -> Result<(), ImportError> {
        let line = piece.line;
        let text = match piece.text {
            Ok(text) => text,
            Err(reason) => return self.skip(line, reason.to_owned()),
        };
        let (before, messages) = self.form.keys();
        let mut lines = LineCounter::new(&text, line);
        let mut record = |raw: &RawValue| (lines.of(raw.get()), raw.get().to_owned());
        if text.starts_with('[') {
            return match serde_json::from_str::<Vec<&RawValue>>(&text) {
                Ok(raw) => {
                    let records = raw.into_iter().map(record).collect();
                    self.session(Extra::default(), records)
                }
                Err(error) => self.skip(line, error.to_string()),
            };
        }
        let mut fields = match Fields::parse(&text) {
            Ok(fields) => fields,
            Err(reason) => return self.skip(line, reason),
        };
        let Some(conversation) = fields.take(messages) else {
            let ended = self.loose.add(piece.list, (line, text.clone()));
            return self.loose_session(ended);
        };
        let mut records = Vec::new();
        if let Some(raw) = fields.take(before) {
            let instructions = format!(r#"{{"{before}":{},"{messages}":[]}}"#, raw.get());
            records.push((record(raw).0, instructions));
        }
        match list(conversation) {
            Some(raw) => records.extend(raw.into_iter().map(record)),
            None => {
                let request = format!(r#"{{"{messages}":{}}}"#, conversation.get());
                records.push((line, request));
            }
        }
        let (extra, bad) = run_extra(&fields);
        for reason in bad {
            self.skip(line, reason)?;
        }
        let ended = self.loose.take();
        self.loose_session(ended)?;
        self.session(extra, records)
    }

    fn skip(&mut self, line: u64, reason: String) -> Result<(), ImportError> {
        self.sink.skip(Some(line), reason);
        Ok(())
    }

    fn loose_session(&mut self, records: Option<Vec<FormRecord>>) -> Result<(), ImportError> {
        match records {
            Some(records) => self.session(Extra::default(), records),
            None => Ok(()),
        }
    }

    fn session(&mut self, extra: Extra, records: Vec<FormRecord>) -> Result<(), ImportError> {
        let key = self.nth.to_string();
        self.nth += 1;
        let head = head(key, extra)?;
        let mut conversation = LooseConversation {
            form: self.form.0,
            transcript: TranscriptBuilder::new(&mut *self.sink, head, Style::Document),
            output: Vec::new(),
            taken: 0,
        };
        for (nth, (line, text)) in records.into_iter().enumerate() {
            if let Err(reason) = conversation.record(&text)? {
                let reason = format!("message {}: {reason}", nth + 1);
                conversation.transcript.skip(line, reason);
            }
        }
        self.any |= conversation.end()?;
        Ok(())
    }
}

struct LooseConversation<'a> {
    form: Form,
    transcript: TranscriptBuilder<'a>,
    /// The items of the current answer.
    output: Vec<String>,
    /// The number of messages so far.
    taken: u64,
}

impl LooseConversation<'_> {
    fn record(&mut self, text: &str) -> Result<Result<(), String>, ImportError> {
        if text.len() > MAX_RECORD_BYTES {
            return Ok(Err("longer than 64 MiB".into()));
        }
        let messages = match read_str(self.form, text) {
            Ok(messages) => messages,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if self.is_output(text, &messages) {
            self.output.push(text.to_owned());
            return Ok(Ok(()));
        }
        self.end_output()?;
        self.take(messages, text)?;
        Ok(Ok(()))
    }

    /// True if a record is an item of an answer.
    fn is_output(&self, text: &str, messages: &[AgentMessage]) -> bool {
        let fields = Fields::parse(text).unwrap_or_default();
        let is_item = fields.get("type").is_some() || fields.get("role").is_some();
        let is_answer = |message: &AgentMessage| message.role() == Role::Assistant;
        self.form == Form::OpenAiResponses && is_item && messages.iter().all(is_answer)
    }

    fn end_output(&mut self) -> Result<(), ImportError> {
        if self.output.is_empty() {
            return Ok(());
        }
        let text = format!("[{}]", std::mem::take(&mut self.output).join(","));
        // Each item was read alone before.
        let messages = read_str(self.form, &text).unwrap_or_default();
        self.take(messages, &text)
    }

    fn take(&mut self, messages: Vec<AgentMessage>, text: &str) -> Result<(), ImportError> {
        for mut message in messages {
            if message.role() == Role::User {
                // A recorded conversation has ended.
                self.transcript.ended_as(Some(LoopStatus::Completed));
            }
            name_calls(&mut message, &format!("call-{}", self.taken));
            self.taken += 1;
            self.transcript
                .message(String::new, message, text.as_bytes())?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<bool, ImportError> {
        self.end_output()?;
        if !self.transcript.is_unfinished() {
            self.transcript.ended_as(Some(LoopStatus::Completed));
        }
        self.transcript.finish()
    }
}
