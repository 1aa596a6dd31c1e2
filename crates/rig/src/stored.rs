//! rig's messages in their stored form.
//!
//! A message is stored so that it is searched, counted, compacted and shown as any other: its texts, calls and
//! results are in the fields of loopstore's messages. The other fields of rig (origins, native items, citations, ids
//! of its own, media of other kinds) are in the extra field [`FIELD`], as rig writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use loopstore::{
    AgentMessage, AssistantMessage, Author, Content, Json, Message as Stored, ToolResultMessage,
    UserMessage,
};
use rig_core::message::{
    AssistantContent, DocumentSourceKind, Image, ImageMediaType, Message, MimeType, StopReason,
    ToolResult, ToolResultContent, UserContent,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::depth::{self, MAX_DEPTH};
use crate::error::Error;
use crate::marks::{self, BlockValue};

/// The extra field of a message with rig's own fields.
pub(crate) const FIELD: &str = "rigMessage";

/// The content of that field.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct RigField {
    /// The index of this part of rig's message, and the number of parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<(usize, usize)>,
    /// The kinds of the blocks of the message, a letter each.
    pub(crate) blocks: String,
    /// The message as rig writes it, with marks; as a text if it has such marks of its own.
    pub(crate) item: Value,
    /// The numbers of its media that are bytes, stored as base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) raw: Vec<usize>,
}

/// Returns the stored form of messages: one for each, and more for a user message with results of tools.
///
/// # Errors
/// [`Error::TooDeep`].
pub(crate) fn stored(messages: &[Message]) -> Result<Vec<AgentMessage>, Error> {
    let mut stored = Vec::with_capacity(messages.len());
    for message in messages {
        let depth = depth::of(message);
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep {
                depth,
                most: MAX_DEPTH,
            });
        }
        let parts = parts(message);
        let count = parts.len();
        for (at, part) in parts.into_iter().enumerate() {
            stored.push(stored_part(part, (count > 1).then_some((at, count)))?);
        }
    }
    Ok(stored)
}

/// Splits a user message so that each result of a tool is a message.
fn parts(message: &Message) -> Vec<Message> {
    let Message::User { content } = message else {
        return vec![message.clone()];
    };
    let mut parts: Vec<Vec<UserContent>> = Vec::new();
    for block in content {
        let is_result = matches!(block, UserContent::ToolResult(_));
        match parts.last_mut() {
            Some(last)
                if !is_result && !matches!(last.last(), Some(UserContent::ToolResult(_))) =>
            {
                last.push(block.clone());
            }
            _ => parts.push(vec![block.clone()]),
        }
    }
    if parts.is_empty() {
        parts.push(Vec::new());
    }
    parts
        .into_iter()
        .map(|content| Message::User { content })
        .collect()
}

fn stored_part(mut part: Message, place: Option<(usize, usize)>) -> Result<AgentMessage, Error> {
    let raw = encode_raw(&mut part);
    let mut shown = BlockBuilder::default();
    let message = shown.message(&part);
    let mut item = serde_json::to_value(&part).map_err(not_json)?;
    if marks::has_mark(&item) {
        item = Value::String(item.to_string());
    } else {
        marks::put(&mut item, &shown.held);
    }
    let kept = RigField {
        part: place,
        blocks: kinds(message.content()),
        item,
        raw,
    };
    let mut message = AgentMessage::from(message);
    message
        .extra_mut()
        .insert(FIELD, Json::of(&kept).map_err(not_json)?);
    Ok(message)
}

fn not_json(error: serde_json::Error) -> Error {
    loopstore::StoreError::Invalid(format!("a message cannot be written as JSON: {error}")).into()
}

/// Returns a letter for each block.
pub(crate) fn kinds(content: &[Content]) -> String {
    let letter = |block: &Content| match block {
        Content::Text(_) => 't',
        Content::Image(_) => 'i',
        Content::Thinking(_) => 'h',
        Content::ToolCall(_) => 'c',
        Content::Sealed(_) => 's',
        Content::Other(_) => 'o',
    };
    content.iter().map(letter).collect()
}

