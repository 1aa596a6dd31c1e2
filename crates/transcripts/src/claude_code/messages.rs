//! Translates records to messages.

use loopstore::model::{
    AgentMessage, AssistantMessage, Author, Content, Json, Message, Time, ToolResultMessage,
    UserMessage,
};
use loopstore::provider::context_management::read_report;
use loopstore_digest::activity::outcome::refusal_words;
use serde_json::value::RawValue;

use super::content::{ExtendedFields, content, contents, kept, list, read, stop_reason, usage};
use super::words::OWN_WORDS;
use crate::authors::{of_origin, set_author};

/// The key under which a message keeps the other fields of its record.
const SOURCE: &str = "source";

/// The content of a record of the user.
pub(super) struct UserRecord {
    /// One message per tool result.
    pub(super) results: Vec<AgentMessage>,
    /// The other content of the record.
    pub(super) text: Option<AgentMessage>,
}

/// Reads a record of the user; `tool_name` finds the tool of a call.
pub(super) fn user_record<'a>(
    record: ExtendedFields<'_>,
    tool_name: impl Fn(&str) -> Option<&'a str>,
) -> UserRecord {
    let timestamp = millis(&record);
    let (author, is_sidechain) = (author(&record), record.is_true("isSidechain"));
    let refusal = RefusalMark::of(&record);
    let (blocks, source) = open(record);
    let mut results = Vec::new();
    let mut texts = Vec::new();
    for block in blocks {
        let fields = ExtendedFields::of(block);
        if fields.text("type").as_deref() == Some("tool_result") {
            results.push(tool_result(fields, &tool_name, refusal));
        } else {
            texts.push(content(block));
        }
    }
    // Only the first message keeps all fields; the others refer to the record.
    let mut uuid = ExtendedFields::default();
    if let Some(name) = source.get("uuid") {
        uuid.push("uuid", name);
    }
    let mut source = Some(source);
    let mut next_source = || source.take().unwrap_or_else(|| uuid.clone());
    let with_rest = |(mut result, rest): (ToolResultMessage, ExtendedFields<'_>)| {
        result.timestamp = timestamp.map(Into::into);
        let mut own = next_source();
        if !rest.is_empty() {
            own.add("block", rest.to_json());
        }
        with_source(Message::ToolResult(result), own)
    };
    let results: Vec<AgentMessage> = results.into_iter().map(with_rest).collect();
    // A text next to a result is not by a person.
    let author = author.or((!results.is_empty()).then_some(Author::Harness));
    let text = (!texts.is_empty()).then(|| {
        let message = UserMessage {
            content: texts,
            timestamp: timestamp.map(Into::into),
            author,
        };
        let mut message = with_source(Message::User(message), next_source());
        set_author(&mut message, is_sidechain);
        message
    });
    UserRecord { results, text }
}

/// Returns the author that a record names, if any.
fn author(record: &ExtendedFields<'_>) -> Option<Author> {
    let queued = record.get("attachment").map(ExtendedFields::of);
    let of_queued = queued.filter(|_| record.get("message").is_none());
    let record = of_queued.as_ref().unwrap_or(record);
    let is_made = ["isMeta", "isCompactSummary", "isVisibleInTranscriptOnly"]
        .iter()
        .any(|key| record.is_true(key));
    let origin = record.get("origin").map(ExtendedFields::of);
    let origin = origin.and_then(|origin| origin.text("kind"));
    // A queued command records its origin.
    let mode = record.text("commandMode").filter(|mode| mode != "prompt");
    match (is_made, origin.or(mode)) {
        (true, _) => Some(Author::Harness),
        (false, Some(kind)) => Some(of_origin(&kind)).filter(|author| *author != Author::Human),
        (false, None) => None,
    }
}

fn with_source(message: Message, source: ExtendedFields<'_>) -> AgentMessage {
    let mut message = AgentMessage::from(message);
    if !source.is_empty() {
        message.extra_mut().insert(SOURCE, source.to_json());
    }
    message
}

/// Splits a record of the user into its blocks and its other fields.
fn open(mut record: ExtendedFields<'_>) -> (Vec<&RawValue>, ExtendedFields<'_>) {
    let queued = record.get("attachment").map(ExtendedFields::of);
    let mut content = None;
    if let Some(mut queued) = queued.filter(|_| record.get("message").is_none()) {
        content = queued.remove("prompt");
        record.remove("attachment");
        record.add("attachment", queued.to_json());
    } else if let Some(message) = record.remove("message") {
        record.remove("type");
        let mut body = ExtendedFields::of(message);
        content = if body.is_empty() {
            Some(message)
        } else {
            body.remove("content")
        };
        body.remove("role");
        if !body.is_empty() {
            record.add("message", body.to_json());
        }
    }
    let content = content.unwrap_or(RawValue::NULL);
    (list(content).unwrap_or_else(|| vec![content]), record)
}

fn tool_result<'a, 'b>(
    mut block: ExtendedFields<'b>,
    tool_name: impl Fn(&str) -> Option<&'a str>,
    refusal: RefusalMark,
) -> (ToolResultMessage, ExtendedFields<'b>) {
    let tool_call_id = block.text("tool_use_id").unwrap_or_default();
    let mut result = ToolResultMessage {
        tool_name: tool_name(&tool_call_id).unwrap_or_default().to_owned(),
        tool_call_id,
        content: contents(block.get("content")),
        is_error: block.is_true("is_error"),
        timestamp: None,
        ..ToolResultMessage::default()
    };
    if is_refusal(&result, refusal) {
        result.author = Some(Author::Human);
    }
    for key in ["type", "tool_use_id", "content", "is_error"] {
        block.remove(key);
    }
    (result, block)
}

