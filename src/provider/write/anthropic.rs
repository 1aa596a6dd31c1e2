//! Anthropic's messages.

use std::collections::BTreeSet;

use serde::Serialize;

use super::blocks::{arguments_object, images_of, media_type};
use super::pairs::IndexedMessage;
use super::sealed::own;
use super::system::SystemMessage;
use super::{Mending, MendingKind};
use crate::model::{self, Content, Image, Json, ToolResultMessage};
use crate::provider::Form;

/// What the user is made to say before an answer that would come first.
const OPENING: &str = "[what came before is not included]";

/// A message of the request.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Message {
    role: TurnRole,
    content: Vec<AnthropicBlock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum TurnRole {
    User,
    Assistant,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicBlock {
    Text {
        text: String,
    },
    Image {
        source: ImageSource,
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
        content: Vec<AnthropicBlock>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// Thinking that only the provider can read, exactly as it came.
    #[serde(untagged)]
    Redacted(Json),
    /// A compaction, exactly as it came.
    #[serde(untagged)]
    Compaction(Json),
    /// Another block of the provider's, exactly as it came.
    #[serde(untagged)]
    Own(Json),
}

impl AnthropicBlock {
    fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::Redacted(_))
    }
}

#[derive(Clone, Debug, Serialize)]
struct ImageSource {
    r#type: &'static str,
    media_type: &'static str,
    data: String,
}

/// Writes the messages.
pub(super) fn write(messages: &[IndexedMessage], mended: &mut Vec<Mending>) -> Vec<Message> {
    let mut writer = AnthropicWriter {
        mended,
        out: Vec::new(),
        last: None,
        thinking: Vec::new(),
        images: Vec::new(),
    };
    for placed in messages {
        writer.add(placed);
    }
    writer.finish()
}

/// Returns the system prompt: plain text if it is one.
pub(super) fn system(system: &[SystemMessage]) -> impl Serialize {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum System {
        Text(String),
        List(Vec<AnthropicBlock>),
    }
    let mut texts: Vec<String> = system
        .iter()
        .flat_map(|message| message.texts.clone())
        .collect();
    match texts.len() {
        1 => System::Text(texts.remove(0)),
        _ => System::List(
            texts
                .into_iter()
                .map(|text| AnthropicBlock::Text { text })
                .collect(),
        ),
    }
}

/// What the last message was made from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Prompt,
    Answer,
    Result,
}

struct AnthropicWriter<'a> {
    mended: &'a mut Vec<Mending>,
    out: Vec<Message>,
    /// What was written last, from which message of the context.
    last: Option<(From, usize)>,
    /// Thinking that a message ended with whose answer goes on in the next.
    thinking: Vec<(usize, AnthropicBlock)>,
    /// Images of failed calls: their results may hold nothing but text.
    images: Vec<AnthropicBlock>,
}