/// Writes media that are bytes as base64; returns their numbers.
fn encode_raw(message: &mut Message) -> Vec<usize> {
    let mut raw = Vec::new();
    for (at, data) in media(message).into_iter().enumerate() {
        if let DocumentSourceKind::Raw(bytes) = data {
            *data = DocumentSourceKind::Base64(BASE64.encode(bytes));
            raw.push(at);
        }
    }
    raw
}

/// Decodes media to bytes; `None` if they are not there or not base64.
pub(crate) fn decode_raw(message: &mut Message, raw: &[usize]) -> Option<()> {
    let mut media = media(message);
    for at in raw {
        let data = media.get_mut(*at)?;
        let DocumentSourceKind::Base64(text) = &**data else {
            return None;
        };
        **data = DocumentSourceKind::Raw(BASE64.decode(text).ok()?);
    }
    Some(())
}

/// Returns the data of the media of a message.
fn media(message: &mut Message) -> Vec<&mut DocumentSourceKind> {
    let mut media = Vec::new();
    match message {
        Message::System { .. } => {}
        Message::User { content } => {
            for block in content {
                match block {
                    UserContent::Text(_) => {}
                    UserContent::Image(image) => media.push(&mut image.data),
                    UserContent::Audio(audio) => media.push(&mut audio.data),
                    UserContent::Video(video) => media.push(&mut video.data),
                    UserContent::Document(document) => media.push(&mut document.data),
                    UserContent::ToolResult(result) => {
                        media.extend(result.content.iter_mut().filter_map(|item| match item {
                            ToolResultContent::Image(image) => Some(&mut image.data),
                            _ => None,
                        }));
                    }
                }
            }
        }
        Message::Assistant(turn) => {
            media.extend(turn.content.iter_mut().filter_map(|block| match block {
                AssistantContent::Image(image) => Some(&mut image.data),
                _ => None,
            }));
        }
    }
    media
}

/// The blocks of a message, and the part of rig's JSON that each contains.
#[derive(Default)]
struct BlockBuilder {
    content: Vec<Content>,
    held: Vec<BlockValue>,
}

impl BlockBuilder {
    fn message(&mut self, part: &Message) -> Stored {
        match part {
            Message::System { content } => {
                self.text(content);
                let author = Some(Author::Harness);
                Stored::User(UserMessage {
                    content: self.take(),
                    author,
                    ..UserMessage::default()
                })
            }
            Message::User { content } => match content.as_slice() {
                [UserContent::ToolResult(result)] => self.result(result),
                content => {
                    content.iter().for_each(|block| self.user(block));
                    Stored::User(UserMessage {
                        content: self.take(),
                        ..UserMessage::default()
                    })
                }
            },
            Message::Assistant(turn) => {
                turn.content.iter().for_each(|block| self.assistant(block));
                let (stop_reason, error_message) = stopped(turn.stop.as_ref());
                let origin = turn.origin.as_ref();
                let model = origin.map(|origin| {
                    origin
                        .response_model
                        .as_ref()
                        .unwrap_or(&origin.model)
                        .clone()
                });
                Stored::Assistant(AssistantMessage {
                    content: self.take(),
                    stop_reason,
                    error_message,
                    model,
                    provider: origin.map(|origin| origin.provider.clone()),
                    ..AssistantMessage::default()
                })
            }
        }
    }

    fn take(&mut self) -> Vec<Content> {
        std::mem::take(&mut self.content)
    }

    fn push(&mut self, block: Content, held: BlockValue) {
        self.content.push(block);
        self.held.push(held);
    }

    fn text(&mut self, text: &str) {
        self.push(Content::text(text), BlockValue::text(text));
    }

    /// Adds a line in place of content without a kind of block.
    fn line(&mut self, text: String) {
        self.push(Content::text(text), BlockValue::Nothing);
    }

