//! Anthropic's messages.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::blocks::{arguments_object, images_of, media_type};
use super::pairs::IndexedMessage;
use super::sealed::original_item;
use super::system::SystemMessage;
use super::{Mending, MendingKind};
use crate::Form;
use crate::returned::ReturnedFields;
use crate::server_block::ServerBlock;
use loopstore_model::json::json_object;
use loopstore_model::{self as model, Content, Extra, Image, Json, ToolResultMessage};

/// The user message that is added before an answer at the beginning of a conversation.
pub const OPENING: &str = "[what came before is not included]";

/// The field of a block up to which a request is cached.
const CACHE: &str = "cache_control";

/// The number of newest cache marks of a conversation that are written. The provider accepts four in a request,
/// including those of tools and system prompt, and finds the prefixes of older marks by itself.
const MARKS: usize = 2;

/// A message of the request.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AnthropicMessage {
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
        #[serde(flatten)]
        back: ReturnedFields,
    },
    Image {
        source: ImageSource,
        #[serde(flatten)]
        back: ReturnedFields,
    },
    Thinking {
        thinking: String,
        signature: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Json,
        #[serde(flatten)]
        back: ReturnedFields,
    },
    ToolResult {
        tool_use_id: String,
        content: Vec<AnthropicBlock>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(flatten)]
        back: ReturnedFields,
    },
    /// Thinking that only the provider can read, unchanged.
    #[serde(untagged)]
    Redacted(Json),
    /// A compaction, unchanged.
    #[serde(untagged)]
    Compaction(Json),
    /// Another block of the provider, unchanged.
    #[serde(untagged)]
    Own(Json),
}

impl AnthropicBlock {
    fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::Redacted(_))
    }

    fn text(text: String) -> Self {
        Self::Text {
            text,
            back: ReturnedFields::default(),
        }
    }

    /// Removes the cache marks of the block and of the blocks in it.
    fn unmark(&mut self) {
        match self {
            Self::Text { back, .. } | Self::Image { back, .. } | Self::ToolUse { back, .. } => {
                back.remove(CACHE);
            }
            Self::ToolResult { content, back, .. } => {
                back.remove(CACHE);
                content.iter_mut().for_each(Self::unmark);
            }
            Self::Own(item) => {
                if let Some(plain) = without_mark(item) {
                    *item = plain;
                }
            }
            Self::Thinking { .. } | Self::Redacted(_) | Self::Compaction(_) => {}
        }
    }

    fn is_marked(&self) -> bool {
        match self {
            Self::Text { back, .. } | Self::Image { back, .. } | Self::ToolUse { back, .. } => {
                back.has(CACHE)
            }
            Self::ToolResult { content, back, .. } => {
                back.has(CACHE) || content.iter().any(Self::is_marked)
            }
            Self::Own(item) => without_mark(item).is_some(),
            Self::Thinking { .. } | Self::Redacted(_) | Self::Compaction(_) => false,
        }
    }
}

json_object! {
    /// An item that was kept whole.
    pub struct MarkedItem {
        /// The cache mark of the item.
        maybe cache_control: Json = "cache_control",
    }
}

/// Returns an item without its cache mark; `None` if it has none.
fn without_mark(item: &Json) -> Option<Json> {
    let mut fields: MarkedItem = item.read().ok()?;
    fields.cache_control.take()?;
    Json::of(&fields).ok()
}

#[derive(Clone, Debug, Serialize)]
struct ImageSource {
    r#type: &'static str,
    media_type: &'static str,
    data: String,
}

/// Writes the messages.
pub(super) fn write(
    messages: &[IndexedMessage],
    mended: &mut Vec<Mending>,
) -> Vec<AnthropicMessage> {
    let mut writer = AnthropicWriter {
        mended,
        out: Vec::new(),
        last: None,
        thinking: Vec::new(),
        images: Vec::new(),
        waiting: 0,
        answered: answered_server_calls(messages),
        last_prompt: messages
            .iter()
            .rfind(|placed| matches!(placed.message, model::Message::User(_)))
            .map_or(0, |placed| placed.at),
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
    let mut texts = system.iter().flat_map(|message| &message.texts);
    let mut blocks: Vec<AnthropicBlock> = Vec::new();
    match (texts.next(), texts.next()) {
        (Some(text), None) if text.cache_control.is_none() => {
            return System::Text(text.text.clone());
        }
        (first, second) => {
            for text in first.into_iter().chain(second).chain(texts) {
                let mut back = ReturnedFields::default();
                if let Some(mark) = text.cache_control.clone() {
                    back.push(CACHE, mark.into());
                }
                let text = text.text.clone();
                blocks.push(AnthropicBlock::Text { text, back });
            }
        }
    }
    unmark_old(blocks.iter_mut().rev());
    System::List(blocks)
}

/// Removes the cache marks of all but the first of `blocks`.
fn unmark_old<'a>(blocks: impl Iterator<Item = &'a mut AnthropicBlock>) {
    blocks
        .filter(|block| block.is_marked())
        .skip(MARKS)
        .for_each(AnthropicBlock::unmark);
}

