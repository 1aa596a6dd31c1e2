//! Chat completions.

use serde::Serialize;

use super::blocks::{arguments_text, data_url, images_of};
use super::pairs::IndexedMessage;
use super::system::{SystemMessage, SystemText};
use super::{Mending, MendingKind};
use crate::reasoning;
use crate::returned::ReturnedFields;
use loopstore_model::{self as model, Content, Image, ToolCall, ToolResultMessage};

/// A message of the request.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum ChatMessage {
    System {
        content: ChatContent,
    },
    Developer {
        content: ChatContent,
    },
    User {
        content: ChatContent,
    },
    Assistant {
        content: Option<ChatContent>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ChatToolCall>,
        #[serde(flatten)]
        back: ReturnedFields,
    },
    Tool {
        tool_call_id: String,
        content: ChatContent,
    },
}

/// The content of a message: a plain text, or a list of parts.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ChatContent {
    Text(String),
    List(Vec<ChatPart>),
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatPart {
    Text { text: String },
    ImageUrl { image_url: Url },
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Url {
    url: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ChatToolCall {
    id: String,
    r#type: &'static str,
    function: Function,
    #[serde(flatten)]
    back: ReturnedFields,
}

#[derive(Clone, Debug, Serialize)]
struct Function {
    name: String,
    arguments: String,
}

/// Writes the messages.
pub(super) fn write(
    system: &[SystemMessage],
    messages: &[IndexedMessage],
    mended: &mut Vec<Mending>,
) -> Vec<ChatMessage> {
    let mut out = Vec::with_capacity(system.len() + messages.len());
    out.extend(system.iter().map(system_message));
    let mut writer = ChatWriter {
        mended,
        out,
        images: Vec::new(),
        waiting: 0,
    };
    for placed in messages {
        writer.add(placed);
    }
    // Nothing may come between a call and its result.
    if writer.waiting == 0 {
        writer.flush_images();
    }
    writer.out
}

struct ChatWriter<'a> {
    mended: &'a mut Vec<Mending>,
    out: Vec<ChatMessage>,
    /// The images of tool results, which only a user message may have.
    images: Vec<ChatPart>,
    /// The number of calls without a result so far.
    waiting: usize,
}

impl ChatWriter<'_> {
    fn add(&mut self, placed: &IndexedMessage) {
        let at = placed.at;
        if let model::Message::ToolResult(result) = &placed.message {
            return self.result(at, result);
        }
        self.flush_images();
        let is_user = matches!(placed.message, model::Message::User(_));
        let (mut parts, mut calls) = (Vec::new(), Vec::new());
        for block in placed.message.content() {
            match block {
                Content::ToolCall(call) if !is_user => calls.push(call_of(call)),
                Content::Thinking(_) if !is_user && reasoning::is_returned(block) => {}
                Content::Image(image) if is_user => self.image(at, image, &mut parts),
                _ => self.block(at, block, &mut parts),
            }
        }
        if parts.is_empty() && calls.is_empty() {
            self.mended.push(Mending::of(MendingKind::EmptyDropped, at));
        } else if is_user {
            let content = parts_of(parts);
            self.out.push(ChatMessage::User { content });
        } else {
            self.waiting += calls.len();
            let content = (!parts.is_empty()).then(|| parts_of(parts));
            self.out.push(ChatMessage::Assistant {
                content,
                tool_calls: calls,
                back: fields_of(placed),
            });
        }
    }

    fn result(&mut self, at: usize, result: &ToolResultMessage) {
        self.waiting = self.waiting.saturating_sub(1);
        let (mut parts, mut images) = (Vec::new(), Vec::new());
        for block in &result.content {
            match block {
                Content::Image(image) => self.image(at, image, &mut images),
                _ => self.block(at, block, &mut parts),
            }
        }
        if !images.is_empty() {
            let kind = MendingKind::ImageMoved;
            self.mended
                .push(Mending::of_call(kind, at, &result.tool_call_id));
            let text = images_of(&result.tool_call_id);
            self.images.push(ChatPart::Text { text });
            self.images.append(&mut images);
        }
        self.out.push(ChatMessage::Tool {
            tool_call_id: result.tool_call_id.clone(),
            content: parts_of(parts),
        });
    }

    /// Adds a text; any other block is left out and reported.
    fn block(&mut self, at: usize, block: &Content, parts: &mut Vec<ChatPart>) {
        match block {
            Content::Text(text) if text.text.is_empty() => {}
            Content::Text(text) => parts.push(ChatPart::Text {
                text: text.text.clone(),
            }),
            _ => self.mended.push(Mending::left_out(block, at)),
        }
    }

    fn image(&mut self, at: usize, image: &Image, parts: &mut Vec<ChatPart>) {
        match data_url(image) {
            Some(url) => parts.push(ChatPart::ImageUrl {
                image_url: Url { url },
            }),
            None => self.mended.push(Mending::of(MendingKind::BlockDropped, at)),
        }
    }

    fn flush_images(&mut self) {
        if !self.images.is_empty() {
            let content = ChatContent::List(std::mem::take(&mut self.images));
            self.out.push(ChatMessage::User { content });
        }
    }
}

/// Returns the fields of an answer that its server requires back.
fn fields_of(placed: &IndexedMessage) -> ReturnedFields {
    let [content, text] = reasoning::TEXTS;
    let keys = [
        content,
        text,
        reasoning::DETAILS,
        "thinking_blocks",
        "extra_content",
    ];
    let mut back = ReturnedFields::of_source(placed.source.as_ref(), &keys);
    reasoning::returned(placed.message.content(), &mut back);
    back
}

fn system_message(system: &SystemMessage) -> ChatMessage {
    let text = |text: &SystemText| ChatPart::Text {
        text: text.text.clone(),
    };
    let content = parts_of(system.texts.iter().map(text).collect());
    match system.is_developer {
        true => ChatMessage::Developer { content },
        false => ChatMessage::System { content },
    }
}

fn parts_of(mut parts: Vec<ChatPart>) -> ChatContent {
    match (parts.len(), parts.pop()) {
        (_, None) => ChatContent::Text(String::new()),
        (1, Some(ChatPart::Text { text })) => ChatContent::Text(text),
        (_, Some(last)) => {
            parts.push(last);
            ChatContent::List(parts)
        }
    }
}

fn call_of(call: &ToolCall) -> ChatToolCall {
    ChatToolCall {
        id: call.id.clone(),
        r#type: "function",
        function: Function {
            name: call.name.clone(),
            arguments: arguments_text(call),
        },
        // Some servers of this form sign a call in this field, and reject it without its signature.
        back: ReturnedFields::of(&call.extra, &["extra_content"]),
    }
}
