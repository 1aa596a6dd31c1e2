//! The events of OpenHands' SDK: one JSON object per line, or a list of them.
//!
//! A message of the user begins a loop. Actions of one response are one turn; an observation is the
//! result of its action. A condensation ([`condensed`](super::condensed)) is a compaction. Everything
//! else is an extension.

use std::io::BufRead;

use loopstore::model::{
    AgentMessage, AssistantMessage, Author, Content, Extra, Json, LoopStatus, Message, Time,
    ToolResultMessage, UserMessage,
};
use serde_json::value::RawValue;

use super::super::authors::{mark_injected, of_origin};
use super::super::extension::{extension, system_prompt};
use super::super::fields::{Fields, list, some};
use super::super::json_stream::JsonStream;
use super::super::lines::{LinePart, ValueReader};
use super::super::openai_chat::head;
use super::super::transcript::{NewLoop, Style, TranscriptBuilder};
use super::super::values::{
    arguments, as_it_is, call, data_image, json, object_of, rest, time_of, with_extra_source,
    with_thinking,
};
use super::super::{ImportError, Sink, Source, unread};
use super::condensed::ShownEvents;

/// Reads the events of a file. Returns true if there were any.
pub(super) fn import(source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let mut events = Events {
        transcript: TranscriptBuilder::new(
            sink,
            head("0".into(), Extra::default())?,
            Style::Document,
        ),
        nth: 0,
        response: None,
        status: None,
        shown: ShownEvents::default(),
    };
    let failed = unread(source.path);
    source.reader.rewind().map_err(failed)?;
    let start = BufRead::fill_buf(&mut *source.reader).map_err(failed)?;
    if start.trim_ascii_start().starts_with(b"[") {
        let mut pieces = JsonStream::new(source)?;
        while let Some(piece) = pieces.next()? {
            match piece.text {
                Ok(text) => events.event(&text, piece.line)?,
                Err(reason) => events.transcript.skip(piece.line, reason),
            }
        }
    } else {
        let mut lines = ValueReader::new(&mut *source.reader).map_err(failed)?;
        while let Some((place, found)) = lines.next().map_err(failed)? {
            match found {
                LinePart::Value(text) => events.event(text, place.line)?,
                LinePart::Unreadable { reason, .. } => {
                    events.transcript.skip(place.line, reason);
                }
            }
        }
    }
    events.end()
}

struct Events<'a> {
    transcript: TranscriptBuilder<'a>,
    nth: u64,
    /// The response that contains the last action.
    response: Option<String>,
    /// The last state of the run.
    status: Option<String>,
    shown: ShownEvents,
}