/// Returns the ids of the calls that the provider ran itself and that have a result after them.
fn answered_server_calls(messages: &[IndexedMessage]) -> HashSet<String> {
    let (mut used, mut answered) = (HashSet::new(), HashSet::new());
    let blocks = messages.iter().flat_map(|placed| placed.message.content());
    for block in blocks.filter(|block| matches!(block, Content::Other(_))) {
        match original_item(block, Form::Anthropic)
            .as_ref()
            .and_then(ServerBlock::of)
        {
            Some(ServerBlock::Use(id, _)) => {
                used.insert(id);
            }
            Some(ServerBlock::Result(id)) if used.contains(&id) => {
                answered.insert(id);
            }
            _ => {}
        }
    }
    answered
}

/// The source of the last message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Prompt,
    Answer,
    Result,
}

struct AnthropicWriter<'a> {
    mended: &'a mut Vec<Mending>,
    out: Vec<AnthropicMessage>,
    /// The source of the last message of the request.
    last: Option<(From, usize)>,
    /// Thinking at the end of a message whose answer continues in the next.
    thinking: Vec<(usize, AnthropicBlock)>,
    /// The images of failed calls, whose results may have text only.
    images: Vec<AnthropicBlock>,
    /// The number of calls without a result so far.
    waiting: usize,
    /// The calls that the provider ran itself and that have a result after them.
    answered: HashSet<String>,
    /// The last prompt: later calls that the provider runs may still wait for their result.
    last_prompt: usize,
}

