//! The messages of a session as rig's messages.

use loopstore::{AgentMessage, Author, Content, Message as Stored, ToolResultMessage};
use rig_core::message::{
    AssistantContent, AssistantMessage, CallId, DocumentSourceKind, Image, ImageMediaType, Message,
    MimeType, Opaque, Reasoning, StopReason, ToolCall, ToolFunction, ToolName, ToolResult,
    ToolResultContent, UserContent,
};
use serde_json::Value;

use crate::marks;
use crate::stored::{FIELD, RigField, decode_raw, kinds};

/// A message of rig, and the number of stored messages that it was made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RestoredMessage {
    pub(crate) message: Message,
    pub(crate) parts: usize,
}

/// Returns stored messages as messages of rig: messages from rig unchanged, and the others of the session
/// (a summary, or messages of another program) by their content. Extensions are left out.
pub(crate) fn restore_messages<'a>(
    messages: impl IntoIterator<Item = &'a AgentMessage>,
) -> Vec<RestoredMessage> {
    let mut made: Vec<RestoredMessage> = Vec::new();
    // The expected next part of the last message, or of a row of results.
    let mut open = Next::Nothing;
    for message in messages {
        let AgentMessage::Llm(llm) = message else {
            continue;
        };
        let kept: Option<RigField> = llm.extra.get(FIELD).and_then(|field| field.read().ok());
        let part = kept.as_ref().and_then(|kept| kept.part);
        let whole = kept
            .as_ref()
            .and_then(|kept| as_rig_gave_it(&llm.message, kept));
        let is_own = whole.is_some();
        let new = whole.unwrap_or_else(|| by_its_words(&llm.message, kept.as_ref()));
        let next = match (part, is_own) {
            (Some((at, count)), _) if at + 1 < count => Next::Part(at + 1, count),
            (None, false) if llm.message.role() == loopstore::Role::ToolResult => Next::Result,
            _ => Next::Nothing,
        };
        let goes_on = match open {
            Next::Part(at, count) => part == Some((at, count)),
            Next::Result => next == Next::Result,
            Next::Nothing => false,
        };
        open = next;
        match (made.last_mut(), new) {
            (
                Some(RestoredMessage {
                    message: Message::User { content },
                    parts,
                }),
                Message::User { content: more },
            ) if goes_on => {
                content.extend(more);
                *parts += 1;
            }
            (_, message) => made.push(RestoredMessage { message, parts: 1 }),
        }
    }
    made
}

#[derive(Clone, Copy, PartialEq)]
enum Next {
    Nothing,
    Part(usize, usize),
    Result,
}

/// Returns a message as it came from rig; `None` if its blocks have changed.
fn as_rig_gave_it(stored: &Stored, kept: &RigField) -> Option<Message> {
    if kinds(stored.content()) != kept.blocks {
        return None;
    }
    let mut item = item_of(kept)?;
    if !kept.item.is_string() {
        let blocks: Vec<Value> = stored.content().iter().map(held).collect();
        marks::fill(&mut item, &blocks)?;
    }
    let mut message: Message = serde_json::from_value(item).ok()?;
    decode_raw(&mut message, &kept.raw)?;
    Some(message)
}

fn item_of(kept: &RigField) -> Option<Value> {
    match &kept.item {
        Value::String(text) => serde_json::from_str(text).ok(),
        item => Some(item.clone()),
    }
}

/// Returns the part of rig's JSON that a block contains.
fn held(block: &Content) -> Value {
    let text = |text: &String| Value::String(text.clone());
    match block {
        Content::Text(block) => text(&block.text),
        Content::Thinking(block) => text(&block.thinking),
        Content::Image(block) => text(&block.data),
        Content::ToolCall(call) => call.arguments.read().unwrap_or_default(),
        Content::Sealed(sealed) => sealed.item.read().unwrap_or_default(),
        Content::Other(block) => {
            let mut block: Value = block.read().unwrap_or_default();
            block.get_mut("item").map(Value::take).unwrap_or_default()
        }
    }
}

