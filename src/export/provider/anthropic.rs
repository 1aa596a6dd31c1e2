//! Anthropic's messages.

use serde::Serialize;

use super::pairs::Placed;
use super::{Mending, MendingKind};
use crate::model::{self, Content, Image, Json, ToolCall};

/// What the user is made to say before an answer that would come first.
const OPENING: &str = "[what came before is not included]";

/// A message of the request.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Message {
    role: Role,
    content: Vec<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    Image {
        source: Source,
    },
    Thinking {
        thinking: String,
        signature: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Json,
    },
    ToolResult {
        tool_use_id: String,
        content: Vec<Block>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// Thinking that only the provider can read, exactly as it came.
    #[serde(untagged)]
    Sealed(Json),
}

#[derive(Clone, Debug, Serialize)]
struct Source {
    r#type: &'static str,
    media_type: String,
    data: String,
}

/// Writes the messages.
pub(super) fn write(messages: &[Placed], mended: &mut Vec<Mending>) -> Vec<Message> {
    let mut writer = Writer {
        mended,
        out: Vec::new(),
        last: None,
    };
    for placed in messages {
        writer.add(placed);
    }
    writer.out
}

/// What the last message was made from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Prompt,
    Answer,
    Result,
}

struct Writer<'a> {
    mended: &'a mut Vec<Mending>,
    out: Vec<Message>,
    last: Option<From>,
}

impl Writer<'_> {
    fn add(&mut self, placed: &Placed) {
        let at = placed.at;
        let blocks = self.blocks(at, &placed.message);
        let (from, role, content) = match &placed.message {
            model::Message::User(_) => (From::Prompt, Role::User, blocks),
            model::Message::Assistant(_) => (From::Answer, Role::Assistant, blocks),
            model::Message::ToolResult(result) => {
                let block = Block::ToolResult {
                    tool_use_id: result.tool_call_id.clone(),
                    content: blocks,
                    is_error: result.is_error,
                };
                (From::Result, Role::User, vec![block])
            }
        };
        if content.is_empty() {
            self.mended.push(Mending::of(MendingKind::EmptyDropped, at));
            return;
        }
        if self.out.is_empty() && role == Role::Assistant {
            self.open(at);
        }
        self.push(at, from, role, content);
    }

    fn push(&mut self, at: usize, from: From, role: Role, mut content: Vec<Block>) {
        let before = self.last.replace(from);
        match self.out.last_mut().filter(|last| last.role == role) {
            Some(last) => {
                last.content.append(&mut content);
                // Results and the prompt after them are one message by the provider's own rules.
                if before == Some(from) && from != From::Result {
                    self.mended.push(Mending::of(MendingKind::Merged, at));
                }
            }
            None => self.out.push(Message { role, content }),
        }
    }

    fn open(&mut self, at: usize) {
        self.mended.push(Mending::of(MendingKind::UserAdded, at));
        let text = OPENING.to_owned();
        self.out.push(Message {
            role: Role::User,
            content: vec![Block::Text { text }],
        });
    }

    fn blocks(&mut self, at: usize, message: &model::Message) -> Vec<Block> {
        let is_answer = matches!(message, model::Message::Assistant(_));
        let mut blocks = Vec::new();
        for block in message.content() {
            // A text of nothing but white space is refused.
            if matches!(block, Content::Text(text) if text.text.trim().is_empty()) {
                continue;
            }
            match block_of(block, is_answer) {
                Ok(block) => blocks.push(block),
                Err(kind) => self.mended.push(Mending::of(kind, at)),
            }
        }
        blocks
    }
}

/// Returns the block, or how it is reported that there is none.
fn block_of(block: &Content, is_answer: bool) -> Result<Block, MendingKind> {
    match block {
        Content::Text(text) => Ok(Block::Text {
            text: text.text.clone(),
        }),
        Content::Image(image) if !is_answer && !image.data.is_empty() => Ok(image_of(image)),
        Content::Thinking(thinking) => match &thinking.signature {
            Some(signature) if is_answer && !signature.is_empty() => Ok(Block::Thinking {
                thinking: thinking.thinking.clone(),
                signature: signature.clone(),
            }),
            _ => Err(MendingKind::ThinkingDropped),
        },
        Content::ToolCall(call) if is_answer => Ok(Block::ToolUse {
            id: call.id.clone(),
            name: call.name.clone(),
            input: input_of(call),
        }),
        Content::Other(json) if is_answer && is_sealed(json) => Ok(Block::Sealed(json.clone())),
        _ => Err(MendingKind::BlockDropped),
    }
}

fn image_of(image: &Image) -> Block {
    Block::Image {
        source: Source {
            r#type: "base64",
            media_type: image.mime_type.clone(),
            data: image.data.clone(),
        },
    }
}

fn is_sealed(json: &Json) -> bool {
    #[derive(serde::Deserialize)]
    struct Tag {
        r#type: String,
    }
    json.read::<Tag>()
        .is_ok_and(|tag| tag.r#type == "redacted_thinking")
}

/// Returns the arguments as the object that the provider wants.
fn input_of(call: &ToolCall) -> Json {
    let is_object = |json: &Json| json.as_str().starts_with('{');
    if is_object(&call.arguments) {
        return call.arguments.clone();
    }
    // A source may have kept the arguments as the text that the model wrote.
    let written = call.arguments.read::<String>().ok();
    let read = written.and_then(|text| Json::parse(&text).ok());
    if let Some(json) = read.filter(is_object) {
        return json;
    }
    let wrapped = if call.arguments.is_null() {
        "{}".to_owned()
    } else {
        format!("{{\"arguments\":{}}}", call.arguments.as_str())
    };
    Json::parse(&wrapped).unwrap_or_default()
}