impl AnthropicWriter<'_> {
    fn add(&mut self, placed: &IndexedMessage) {
        let at = placed.at;
        if let model::Message::ToolResult(result) = &placed.message {
            return self.result(at, result, placed.source.as_ref());
        }
        self.flush_images(at);
        let is_answer = matches!(placed.message, model::Message::Assistant(_));
        let blocks = self.blocks(at, placed.message.content(), is_answer);
        if is_answer {
            self.answer(at, blocks);
            if !placed.continues_answer {
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
        // The message has the blocks of the answer before.
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

    /// Puts the thinking of the last message first: the provider requires an answer to begin with it.
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

    fn result(&mut self, at: usize, result: &ToolResultMessage, source: Option<&Json>) {
        self.waiting = self.waiting.saturating_sub(1);
        let mut content = self.blocks(at, &result.content, false);
        if result.is_error {
            let is_image = |block: &AnthropicBlock| matches!(block, AnthropicBlock::Image { .. });
            let (images, rest): (Vec<_>, Vec<_>) = content.into_iter().partition(is_image);
            content = rest;
            if !images.is_empty() {
                let id = &result.tool_call_id;
                self.mended
                    .push(Mending::of_call(MendingKind::ImageMoved, at, id));
                self.images.push(AnthropicBlock::text(images_of(id)));
                self.images.extend(images);
            }
        }
        let block = AnthropicBlock::ToolResult {
            tool_use_id: result.tool_call_id.clone(),
            content,
            is_error: result.is_error,
            back: ReturnedFields::of_source(source, &[CACHE, "toolset_name"]),
        };
        self.push(at, From::Result, TurnRole::User, vec![block]);
    }

    fn push(&mut self, at: usize, from: From, role: TurnRole, mut content: Vec<AnthropicBlock>) {
        let before = self.last.replace((from, at));
        match self.out.last_mut().filter(|last| last.role == role) {
            Some(last) => {
                last.content.append(&mut content);
                // The provider requires results and the prompt after them in one message.
                if before.is_some_and(|(before, _)| before == from) && from != From::Result {
                    self.mend(MendingKind::Merged, at);
                }
            }
            None => self.out.push(AnthropicMessage { role, content }),
        }
    }

    fn open(&mut self, at: usize) {
        self.mend(MendingKind::UserAdded, at);
        let text = OPENING.to_owned();
        self.out.push(AnthropicMessage {
            role: TurnRole::User,
            content: vec![AnthropicBlock::text(text)],
        });
    }

    fn finish(mut self) -> Vec<AnthropicMessage> {
        // Nothing may come between a call and its result.
        if self.waiting == 0 {
            self.flush_images(self.last.map_or(0, |(_, at)| at));
        }
        self.trim_end();
        let blocks = self.out.iter_mut().rev();
        unmark_old(blocks.flat_map(|message| message.content.iter_mut().rev()));
        self.out
    }

    /// Leaves out thinking without an answer.
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

    /// Removes white space at the end of the last answer: the provider continues this answer, and rejects one that ends
    /// with white space.
    fn trim_end(&mut self) {
        let last = self
            .out
            .last_mut()
            .filter(|last| last.role == TurnRole::Assistant);
        if let Some(AnthropicBlock::Text { text, .. }) =
            last.and_then(|last| last.content.last_mut())
        {
            let kept = text.trim_end().len();
            if kept < text.len() {
                text.truncate(kept);
                self.mend(MendingKind::SpaceDropped, self.last.map_or(0, |(_, at)| at));
            }
        }
    }

    /// True unless a block is the call or result of a tool that the provider ran, and the other of both is missing.
    fn is_paired(&self, at: usize, item: &Json) -> bool {
        match ServerBlock::of(item) {
            Some(ServerBlock::Use(id, _)) => self.is_run(at, &id),
            Some(ServerBlock::Result(id)) => self.answered.contains(&id),
            None => true,
        }
    }

    /// True if the provider has run or is running a call.
    fn is_run(&self, at: usize, id: &str) -> bool {
        self.answered.contains(id) || at >= self.last_prompt
    }

    /// Removes the caller of a call if this provider does not know it.
    fn check_caller(&self, at: usize, back: &mut ReturnedFields) {
        #[derive(Deserialize)]
        struct Caller {
            r#type: String,
            tool_id: Option<String>,
        }
        let Some(caller) = back.remove("caller") else {
            return;
        };
        let is_known = caller
            .read::<Caller>()
            .is_ok_and(|caller| match caller.tool_id {
                Some(id) => caller.r#type.starts_with("code_execution") && self.is_run(at, &id),
                None => caller.r#type == "direct",
            });
        if is_known {
            back.push("caller", caller);
        }
    }

    fn mend(&mut self, kind: MendingKind, at: usize) {
        self.mended.push(Mending::of(kind, at));
    }

    fn blocks(&mut self, at: usize, content: &[Content], is_answer: bool) -> Vec<AnthropicBlock> {
        let mut blocks = Vec::new();
        for block in content {
            // The provider rejects a text of white space only.
            if matches!(block, Content::Text(text) if text.text.trim().is_empty()) {
                continue;
            }
            match block_of(block, is_answer) {
                Some(AnthropicBlock::Own(item)) if !self.is_paired(at, &item) => {
                    self.mend(MendingKind::BlockDropped, at);
                }
                Some(mut block) => {
                    if let AnthropicBlock::ToolUse { back, .. } = &mut block {
                        self.check_caller(at, back);
                        self.waiting += 1;
                    }
                    blocks.push(block);
                }
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
            back: text_fields(&text.extra, is_answer),
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
            back: ReturnedFields::of(&call.extra, &[CACHE, "caller", "toolset_name"]),
        }),
        Content::Sealed(_) if !is_answer => None,
        Content::Sealed(sealed) => original_item(block, Form::Anthropic).map(|item| {
            if block.is_signed_thinking() {
                AnthropicBlock::Redacted(item)
            } else if sealed.kind().as_deref() == Some("compaction") {
                AnthropicBlock::Compaction(item)
            } else {
                AnthropicBlock::Own(item)
            }
        }),
        Content::Other(_) => original_item(block, Form::Anthropic).map(AnthropicBlock::Own),
        _ => None,
    }
}

/// Returns the fields that are sent back with a text. Of its citations, only those of web search results in the same
/// answer are sent: others number the documents of the context, of which a compaction leaves out some.
fn text_fields(extra: &Extra, is_answer: bool) -> ReturnedFields {
    let mut back = ReturnedFields::of(extra, &[CACHE, "citations"]);
    let cited = back.remove("citations").filter(|_| is_answer);
    let cited = cited.and_then(|list| list.read::<Vec<Json>>().ok());
    let mut cited = cited.unwrap_or_default();
    cited.retain(|one| one.type_name().as_deref() == Some("web_search_result_location"));
    if !cited.is_empty()
        && let Ok(cited) = Json::of(&cited)
    {
        back.push("citations", cited);
    }
    back
}

fn image_of(image: &Image) -> Option<AnthropicBlock> {
    Some(AnthropicBlock::Image {
        source: ImageSource {
            r#type: "base64",
            media_type: media_type(image)?,
            data: image.data.clone(),
        },
        back: ReturnedFields::of(&image.extra, &[CACHE, "transformations"]),
    })
}
