//! All messages of a session and of its blocks, in the form of a page.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::calls::{CallTable, ReportedCalls};
use super::page::HtmlPage;
use crate::ReportError;
use loopstore::extend::codec::decode;
use loopstore::extend::compaction::CallEffects;
use loopstore::extend::{
    BlockKey, BlockRow, LoopKey, LoopRow, MessageRow, Section, SessionRow, StoreRead, StoreResult,
    StoredMessage, quote,
};
use loopstore::model::author::is_injected;
use loopstore::model::{AgentMessage, AssistantMessage, Author, Content, Image, Message, Usage};
use loopstore_admin::inspect::{ChangedFile, changed_files};

/// The loops, blocks and calls that were read while the messages were written.
pub(super) struct WrittenMessages {
    pub(super) loops: Vec<LoopRow>,
    /// For each loop, the pieces with its messages: the first sequence in each, and its number.
    pub(super) pieces: Vec<Vec<(u32, usize)>>,
    /// All blocks, by loop and generation, with the piece of their messages.
    pub(super) blocks: Vec<(BlockRow, usize)>,
    pub(super) calls: CallTable,
    loop_places: HashMap<LoopKey, usize>,
    block_places: HashMap<BlockKey, usize>,
}

impl WrittenMessages {
    pub(super) fn place_of(&self, key: LoopKey) -> Option<usize> {
        self.loop_places.get(&key).copied()
    }

    pub(super) fn block_of(&self, key: BlockKey) -> Option<usize> {
        self.block_places.get(&key).copied()
    }
}

/// A message. The names are short, as there are many.
#[derive(Default, Serialize)]
struct MessageEntry<'a> {
    /// The loop, by its position in the index.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    loop_key: Option<usize>,
    #[serde(rename = "q", skip_serializing_if = "Option::is_none")]
    seq: Option<u32>,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
    #[serde(rename = "r")]
    role: &'static str,
    #[serde(rename = "k")]
    tokens: u64,
    /// Milliseconds since the epoch.
    #[serde(rename = "a", skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    /// The model, the tool, or the kind of an extension.
    #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The call that a result answers.
    #[serde(rename = "i", skip_serializing_if = "Option::is_none")]
    call: Option<&'a str>,
    #[serde(rename = "e", skip_serializing_if = "is_false")]
    failed: bool,
    #[serde(rename = "x", skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Usage>,
    #[serde(rename = "b")]
    blocks: Vec<ContentPart<'a>>,
}

/// A content block: its kind, and its text.
#[derive(Serialize)]
#[serde(untagged)]
enum ContentPart<'a> {
    Text(&'static str, &'a str),
    /// The id, the tool, the arguments, the line that describes the call, and the files that it changes.
    Call(
        &'static str,
        &'a str,
        &'a str,
        &'a str,
        String,
        Vec<ChangedFile>,
    ),
    Image(&'static str, &'a str, u64),
    Sealed(&'static str, String, String),
    Json(&'static str, Cow<'a, str>),
}

/// The messages of a block that replace originals.
#[derive(Serialize)]
struct BlockEntry<'a> {
    /// The block, by its position in the index.
    #[serde(rename = "g")]
    block: usize,
    /// The summary.
    #[serde(rename = "m")]
    summary: Vec<MessageEntry<'a>>,
    /// The replacements of single messages, by their sequence; `None` if the message is left out.
    #[serde(rename = "p")]
    replaced: Vec<(u32, Option<MessageEntry<'a>>)>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Writes every message of a session and every block.
pub(super) fn write_all(
    read: &dyn StoreRead,
    owner: &SessionRow,
    page: &mut HtmlPage<'_>,
) -> Result<WrittenMessages, ReportError> {
    let loops = read.loops(owner.key)?;
    let mut book = ReportedCalls::new(&loops);
    let mut pieces = Vec::with_capacity(loops.len());
    for (place, row) in loops.iter().enumerate() {
        book.begin_loop(read, row)?;
        pieces.push(write_loop(read, place, row, page, &mut book)?);
    }
    let mut rows = Vec::new();
    for row in &loops {
        rows.extend(read.blocks_of_loop(row.key)?);
    }
    let mut blocks = Vec::with_capacity(rows.len());
    for (place, row) in rows.into_iter().enumerate() {
        let piece = write_block(read, place, &row, page)?;
        blocks.push((row, piece));
    }
    Ok(WrittenMessages {
        calls: book.finish(),
        loop_places: places(&loops),
        block_places: blocks
            .iter()
            .enumerate()
            .map(|(place, (row, _)): (usize, &(BlockRow, usize))| (row.key, place))
            .collect(),
        loops,
        pieces,
        blocks,
    })
}

fn write_loop(
    read: &dyn StoreRead,
    place: usize,
    row: &LoopRow,
    page: &mut HtmlPage<'_>,
    book: &mut ReportedCalls,
) -> Result<Vec<(u32, usize)>, ReportError> {
    let mut pieces: Vec<(u32, usize)> = Vec::new();
    let mut failed = None;
    let mut write = |message: MessageRow| -> Result<(), ReportError> {
        let (seq, turn, at) = (message.seq, message.turn, message.created_at);
        let tokens = message.body.tokens;
        let decoded = without_blobs(message.body)?;
        book.follow(place, turn, seq, at, &decoded);
        let entry = MessageEntry {
            loop_key: Some(place),
            seq: Some(seq),
            turn,
            at,
            ..entry(&decoded, tokens)
        };
        let piece = page.entry(&entry)?;
        if pieces.last().is_none_or(|(_, last)| *last != piece) {
            pieces.push((seq, piece));
        }
        Ok(())
    };
    read.messages(row.key, 0..row.totals.next_seq, &mut |message| {
        Ok(match write(message) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })
    })?;
    failed.map_or(Ok(pieces), Err)
}