/// The mark of a refused call next to its result.
#[derive(Clone, Copy)]
enum RefusalMark {
    /// The call was refused.
    Given,
    /// There is no mark, and the version writes the exit code before the output of a command.
    Absent,
    /// There is no mark, and the version writes the output of a command without an exit code.
    AbsentInOld,
}

impl RefusalMark {
    fn of(record: &ExtendedFields<'_>) -> Self {
        let version = record.text("version");
        match record.text("toolUseResult").as_deref() {
            Some("User rejected tool use") => Self::Given,
            _ if version.is_none_or(|version| version.starts_with(['0', '1'])) => Self::AbsentInOld,
            _ => Self::Absent,
        }
    }
}

/// True if a result is the text of a person who refused the call. The harness frames it with fixed words. A tool whose
/// output is passed on unchanged could produce the same words, so its results need the mark too.
fn is_refusal(result: &ToolResultMessage, mark: RefusalMark) -> bool {
    let tool = &*result.tool_name;
    let is_marked = match mark {
        RefusalMark::Given => true,
        RefusalMark::Absent => tool == "Bash" || OWN_WORDS.contains(&tool),
        RefusalMark::AbsentInOld => OWN_WORDS.contains(&tool),
    };
    is_marked
        && result.is_error
        && texts_of(&result.content).any(|text| refusal_words(text).is_some())
}

fn texts_of(content: &[Content]) -> impl Iterator<Item = &str> {
    content.iter().filter_map(|block| match block {
        Content::Text(text) => Some(text.text.as_str()),
        _ => None,
    })
}

/// Joins the records of one answer to a message.
pub(super) fn answer(records: Vec<ExtendedFields<'_>>) -> AgentMessage {
    let bodies: Vec<ExtendedFields<'_>> = records.iter().map(body).collect();
    let last = |key: &str| {
        bodies
            .iter()
            .rev()
            .filter_map(|body| body.get(key))
            .find(|value| value.get() != "null")
    };
    let failed = records
        .iter()
        .any(|record| record.is_true("isApiErrorMessage"));
    let found_usage = last("usage");
    let report = last("context_management").and_then(|report| read_report(&kept(report)));
    let mut message = AssistantMessage {
        content: bodies
            .iter()
            .flat_map(|body| contents(body.get("content")))
            .collect(),
        stop_reason: last("stop_reason").and_then(read).map(stop_reason),
        model: last("model").and_then(read),
        provider: Some("anthropic".into()),
        usage: found_usage.and_then(usage),
        timestamp: records.first().and_then(millis).map(Into::into),
        error_message: None,
        ..AssistantMessage::default()
    };
    if failed {
        message.stop_reason = Some("error".into());
        message.error_message = Some(text_of(&message.content));
        message.author = Some(Author::Harness);
    }
    let known = JoinedSoFar {
        usage: found_usage.map(kept),
        message: &message,
    };
    let mut sources: Vec<Json> = records
        .into_iter()
        .zip(bodies)
        .map(|(record, body)| known.rest(record, body))
        .collect();
    let source = match sources.len() {
        1 => sources.remove(0),
        _ => Json::of(&sources).unwrap_or_default(),
    };
    let mut message = AgentMessage::from(Message::Assistant(message));
    message.extra_mut().insert(SOURCE, source);
    if let Some(report) = report.filter(|report| !report.is_empty()) {
        // One that nests too deep is in the record alone.
        let _ = message.set_applied_edits(&report);
    }
    message
}

fn body<'a>(record: &ExtendedFields<'a>) -> ExtendedFields<'a> {
    record
        .get("message")
        .map(ExtendedFields::of)
        .unwrap_or_default()
}

fn text_of(content: &[Content]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|block| match block {
            Content::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

/// The fields that the joined message has so far.
struct JoinedSoFar<'a> {
    usage: Option<Json>,
    message: &'a AssistantMessage,
}

impl JoinedSoFar<'_> {
    /// Returns the other fields of a record.
    fn rest(&self, mut record: ExtendedFields<'_>, mut body: ExtendedFields<'_>) -> Json {
        record.remove("message");
        record.remove("type");
        for key in ["role", "content"] {
            body.remove(key);
        }
        if body
            .get("usage")
            .map(kept)
            .is_some_and(|own| own.is_null() || Some(own) == self.usage)
            && self.message.usage.is_some()
        {
            body.remove("usage");
        }
        if body.text("model") == self.message.model {
            body.remove("model");
        }
        let stop = body.text("stop_reason").map(stop_reason);
        if stop.is_none() || stop == self.message.stop_reason {
            body.remove("stop_reason");
        }
        if !body.is_empty() {
            record.add("message", body.to_json());
        }
        record.to_json()
    }
}

fn millis(record: &ExtendedFields<'_>) -> Option<i64> {
    record
        .text("timestamp")
        .and_then(|text| Time::from_text(text).millis())
}
