//! The events of OpenHands' SDK: one JSON object a line, or a list of them.
//!
//! A message of the user begins a loop. Actions of one response are one turn; an observation is the
//! result of its action. A condensation ([`condensed`](super::condensed)) is a compaction. Everything
//! else is a note.

use std::io::BufRead;

use serde_json::value::RawValue;

use super::super::fields::{Fields, list, some};
use super::super::lines::{Found, Lines};
use super::super::openai_chat::head;
use super::super::openai_chat::message::arguments;
use super::super::pieces::Pieces;
use super::super::thread::{Start, Thread};
use super::super::values::{
    as_it_is, data_image, json, moment, note, object, object_of, rest, text, with_source,
    with_thinking,
};
use super::super::{ImportError, Sink, Source};
use super::condensed::Told;
use crate::model::{
    AgentMessage, AssistantMessage, Content, Extra, Json, LoopStatus, Message, Time, ToolCall,
    ToolResultMessage, UserMessage,
};

/// Tells the events of a file, and returns whether there were any.
pub(super) fn import(source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let mut events = Events {
        thread: Thread::new(sink, head("0".into(), Extra::default())?),
        nth: 0,
        response: None,
        status: None,
        told: Told::default(),
    };
    let path = source.path;
    let failed = |source| ImportError::Read {
        path: path.to_owned(),
        source,
    };
    source.reader.rewind().map_err(failed)?;
    let start = BufRead::fill_buf(&mut *source.reader).map_err(failed)?;
    if start.trim_ascii_start().starts_with(b"[") {
        let mut pieces = Pieces::new(source)?;
        while let Some(piece) = pieces.next()? {
            match piece.text {
                Ok(text) => events.event(&text, piece.line)?,
                Err(reason) => events.thread.sink.skip(Some(piece.line), reason.into()),
            }
        }
    } else {
        let mut lines = Lines::new(&mut *source.reader).map_err(failed)?;
        while let Some((place, found)) = lines.next().map_err(failed)? {
            match found {
                Found::Value(text) => events.event(text, place.line)?,
                Found::Unreadable { reason, .. } => {
                    events.thread.sink.skip(Some(place.line), reason);
                }
            }
        }
    }
    events.end()
}

struct Events<'a> {
    thread: Thread<'a>,
    nth: u64,
    /// The response that the last action is of.
    response: Option<String>,
    /// The last state that was told.
    status: Option<String>,
    told: Told,
}

impl Events<'_> {
    fn event(&mut self, raw: &str, line: u64) -> Result<(), ImportError> {
        self.nth += 1;
        if let Err(reason) = self.take(raw)? {
            self.thread
                .sink
                .skip(Some(line), format!("event {}: {reason}", self.nth));
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
        let Some(kind) = text(&fields, "kind") else {
            return Ok(Err("its kind is missing or no text".into()));
        };
        let before = self.response.take();
        let id = text(&fields, "id");
        match kind.as_str() {
            "ActionEvent" => self.action(fields, raw, before)?,
            "MessageEvent" => self.message(fields, raw, record)?,
            "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent" => {
                let message = observation(&kind, fields);
                self.told.says(&message, raw.len());
                self.thread.result(message, raw.as_bytes())?;
                self.told.stands(id, self.thread.last_site()?);
            }
            "Condensation" => {
                self.told
                    .condensation(&fields, raw, record, &mut self.thread)?;
            }
            "SystemPromptEvent" => self.thread.note(system(fields), raw.as_bytes())?,
            kind => {
                if text(&fields, "key").as_deref() == Some("execution_status") {
                    self.status = text(&fields, "value");
                }
                self.thread.note(note(kind, record), raw.as_bytes())?;
            }
        }
        Ok(Ok(()))
    }

    /// Tells an action. One of the same response as the action before goes on with its answer, as a
    /// message of its own: what is in the file already never changes.
    fn action(
        &mut self,
        mut fields: Fields<'_>,
        raw: &str,
        before: Option<String>,
    ) -> Result<(), ImportError> {
        let (id, response) = (text(&fields, "id"), text(&fields, "llm_response_id"));
        let mut content: Vec<Content> = parts(fields.take("thought"));
        content.extend(call(&mut fields, self.nth));
        let message = AssistantMessage {
            content,
            timestamp: millis(&fields).map(Into::into),
            ..AssistantMessage::default()
        };
        let message = with_thinking(Message::Assistant(message).into(), &fields);
        fields.retain(|key| !matches!(key, "kind" | "timestamp"));
        let message = with_source(message, rest(&fields));
        let goes_on = response.is_some() && response == before;
        self.response = response;
        self.told.says(&message, raw.len());
        match goes_on {
            true => self.thread.more(message, raw.as_bytes())?,
            false => self.thread.answer(message, raw.as_bytes(), true)?,
        }
        self.told.stands(id, self.thread.last_site()?);
        Ok(())
    }

    fn message(
        &mut self,
        mut fields: Fields<'_>,
        raw: &str,
        record: Json,
    ) -> Result<(), ImportError> {
        let id = text(&fields, "id");
        let mut said = object(&fields, "llm_message");
        let at = moment(&fields, "timestamp");
        let millis = millis(&fields);
        let mut content = parts(said.take("content"));
        content.extend(parts(fields.take("extended_content")));
        let role = text(&said, "role").unwrap_or_default();
        if !matches!(role.as_str(), "user" | "assistant") {
            return self.thread.note(note("message", record), raw.as_bytes());
        }
        let is_prompt = text(&fields, "source").as_deref() == Some("user");
        fields.retain(|key| !matches!(key, "kind" | "timestamp" | "llm_message"));
        let mut source = rest(&fields);
        let besides = rest(&said);
        if besides
            .iter()
            .any(|(key, value)| key != "role" && !value.is_null())
        {
            source.insert("llm_message", object_of(&besides));
        }
        if role == "user" {
            let message = UserMessage {
                content,
                timestamp: millis.map(Into::into),
            };
            if is_prompt {
                self.thread.begin(Start {
                    at,
                    ..Start::default()
                })?;
            }
            let message = with_source(Message::User(message).into(), source);
            self.told.says(&message, raw.len());
            self.thread.prompt(message, raw.as_bytes())?;
            self.told.stands(id, self.thread.last_site()?);
            return Ok(());
        }
        let message = AssistantMessage {
            content,
            timestamp: millis.map(Into::into),
            ..AssistantMessage::default()
        };
        let message = with_thinking(Message::Assistant(message).into(), &said);
        let message = with_source(message, source);
        self.told.says(&message, raw.len());
        self.thread.answer(message, raw.as_bytes(), false)?;
        self.told.stands(id, self.thread.last_site()?);
        Ok(())
    }

    fn end(mut self) -> Result<bool, ImportError> {
        let ended = match self.status.as_deref() {
            Some("finished") => Some(LoopStatus::Completed),
            Some("error" | "stuck") => Some(LoopStatus::Aborted),
            _ => None,
        };
        self.thread.ended_as(ended);
        self.thread.end()
    }
}