fn write_block(
    read: &dyn StoreRead,
    place: usize,
    row: &BlockRow,
    page: &mut HtmlPage<'_>,
) -> Result<usize, ReportError> {
    let mut entries = Vec::new();
    for message in read.block_messages(row.key)? {
        let (section, replaces) = (message.section, message.replaces);
        let decoded = match (message.quoted(), message.body) {
            (Some(place), Some(body)) => Some((body.tokens, quote(read, row.quoting(), place)?)),
            (_, Some(body)) => Some((body.tokens, without_blobs(body)?)),
            (_, None) => None,
        };
        entries.push((section, replaces, decoded));
    }
    let mut found = BlockEntry {
        block: place,
        summary: Vec::new(),
        replaced: Vec::new(),
    };
    for (section, replaces, decoded) in &entries {
        let shown = decoded.as_ref().map(|(tokens, body)| entry(body, *tokens));
        match (section, replaces) {
            (Section::Recent, Some(seq)) => found.replaced.push((*seq, shown)),
            _ => found.summary.extend(shown),
        }
    }
    page.entry(&found)
}

/// Decodes a message; only the type and the size of an image are kept.
fn without_blobs(stored: StoredMessage) -> StoreResult<AgentMessage> {
    decode(stored, &mut |_| Ok(None))
}

fn entry(message: &AgentMessage, tokens: u64) -> MessageEntry<'_> {
    let role = message.role().as_str();
    let bare = MessageEntry {
        role,
        tokens,
        ..MessageEntry::default()
    };
    let llm = match message {
        AgentMessage::Llm(llm) => llm,
        AgentMessage::Extension(extension) => {
            return MessageEntry {
                name: Some(&extension.kind),
                blocks: vec![ContentPart::Text("json", extension.data.as_str())],
                ..bare
            };
        }
    };
    let blocks = parts(&llm.message);
    match &llm.message {
        Message::User(_) => MessageEntry {
            name: Some(llm.message.author())
                .filter(|author| *author != Author::Human)
                .map(Author::as_str),
            blocks,
            ..bare
        },
        Message::Assistant(AssistantMessage {
            model,
            usage,
            error_message,
            ..
        }) => MessageEntry {
            name: model.as_deref(),
            usage: usage.as_ref(),
            error: error_message.as_deref(),
            blocks,
            ..bare
        },
        Message::ToolResult(result) => MessageEntry {
            name: Some(&result.tool_name),
            call: Some(&result.tool_call_id),
            failed: result.is_error,
            blocks,
            ..bare
        },
    }
}

/// Returns the blocks of a message; a call with what it changes.
fn parts(message: &Message) -> Vec<ContentPart<'_>> {
    let mut parts = Vec::with_capacity(message.content().len());
    let mut calls = 0;
    for block in message.content() {
        let Content::ToolCall(call) = block else {
            parts.push(part(block));
            continue;
        };
        let changes = changed_files(message, calls);
        calls += 1;
        parts.push(ContentPart::Call(
            "call",
            &call.id,
            &call.name,
            call.arguments.as_str(),
            CallEffects::of(call).description,
            changes,
        ));
    }
    parts
}

fn part(block: &Content) -> ContentPart<'_> {
    match block {
        // A harness added it to the words of a person.
        Content::Text(text) if is_injected(text) => ContentPart::Text("injected", &text.text),
        Content::Text(text) => ContentPart::Text("text", &text.text),
        Content::Thinking(thinking) => ContentPart::Text("thinking", &thinking.thinking),
        Content::Image(image) => ContentPart::Image("image", &image.mime_type, bytes_of(image)),
        // Calls are parts of their message.
        Content::ToolCall(call) => ContentPart::Text("text", call.arguments.as_str()),
        Content::Sealed(sealed) => {
            let readable = sealed.readable().unwrap_or_default();
            ContentPart::Sealed("sealed", sealed.to_string(), readable)
        }
        Content::Other(json) => ContentPart::Json("json", json.readable()),
    }
}

fn bytes_of(image: &Image) -> u64 {
    let noted = image.extra.get("bytes").and_then(|json| json.read().ok());
    let decoded = || {
        STANDARD
            .decode(&image.data)
            .map_or(0, |data| data.len() as u64)
    };
    noted.unwrap_or_else(decoded)
}

/// Returns the positions of loops by key, for many look-ups.
pub(super) fn places(loops: &[LoopRow]) -> HashMap<LoopKey, usize> {
    let place = |(place, row): (usize, &LoopRow)| (row.key, place);
    loops.iter().enumerate().map(place).collect()
}
