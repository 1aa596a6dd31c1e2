//! OpenHands: logs of model calls, and the events of its SDK.
//!
//! A log is one document per call, `{messages, response, cost, …}`, and its messages extend those of the log before it:
//! the series of files is the session. The logs contain no session id, so the session is identified by its content.
//! Messages are compared by their content, since an answer has another form in the log of the next call. A model
//! without native tool calls gets them as text; `raw_messages` then has the agent's original messages.
//!
//! Events ([`events`]) are one session per file.

mod canonical;
mod condensed;
mod events;

use std::io::BufRead;
use std::path::Path;

use loopstore::model::{AgentMessage, Extra, Json, Message, Role, Time};
use serde_json::value::RawValue;

use self::canonical::{canonical, fingerprint};
use super::extension::extension;
use super::fields::{Fields, list, some};
use super::json_stream::{JsonStream, LineCounter};
use super::key_outline::KeyOutline;
use super::openai_chat::{head, message, run_extra};
use super::responses::{ResponseItem, answer, item};
use super::transcript::{Style, TranscriptBuilder};
use super::values::{
    add_cost, as_it_is, json, rest, stop_reason, time_of, token_usage, with_thinking,
};
use super::{Identity, ImportError, Importer, Sink, Source, holds_conversation, unread};

/// The beginning of a tool result that a model is shown as text.
const RESULT_AS_TEXT: &str = "EXECUTION RESULT of [";

/// Reads OpenHands' logs and events.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHands;

impl Importer for OpenHands {
    fn format(&self) -> &'static str {
        "openhands"
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let outline = KeyOutline::of(head);
        // A line that cannot be read must not hide the format of the others.
        let mut lines = head.split(|byte| *byte == b'\n').take(20);
        is_log(&outline)
            || is_event(&outline, "[].")
            || lines.any(|line| line.starts_with(b"{") && is_event(&KeyOutline::of(line), ""))
            || is_event(&outline, "")
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let any = match content_kind(source)? {
            ContentKind::Events => events::import(source, sink)?,
            ContentKind::Log => logs(source, sink)?,
        };
        holds_conversation(any)
    }
}

/// True if a document is the log of a model call.
fn is_log(outline: &KeyOutline) -> bool {
    let has = |key: &str| outline.has(key);
    let called = has("latency_sec") || has("kwargs") || has("raw_messages") || has("raw_response");
    let is_stated = has("messages") || has("input") && has("instructions");
    is_stated && called && !has("session_id") && !has("task_id")
}

/// True if the object at `at` is an event.
fn is_event(outline: &KeyOutline, at: &str) -> bool {
    let has = |key: &str| outline.has(&format!("{at}{key}"));
    has("kind")
        && has("source")
        && has("timestamp")
        && has("id")
        && !has("type")
        && !has("messages")
}

enum ContentKind {
    Log,
    Events,
}

fn content_kind(source: &mut Source<'_>) -> Result<ContentKind, ImportError> {
    let failed = unread(source.path);
    source.reader.rewind().map_err(failed)?;
    let outline = KeyOutline::of(BufRead::fill_buf(&mut *source.reader).map_err(failed)?);
    let is_log = ["messages", "input", "role", "[].messages", "[].role"]
        .iter()
        .any(|key| outline.has(key));
    Ok(if is_log {
        ContentKind::Log
    } else {
        ContentKind::Events
    })
}

/// Reads the logs of a file: one document, several, or bare messages.
fn logs(source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let mut any = false;
    let mut loose: Vec<(u64, Box<RawValue>)> = Vec::new();
    let mut pieces = JsonStream::new(source)?;
    while let Some(piece) = pieces.next()? {
        let fields = match &piece.text {
            Ok(text) => Fields::parse(text),
            Err(reason) => Err((*reason).to_owned()),
        };
        match (fields, &piece.text) {
            (Ok(fields), Ok(text))
                if ["messages", "input"]
                    .iter()
                    .any(|key| fields.get(key).is_some()) =>
            {
                any |= log(text, piece.line, sink)?;
            }
            (Ok(fields), Ok(text)) if fields.get("role").is_some() => {
                loose.extend(serde_json::from_str(text).ok().map(|raw| (piece.line, raw)));
            }
            (Ok(_), _) => sink.skip(Some(piece.line), "neither a log nor a message".into()),
            (Err(reason), _) => sink.skip(Some(piece.line), reason),
        }
    }
    if !loose.is_empty() {
        let messages: Vec<(u64, &RawValue)> =
            loose.iter().map(|(line, raw)| (*line, &**raw)).collect();
        any |= session(Extra::default(), &messages, None, sink)?;
    }
    Ok(any)
}

/// Reads one model call with all messages before it. Returns true if there were any.
fn log(text: &str, line: u64, sink: &mut dyn Sink) -> Result<bool, ImportError> {
    let mut fields = match Fields::parse(text) {
        Ok(fields) => fields,
        Err(reason) => {
            sink.skip(Some(line), reason);
            return Ok(false);
        }
    };
    // A call of the Responses API has items for messages.
    let shown = ["messages", "input"]
        .iter()
        .find_map(|key| list(fields.take(key)?));
    let is_stated = fields.get("raw_messages").and_then(list);
    let Some(messages) = is_stated
        .filter(|is_stated| !is_stated.is_empty())
        .or(shown)
    else {
        sink.skip(Some(line), "a log without a list of messages".into());
        return Ok(false);
    };
    let mut lines = LineCounter::new(text, line);
    let messages: Vec<(u64, &RawValue)> = messages
        .into_iter()
        .map(|raw| (lines.of(raw.get()), raw))
        .collect();
    let mut call = Fields::default();
    for key in CALL {
        if let Some(value) = fields.take(key) {
            call.set(key, value);
        }
    }
    fields.take("raw_messages");
    let (extra, bad) = run_extra(&fields);
    for reason in bad {
        sink.skip(Some(line), reason);
    }
    session(extra, &messages, Some(&call), sink)
}