impl Events<'_> {
    fn event(&mut self, raw: &str, line: u64) -> Result<(), ImportError> {
        self.nth += 1;
        if let Err(reason) = self.take(raw)? {
            self.transcript
                .skip(line, format!("event {}: {reason}", self.nth));
        }
        Ok(())
    }

    fn take(&mut self, raw: &str) -> Result<Result<(), String>, ImportError> {
        let record = match Json::parse(raw) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let fields = match Fields::parse(raw) {
            Ok(fields) => fields,
            Err(reason) => return Ok(Err(reason)),
        };
        let Some(kind) = fields.text("kind") else {
            return Ok(Err("its kind is missing or no text".into()));
        };
        let before = self.response.take();
        let id = fields.text("id");
        match kind.as_str() {
            "ActionEvent" => self.action(fields, raw, before)?,
            "MessageEvent" => self.message(fields, raw, record)?,
            "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent" => {
                let message = observation(&kind, fields);
                self.shown.hold_message(&message, raw.len());
                self.transcript
                    .result(String::new, message, raw.as_bytes())?;
                self.note_place(id);
            }
            "Condensation" => {
                self.shown
                    .condensation(&fields, raw, record, &mut self.transcript)?;
            }
            "SystemPromptEvent" => match system(fields) {
                Ok(prompt) => self.transcript.extension(prompt, raw.as_bytes())?,
                Err(reason) => return Ok(Err(reason)),
            },
            kind => {
                if fields.text("key").as_deref() == Some("execution_status") {
                    self.status = fields.text("value");
                }
                self.transcript
                    .extension(extension(Some(kind), record), raw.as_bytes())?;
            }
        }
        Ok(Ok(()))
    }

    /// Handles an action. An action of the same response as the one before continues the answer as a message of its
    /// own, since stored messages never change.
    fn action(
        &mut self,
        mut fields: Fields<'_>,
        raw: &str,
        before: Option<String>,
    ) -> Result<(), ImportError> {
        let (id, response) = (fields.text("id"), fields.text("llm_response_id"));
        let mut content: Vec<Content> = parts(fields.take("thought"));
        content.extend(tool_call(&mut fields, self.nth));
        let message = AssistantMessage {
            content,
            timestamp: millis(&fields).map(Into::into),
            ..AssistantMessage::default()
        };
        let message = with_thinking(Message::Assistant(message).into(), &fields);
        fields.retain(|key| !matches!(key, "kind" | "timestamp"));
        let message = with_extra_source(message, rest(&fields));
        let is_same_response = response.is_some() && response == before;
        self.response = response;
        self.shown.hold_message(&message, raw.len());
        match is_same_response {
            true => self.transcript.more_of_answer(message, raw.as_bytes())?,
            false => {
                let name = String::new;
                self.transcript.answer(name, message, raw.as_bytes())?;
            }
        }
        self.transcript.expect_more();
        self.note_place(id);
        Ok(())
    }

    fn message(
        &mut self,
        mut fields: Fields<'_>,
        raw: &str,
        record: Json,
    ) -> Result<(), ImportError> {
        let id = fields.text("id");
        let mut stated = fields.object("llm_message");
        let at = time_of(&fields, "timestamp");
        let millis = millis(&fields);
        let mut content = parts(stated.take("content"));
        let mut added = parts(fields.take("extended_content"));
        added.iter_mut().for_each(mark_injected);
        content.extend(added);
        let role = stated.text("role").unwrap_or_default();
        if !matches!(role.as_str(), "user" | "assistant") {
            return self
                .transcript
                .extension(extension(Some("message"), record), raw.as_bytes());
        }
        let origin = fields.text("source");
        let is_prompt = origin.as_deref() == Some("user");
        fields.retain(|key| !matches!(key, "kind" | "timestamp" | "llm_message"));
        let mut source = rest(&fields);
        let other_fields = rest(&stated);
        if other_fields
            .iter()
            .any(|(key, value)| key != "role" && !value.is_null())
        {
            source.insert("llm_message", object_of(&other_fields));
        }
        if role == "user" {
            let message = UserMessage {
                content,
                timestamp: millis.map(Into::into),
                author: origin.as_deref().filter(|_| !is_prompt).map(of_origin),
            };
            if is_prompt || self.transcript.here().is_none() {
                self.transcript.begin(NewLoop {
                    started: at.filter(|_| is_prompt),
                    ..self.transcript.next_loop("")
                })?;
            }
            let message = with_extra_source(Message::User(message).into(), source);
            self.shown.hold_message(&message, raw.len());
            self.transcript.input(message, raw.as_bytes(), true)?;
            self.note_place(id);
            return Ok(());
        }
        let message = AssistantMessage {
            content,
            timestamp: millis.map(Into::into),
            ..AssistantMessage::default()
        };
        let message = with_thinking(Message::Assistant(message).into(), &stated);
        let message = with_extra_source(message, source);
        self.shown.hold_message(&message, raw.len());
        self.transcript
            .answer(String::new, message, raw.as_bytes())?;
        self.note_place(id);
        Ok(())
    }

    fn end(mut self) -> Result<bool, ImportError> {
        let ended = match self.status.as_deref() {
            Some("finished") => Some(LoopStatus::Completed),
            Some("error" | "stuck") => Some(LoopStatus::Aborted),
            _ => None,
        };
        self.transcript.ended_as(ended);
        self.transcript.finish()
    }

    /// Records the position of the message of an event.
    fn note_place(&mut self, id: Option<String>) {
        if let Some(at) = self.transcript.last_turn() {
            self.shown.note_place(id, at);
        }
    }
}

fn millis(fields: &Fields<'_>) -> Option<i64> {
    time_of(fields, "timestamp").as_ref().and_then(Time::millis)
}