fn millis(fields: &Fields<'_>) -> Option<i64> {
    moment(fields, "timestamp").as_ref().and_then(Time::millis)
}

/// Reads the call of an action.
fn call(fields: &mut Fields<'_>, nth: u64) -> Option<Content> {
    let call = object(fields, "tool_call");
    let id = text(&call, "id").or_else(|| text(fields, "tool_call_id"));
    let name = text(&call, "name").or_else(|| text(fields, "tool_name"))?;
    let (arguments, as_text) = match text(&call, "arguments") {
        Some(text) => (arguments(&text), Some(text)),
        None => {
            let given = some(call.get("arguments")).or_else(|| some(fields.get("action")));
            (
                given.and_then(|given| json(given).ok()).unwrap_or_default(),
                None,
            )
        }
    };
    let mut extra = Extra::default();
    if let Some(text) = as_text.filter(|text| arguments.as_str() != text) {
        extra.insert("argumentsText", Json::string(&text));
    }
    fields.retain(|key| !matches!(key, "tool_call" | "tool_call_id" | "tool_name"));
    Some(Content::ToolCall(ToolCall {
        id: id.unwrap_or_else(|| format!("call-{nth}")),
        name,
        arguments,
        extra,
    }))
}

fn observation(kind: &str, mut fields: Fields<'_>) -> AgentMessage {
    let mut seen = object(&fields, "observation");
    let mut content = parts(seen.take("content"));
    let told = match kind {
        "AgentErrorEvent" => text(&fields, "error"),
        "UserRejectObservation" => {
            let reason = text(&fields, "rejection_reason").or_else(|| text(&fields, "reason"));
            Some(format!("Action rejected: {}", reason.unwrap_or_default()))
        }
        _ => text(&seen, "output").filter(|_| content.is_empty()),
    };
    content.extend(told.map(Content::text));
    content.extend(parts(fields.take("extended_content")));
    let failed = seen
        .get("is_error")
        .is_some_and(|value| value.get() == "true");
    let result = ToolResultMessage {
        tool_call_id: text(&fields, "tool_call_id").unwrap_or_default(),
        tool_name: text(&fields, "tool_name").unwrap_or_default(),
        content,
        is_error: failed || kind != "ObservationEvent",
        timestamp: millis(&fields).map(Into::into),
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
    with_source(Message::ToolResult(result).into(), source)
}

fn system(mut fields: Fields<'_>) -> AgentMessage {
    let mut said = Vec::new();
    for key in ["system_prompt", "dynamic_context"] {
        said.extend(some(fields.take(key)).and_then(|part| json(part).ok()));
    }
    let mut data = Extra::default();
    data.insert("content", Json::of(&said).unwrap_or_default());
    fields.take("kind");
    with_source(
        AgentMessage::extension("system", object_of(&data)),
        rest(&fields),
    )
}

/// Reads parts of a message: texts, and images whose URLs hold them.
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
    if let Ok(said) = serde_json::from_str::<String>(raw.get()) {
        return [said]
            .into_iter()
            .filter(|said| !said.is_empty())
            .map(Content::text)
            .collect();
    }
    let fields = Fields::parse(raw.get()).unwrap_or_default();
    let urls: Option<Vec<String>> = super::super::values::read(&fields, "image_urls");
    let images: Option<Vec<Content>> = urls
        .filter(|urls| !urls.is_empty())
        .and_then(|urls| urls.iter().map(|url| data_image(url)).collect());
    if let Some(images) = images {
        return images;
    }
    match (text(&fields, "text"), fields.get("text")) {
        (Some(text), _) => vec![Content::text(text)],
        (None, Some(empty)) if empty.get() == "\"\"" => Vec::new(),
        _ => as_it_is(raw).into_iter().collect(),
    }
}