/// The fields of a log that describe its own call alone.
const CALL: [&str; 7] = [
    "response",
    "raw_response",
    "cost",
    "timestamp",
    "latency_sec",
    "error",
    "usage_summary",
];

fn session(
    extra: Extra,
    messages: &[(u64, &RawValue)],
    call: Option<&Fields<'_>>,
    sink: &mut dyn Sink,
) -> Result<bool, ImportError> {
    let mut head = head("0".into(), extra)?;
    head.identity = Identity::Series(fingerprint(messages.iter().map(|(_, raw)| *raw)));
    let mut log = EventImport {
        nth: 0,
        transcript: TranscriptBuilder::new(sink, head, Style::Document),
    };
    for (line, raw) in messages {
        log.nth += 1;
        match log.read(raw) {
            Ok(message) => log.message(message, &canonical(raw))?,
            Err(reason) => {
                let reason = format!("message {}: {reason}", log.nth);
                log.transcript.skip(*line, reason);
            }
        }
    }
    if let Some(call) = call {
        log.response(call)?;
    }
    log.transcript.finish()
}

struct EventImport<'a> {
    nth: usize,
    transcript: TranscriptBuilder<'a>,
}

impl EventImport<'_> {
    fn read(&self, raw: &RawValue) -> Result<AgentMessage, String> {
        let record = json(raw)?;
        let fields = Fields::parse(raw.get())?;
        match fields.text("role").as_deref() {
            Some("system" | "developer" | "user" | "assistant" | "tool" | "function") => {
                let message = message::read(&record, self.nth)?;
                Ok(with_thinking(message, &fields))
            }
            Some(role) => Ok(extension(Some(role), record)),
            // The Responses API has items.
            None => Ok(match item(raw)? {
                ResponseItem::Prompt(message)
                | ResponseItem::Result(message)
                | ResponseItem::Extension(message) => message,
                ResponseItem::Output(content, source) => answer(content, vec![source]),
            }),
        }
    }

    fn message(&mut self, message: AgentMessage, raw: &str) -> Result<(), ImportError> {
        let bytes = raw.as_bytes();
        match is_result(&message) {
            true => self.transcript.observation(message, bytes),
            false => self.transcript.message(String::new, message, bytes),
        }
    }

    /// Reads the response of the call.
    fn response(&mut self, call: &Fields<'_>) -> Result<(), ImportError> {
        let mut response = call.object("response");
        let choice = response.get("choices").and_then(list);
        let choice = choice.and_then(|choices| Fields::parse(choices.first()?.get()).ok());
        let choice = choice.unwrap_or_default();
        self.nth += 1;
        let (mut message, raw) = match choice.get("message") {
            Some(raw) => match self.read(raw) {
                Ok(message) => (message, canonical(raw)),
                Err(reason) => {
                    self.transcript
                        .skip(None, format!("the response: {reason}"));
                    return Ok(());
                }
            },
            None => match items(&response) {
                Some(found) => found,
                None => return self.failed(call),
            },
        };
        let time = time_of(call, "timestamp").as_ref().and_then(Time::millis);
        if let Some(Message::Assistant(answer)) = message.message_mut() {
            answer.model = response.text("model");
            answer.usage = token_usage(response.object("usage"));
            add_cost(&mut answer.usage, call.get("cost"));
            answer.stop_reason = choice.text("finish_reason").map(stop_reason);
            answer.timestamp = time.map(Into::into);
        }
        response.retain(|key| !matches!(key, "choices" | "output" | "model" | "usage"));
        let mut noted = rest(&response);
        if let Some(latency) = call.get("latency_sec").and_then(|value| json(value).ok()) {
            noted.insert("latency_sec", latency);
        }
        let noted = super::values::object_of(&noted);
        message.extra_mut().insert("response", noted);
        self.message(message, &raw)
    }

    /// Keeps a call without an answer as an extension, unless nothing of it is left.
    fn failed(&mut self, call: &Fields<'_>) -> Result<(), ImportError> {
        let mut call_alone = rest(call);
        for key in ["timestamp", "latency_sec", "cost"] {
            call_alone.remove(key);
        }
        let is_stated = call_alone.iter().any(|(_, value)| !value.is_null());
        let record: Json = super::values::object_of(&rest(call));
        match is_stated {
            true => {
                let raw = record.as_str().to_owned();
                self.transcript
                    .extension(extension(Some("failed-call"), record), raw.as_bytes())
            }
            false => Ok(()),
        }
    }
}

/// Reads a response that is a list of items as one answer.
fn items(response: &Fields<'_>) -> Option<(AgentMessage, String)> {
    let output = some(response.get("output")).and_then(list)?;
    let (mut content, mut sources, mut raws) = (Vec::new(), Vec::new(), Vec::new());
    for raw in output {
        raws.push(canonical(raw));
        match item(raw) {
            Ok(ResponseItem::Output(blocks, source)) => {
                content.extend(blocks);
                sources.push(source);
            }
            _ => content.extend(as_it_is(raw)),
        }
    }
    (!raws.is_empty()).then(|| (answer(content, sources), raws.join("\n")))
}

/// True if a message of the user is the result of a tool.
fn is_result(message: &AgentMessage) -> bool {
    let of_user = message.message().filter(|_| message.role() == Role::User);
    let first = of_user.and_then(|message| message.texts().next());
    first.is_some_and(|text| text.trim_start().starts_with(RESULT_AS_TEXT))
}