/// Reads the call of an action.
fn tool_call(fields: &mut Fields<'_>, nth: u64) -> Option<Content> {
    let of = fields.object("tool_call");
    let id = of.text("id").or_else(|| fields.text("tool_call_id"));
    let name = of.text("name").or_else(|| fields.text("tool_name"))?;
    let value = some(of.get("arguments")).or_else(|| some(fields.get("action")));
    let mut call = call(id.unwrap_or_else(|| format!("call-{nth}")), name);
    // Arguments that nest too deeply are left out.
    let _ = arguments(&mut call, value);
    fields.retain(|key| !matches!(key, "tool_call" | "tool_call_id" | "tool_name"));
    Some(Content::ToolCall(call))
}

fn observation(kind: &str, mut fields: Fields<'_>) -> AgentMessage {
    let mut seen = fields.object("observation");
    let mut content = parts(seen.take("content"));
    let text_of = match kind {
        "AgentErrorEvent" => fields.text("error"),
        "UserRejectObservation" => {
            let reason = fields
                .text("rejection_reason")
                .or_else(|| fields.text("reason"));
            Some(format!("Action rejected: {}", reason.unwrap_or_default()))
        }
        _ => seen.text("output").filter(|_| content.is_empty()),
    };
    content.extend(text_of.map(Content::text));
    let mut added = parts(fields.take("extended_content"));
    added.iter_mut().for_each(mark_injected);
    content.extend(added);
    let failed = seen
        .get("is_error")
        .is_some_and(|value| value.get() == "true");
    let by_hook = fields
        .text("rejection_source")
        .is_some_and(|source| source != "user");
    let result = ToolResultMessage {
        tool_call_id: fields.text("tool_call_id").unwrap_or_default(),
        tool_name: fields.text("tool_name").unwrap_or_default(),
        content,
        is_error: failed || kind != "ObservationEvent",
        timestamp: millis(&fields).map(Into::into),
        // A person gave a reason for refusing the action; a hook may refuse one too.
        author: (kind == "UserRejectObservation" && !by_hook).then_some(Author::Human),
    };
    fields.retain(|key| {
        let own = matches!(
            key,
            "tool_call_id" | "tool_name" | "timestamp" | "observation"
        );
        let known_kind = key == "kind" && kind == "ObservationEvent";
        !(own || known_kind)
    });
    let mut source = rest(&fields);
    if !seen.is_empty() {
        source.insert("observation", object_of(&rest(&seen)));
    }
    with_extra_source(Message::ToolResult(result).into(), source)
}

fn system(mut fields: Fields<'_>) -> Result<AgentMessage, String> {
    let mut stated = Vec::new();
    for key in ["system_prompt", "dynamic_context"] {
        stated.extend(some(fields.take(key)).and_then(|part| json(part).ok()));
    }
    fields.take("kind");
    let prompt = system_prompt(&Json::of(&stated).unwrap_or_default())?;
    Ok(with_extra_source(prompt, rest(&fields)))
}

/// Reads parts of a message: texts, and images whose URLs contain them.
fn parts(value: Option<&RawValue>) -> Vec<Content> {
    let Some(value) = some(value) else {
        return Vec::new();
    };
    match list(value) {
        Some(parts) => parts.into_iter().flat_map(part).collect(),
        None => part(value),
    }
}

fn part(raw: &RawValue) -> Vec<Content> {
    if let Ok(stated) = serde_json::from_str::<String>(raw.get()) {
        return [stated]
            .into_iter()
            .filter(|stated| !stated.is_empty())
            .map(Content::text)
            .collect();
    }
    let fields = Fields::parse(raw.get()).unwrap_or_default();
    let urls: Option<Vec<String>> = fields.read("image_urls");
    let images: Option<Vec<Content>> = urls
        .filter(|urls| !urls.is_empty())
        .and_then(|urls| urls.iter().map(|url| data_image(url)).collect());
    if let Some(images) = images {
        return images;
    }
    match (fields.text("text"), fields.get("text")) {
        (Some(text), _) => vec![Content::text(text)],
        (None, Some(empty)) if empty.get() == "\"\"" => Vec::new(),
        _ => as_it_is(raw).into_iter().collect(),
    }
}