/// Returns a message of rig by the content of a stored one, with rig's ids of its calls.
fn by_its_words(stored: &Stored, kept: Option<&RigField>) -> Message {
    let mut ids = Vec::new();
    if let Some(item) = kept.and_then(item_of) {
        call_ids(&item, &mut ids);
    }
    let id = |wire: &str| {
        let known = ids.iter().find(|id| id.wire() == wire);
        known.cloned().unwrap_or_else(|| CallId::from_wire(wire))
    };
    match stored {
        Stored::User(user) => {
            let is_system = kept.is_some() && user.author == Some(Author::Harness);
            let texts: Vec<&str> = stored.texts().collect();
            match is_system {
                true => Message::system(texts.join("\n")),
                false => Message::User {
                    content: user.content.iter().map(user_block).collect(),
                },
            }
        }
        Stored::Assistant(answer) => {
            let blocks = answer
                .content
                .iter()
                .map(|block| assistant_block(block, &id));
            let why = answer.error_message.clone().unwrap_or_default();
            let stop = match answer.stop_reason.as_deref() {
                Some("error") => Some(StopReason::Error(why)),
                Some("aborted") => Some(StopReason::Aborted(why)),
                Some("length") => Some(StopReason::Length),
                Some("toolUse") => Some(StopReason::ToolUse),
                Some("stop") => Some(StopReason::Stop),
                _ => None,
            };
            Message::Assistant(AssistantMessage::new(blocks.collect()).with_stop(stop))
        }
        Stored::ToolResult(result) => Message::User {
            content: match tool_name(&result.tool_name) {
                Some(name) => vec![UserContent::ToolResult(ToolResult {
                    call: id(&result.tool_call_id),
                    name,
                    content: result_blocks(result),
                    is_error: result.is_error,
                })],
                None => result.content.iter().map(user_block).collect(),
            },
        },
    }
}

/// Collects the ids of calls and of what answers them.
fn call_ids(item: &Value, ids: &mut Vec<CallId>) {
    let blocks = item.get("content").and_then(Value::as_array);
    for block in blocks.into_iter().flatten() {
        let id = block.get("call").or_else(|| block.get("id")).cloned();
        ids.extend(id.and_then(|id| serde_json::from_value(id).ok()));
    }
}

/// Returns the name of a tool; a result that another program appended may have none.
fn tool_name(name: &str) -> Option<ToolName> {
    ToolName::new(if name.is_empty() { "unknown" } else { name }).ok()
}

fn image(image: &loopstore::Image) -> Image {
    Image {
        data: DocumentSourceKind::base64(&image.data),
        media_type: ImageMediaType::from_mime_type(&image.mime_type),
        ..Image::default()
    }
}

fn user_block(block: &Content) -> UserContent {
    match block {
        Content::Text(text) => UserContent::text(&text.text),
        Content::Image(block) => UserContent::Image(image(block)),
        other => UserContent::text(words(other)),
    }
}

fn result_blocks(result: &ToolResultMessage) -> Vec<ToolResultContent> {
    let block = |block: &Content| match block {
        Content::Text(text) => ToolResultContent::text(&text.text),
        Content::Image(block) => ToolResultContent::Image(image(block)),
        other => ToolResultContent::text(words(other)),
    };
    result.content.iter().map(block).collect()
}

fn assistant_block(block: &Content, id: &impl Fn(&str) -> CallId) -> AssistantContent {
    match block {
        Content::Text(text) => AssistantContent::text(&text.text),
        Content::Thinking(thinking) => {
            AssistantContent::Reasoning(Reasoning::new(&thinking.thinking))
        }
        Content::ToolCall(call) => {
            let arguments = call.arguments.read().unwrap_or_default();
            match tool_name(&call.name) {
                Some(name) => {
                    let function = ToolFunction::new(name, arguments);
                    AssistantContent::ToolCall(ToolCall::new(id(&call.id), function))
                }
                None => AssistantContent::text(words(block)),
            }
        }
        Content::Image(block) => AssistantContent::Image(image(block)),
        // Only its provider can read it, and rig does not know the provider.
        Content::Sealed(_) | Content::Other(_) => AssistantContent::Opaque(Opaque {
            item: held(block),
            replay: false,
        }),
    }
}

/// Returns a block of another kind as a text.
fn words(block: &Content) -> String {
    match block {
        Content::Thinking(thinking) => thinking.thinking.clone(),
        Content::ToolCall(call) => format!("[call of {}]", call.name),
        Content::Sealed(sealed) => sealed.to_string(),
        Content::Other(block) => block.as_str().to_owned(),
        Content::Text(_) | Content::Image(_) => String::new(),
    }
}