    fn user(&mut self, block: &UserContent) {
        match block {
            UserContent::Text(text) => self.text(&text.text),
            UserContent::Image(image) => self.image(image),
            UserContent::Audio(audio) => {
                let kind = audio
                    .media_type
                    .as_ref()
                    .map_or("audio", MimeType::to_mime_type);
                self.media("audio", kind, &audio.data);
            }
            UserContent::Video(video) => {
                let kind = video
                    .media_type
                    .as_ref()
                    .map_or("video", MimeType::to_mime_type);
                self.media("video", kind, &video.data);
            }
            UserContent::Document(document) => {
                let kind = document.media_type.as_ref();
                self.media(
                    "document",
                    kind.map_or("document", MimeType::to_mime_type),
                    &document.data,
                );
            }
            // A result is a message of its own.
            UserContent::ToolResult(result) => self.results(&result.content),
        }
    }

    fn media(&mut self, what: &str, kind: &str, data: &DocumentSourceKind) {
        match data {
            DocumentSourceKind::String(text) if what == "document" => self.text(text),
            DocumentSourceKind::Url(from) | DocumentSourceKind::FileId(from) => {
                self.line(format!("[{what} {kind} {from}]"));
            }
            _ => self.line(format!("[{what} {kind}]")),
        }
    }

    fn image(&mut self, image: &Image) {
        let kind = image.media_type.as_ref().map(ImageMediaType::to_mime_type);
        match &image.data {
            DocumentSourceKind::Base64(data) => {
                let held = BlockValue::text(data);
                self.push(Content::image(data, kind.unwrap_or_default()), held);
            }
            data => self.media("image", kind.unwrap_or("image"), data),
        }
    }

    fn result(&mut self, result: &ToolResult) -> Stored {
        self.results(&result.content);
        Stored::ToolResult(ToolResultMessage {
            tool_call_id: result.call.wire().into_owned(),
            tool_name: result.name.as_str().to_owned(),
            content: self.take(),
            is_error: result.is_error,
            ..ToolResultMessage::default()
        })
    }

    fn results(&mut self, content: &[ToolResultContent]) {
        for item in content {
            match item {
                ToolResultContent::Text(text) => self.text(&text.text),
                ToolResultContent::Image(image) => self.image(image),
                ToolResultContent::Json { value } => {
                    let is_small = matches!(value, Value::Null | Value::Bool(_) | Value::Number(_));
                    let held = match is_small {
                        true => BlockValue::Nothing,
                        false => BlockValue::Written(value.clone()),
                    };
                    self.push(Content::text(value.to_string()), held);
                }
            }
        }
    }

    fn assistant(&mut self, block: &AssistantContent) {
        match block {
            AssistantContent::Text(text) => self.text(&text.text),
            AssistantContent::Reasoning(reasoning) => {
                let held = BlockValue::text(&reasoning.text);
                self.push(Content::thinking(&reasoning.text, None), held);
            }
            AssistantContent::ToolCall(call) => {
                let arguments = Json::from(call.function.arguments_value());
                let (id, name) = (call.id.wire(), call.function.name.as_str());
                let held = BlockValue::object(&call.function.arguments);
                self.push(Content::tool_call(id, name, arguments), held);
            }
            AssistantContent::Image(image) => self.image(image),
            AssistantContent::Opaque(opaque) => {
                let block = json!({"type": "providerItem", "form": "rig", "item": opaque.item});
                self.push(
                    Content::Other(Json::from(block)),
                    BlockValue::Value(opaque.item.clone()),
                );
            }
            // A block unknown to this version has no text to search.
            _ => self.line("[provider item]".to_owned()),
        }
    }
}

/// Returns the stop reason in loopstore's words, and the error.
fn stopped(stop: Option<&StopReason>) -> (Option<String>, Option<String>) {
    let (word, error) = match stop {
        Some(StopReason::Stop) => ("stop", None),
        Some(StopReason::Length) => ("length", None),
        Some(StopReason::ToolUse) => ("toolUse", None),
        Some(StopReason::Error(why)) => ("error", Some(why.clone())),
        Some(StopReason::Aborted(why)) => ("aborted", Some(why.clone())),
        _ => return (None, None),
    };
    (Some(word.to_owned()), error)
}