impl AnthropicWriter<'_> {
    fn add(&mut self, placed: &IndexedMessage) {
        let at = placed.at;
        if let model::Message::ToolResult(result) = &placed.message {
            return self.result(at, result);
        }
        self.flush_images(at);
        let is_answer = matches!(placed.message, model::Message::Assistant(_));
        let blocks = self.blocks(at, placed.message.content(), is_answer);
        if is_answer {
            self.answer(at, blocks);
            if !placed.goes_on {
                self.drop_thinking();
            }
        } else {
            self.say(at, From::Prompt, TurnRole::User, blocks);
        }
    }

    fn say(&mut self, at: usize, from: From, role: TurnRole, blocks: Vec<AnthropicBlock>) {
        if blocks.is_empty() {
            self.mend(MendingKind::EmptyDropped, at);
        } else {
            self.push(at, from, role, blocks);
        }
    }

    fn answer(&mut self, at: usize, mut blocks: Vec<AnthropicBlock>) {
        let last_shown = blocks.iter().rposition(|block| !block.is_thinking());
        let trailing = blocks.split_off(last_shown.map_or(0, |at| at + 1));
        if blocks.is_empty() && !trailing.is_empty() {
            return self
                .thinking
                .extend(trailing.into_iter().map(|block| (at, block)));
        }
        let before = std::mem::take(&mut self.thinking);
        if blocks.is_empty() {
            self.thinking = before;
            return self.mend(MendingKind::EmptyDropped, at);
        }
        let leads = matches!(blocks.first(), Some(AnthropicBlock::Compaction(_)));
        if self.out.is_empty() && !leads {
            self.open(at);
        }
        // The blocks of the answer before stand there already.
        let pieces = before.iter().map(|(from, _)| *from);
        for from in pieces
            .filter(|from| self.last != Some((From::Answer, *from)))
            .collect::<BTreeSet<_>>()
        {
            self.mend(MendingKind::Merged, from);
        }
        blocks.splice(0..0, before.into_iter().map(|(_, block)| block));
        self.push(at, From::Answer, TurnRole::Assistant, blocks);
        self.lead_with_thinking(at);
        self.thinking = trailing.into_iter().map(|block| (at, block)).collect();
    }

    /// Puts the thinking of the last message first: the provider wants an answer to begin with it.
    fn lead_with_thinking(&mut self, at: usize) {
        let Some(last) = self.out.last_mut() else {
            return;
        };
        let is_compaction = |block: &AnthropicBlock| matches!(block, AnthropicBlock::Compaction(_));
        let start = usize::from(last.content.first().is_some_and(is_compaction));
        let after = &last.content[start..];
        let leads = after.first().is_none_or(AnthropicBlock::is_thinking);
        if !leads && after.iter().any(AnthropicBlock::is_thinking) {
            let blocks = last.content.split_off(start).into_iter();
            let (first, rest): (Vec<_>, Vec<_>) = blocks.partition(AnthropicBlock::is_thinking);
            last.content.extend(first.into_iter().chain(rest));
            self.mend(MendingKind::ThinkingMoved, at);
        }
    }

    fn result(&mut self, at: usize, result: &ToolResultMessage) {
        let mut content = self.blocks(at, &result.content, false);
        if result.is_error {
            let is_image = |block: &AnthropicBlock| matches!(block, AnthropicBlock::Image { .. });
            let (images, rest): (Vec<_>, Vec<_>) = content.into_iter().partition(is_image);
            content = rest;
            if !images.is_empty() {
                let id = &result.tool_call_id;
                self.mended
                    .push(Mending::of_call(MendingKind::ImageMoved, at, id));
                self.images.push(AnthropicBlock::Text {
                    text: images_of(id),
                });
                self.images.extend(images);
            }
        }
        let block = AnthropicBlock::ToolResult {
            tool_use_id: result.tool_call_id.clone(),
            content,
            is_error: result.is_error,
        };
        self.push(at, From::Result, TurnRole::User, vec![block]);
    }

    fn push(&mut self, at: usize, from: From, role: TurnRole, mut content: Vec<AnthropicBlock>) {
        let before = self.last.replace((from, at));
        match self.out.last_mut().filter(|last| last.role == role) {
            Some(last) => {
                last.content.append(&mut content);
                // Results and the prompt after them are one message by the provider's own rules.
                if before.is_some_and(|(before, _)| before == from) && from != From::Result {
                    self.mend(MendingKind::Merged, at);
                }
            }
            None => self.out.push(Message { role, content }),
        }
    }

    fn open(&mut self, at: usize) {
        self.mend(MendingKind::UserAdded, at);
        let text = OPENING.to_owned();
        self.out.push(Message {
            role: TurnRole::User,
            content: vec![AnthropicBlock::Text { text }],
        });
    }

    fn finish(mut self) -> Vec<Message> {
        self.flush_images(self.last.map_or(0, |(_, at)| at));
        self.trim_end();
        self.out
    }

    /// Leaves out thinking that nothing came of.
    fn drop_thinking(&mut self) {
        for (at, _) in std::mem::take(&mut self.thinking) {
            self.mend(MendingKind::ThinkingDropped, at);
        }
    }

    fn flush_images(&mut self, at: usize) {
        let images = std::mem::take(&mut self.images);
        if !images.is_empty() {
            self.push(at, From::Result, TurnRole::User, images);
        }
    }

    /// The provider goes on with an answer that comes last, and refuses one with a space there.
    fn trim_end(&mut self) {
        let last = self
            .out
            .last_mut()
            .filter(|last| last.role == TurnRole::Assistant);
        if let Some(AnthropicBlock::Text { text }) = last.and_then(|last| last.content.last_mut()) {
            let kept = text.trim_end().len();
            if kept < text.len() {
                text.truncate(kept);
                self.mend(MendingKind::SpaceDropped, self.last.map_or(0, |(_, at)| at));
            }
        }
    }

    fn mend(&mut self, kind: MendingKind, at: usize) {
        self.mended.push(Mending::of(kind, at));
    }

    fn blocks(&mut self, at: usize, content: &[Content], is_answer: bool) -> Vec<AnthropicBlock> {
        let mut blocks = Vec::new();
        for block in content {
            // A text of nothing but white space is refused.
            if matches!(block, Content::Text(text) if text.text.trim().is_empty()) {
                continue;
            }
            match block_of(block, is_answer) {
                Some(block) => blocks.push(block),
                None => self.mended.push(Mending::left_out(block, at)),
            }
        }
        blocks
    }
}

/// Returns the block; `None` if there is none.
fn block_of(block: &Content, is_answer: bool) -> Option<AnthropicBlock> {
    match block {
        Content::Text(text) => Some(AnthropicBlock::Text {
            text: text.text.clone(),
        }),
        Content::Image(image) if !is_answer => image_of(image),
        Content::Thinking(thinking) if is_answer && block.is_signed_thinking() => {
            Some(AnthropicBlock::Thinking {
                thinking: thinking.thinking.clone(),
                signature: thinking.signature.clone()?,
            })
        }
        Content::ToolCall(call) if is_answer => Some(AnthropicBlock::ToolUse {
            id: call.id.clone(),
            name: call.name.clone(),
            input: arguments_object(call),
        }),
        Content::Sealed(_) if !is_answer => None,
        Content::Sealed(sealed) => own(block, Form::Anthropic).map(|item| {
            if block.is_signed_thinking() {
                AnthropicBlock::Redacted(item)
            } else if sealed.kind().as_deref() == Some("compaction") {
                AnthropicBlock::Compaction(item)
            } else {
                AnthropicBlock::Own(item)
            }
        }),
        Content::Other(_) => own(block, Form::Anthropic).map(AnthropicBlock::Own),
        _ => None,
    }
}

fn image_of(image: &Image) -> Option<AnthropicBlock> {
    Some(AnthropicBlock::Image {
        source: ImageSource {
            r#type: "base64",
            media_type: media_type(image)?,
            data: image.data.clone(),
        },
    })
}
