//! Quotes: the form in which a block shows a pinned message that it covers, or a prompt that it keeps.
//!
//! A block stores the position of the message and the size of its quote, never its text: the text is read
//! from the original each time, so that a quote follows a redaction. The parts that the edits of the block replaced or
//! removed are quoted as these edits show them; the block is active only while these edits are live. A quote is always
//! a user message, as a quoted call would need its result, and a quoted result its call.

use std::ops::ControlFlow;

use super::live_edits::{EditCollector, LiveEdits, MessageEdit};
use super::rows::{BlockCore, BlockMessage, LoopKey, StoredMessage};
use super::{StoreError, StoreRead, StoreResult, codec};
use crate::model::{
    AgentMessage, Author, Content, Json, LoopId, Message, Role, UserMessage, extension_kinds,
};
use crate::tokens::TokenCounter;

/// A block that quotes messages.
#[derive(Clone, Copy, Debug)]
pub struct QuotingBlock<'a> {
    /// The loop of the block.
    pub loop_key: LoopKey,
    /// The ids of the runs with edits that the block was made with.
    pub edits: &'a [String],
}

impl BlockCore {
    /// Returns the block as one that quotes messages.
    pub fn quoting(&self) -> QuotingBlock<'_> {
        QuotingBlock {
            loop_key: self.loop_key,
            edits: &self.edits,
        }
    }
}

/// Returns a message as a block quotes it.
///
/// # Errors
/// If the message does not exist, or the store fails.
pub fn quote(
    read: &(impl StoreRead + ?Sized),
    block: QuotingBlock<'_>,
    place: (LoopKey, u32),
) -> StoreResult<AgentMessage> {
    Ok(quoted(read, block, place)?.0)
}

/// Returns the stored form of a quote in a block: the size of the quote, and the digest of the original.
///
/// # Errors
/// If the message does not exist, or the store fails.
pub fn quote_body(
    read: &(impl StoreRead + ?Sized),
    counter: &dyn TokenCounter,
    block: QuotingBlock<'_>,
    place: (LoopKey, u32),
) -> StoreResult<StoredMessage> {
    let (message, digest) = quoted(read, block, place)?;
    Ok(StoredMessage {
        role: Role::User,
        author: Author::of_role(Role::User),
        tokens: codec::count_message(&message, counter)?,
        bytes: codec::json_bytes(&message)?,
        lines: None,
        text_block: None,
        salt: None,
        digest,
        head: None,
        text: None,
    })
}

/// Returns the message that a row of a block shows; `None` if the original is dropped.
///
/// # Errors
/// If the stored form is damaged, or a quoted message does not exist.
pub fn shown_message(
    read: &(impl StoreRead + ?Sized),
    block: QuotingBlock<'_>,
    message: BlockMessage,
) -> StoreResult<Option<AgentMessage>> {
    if let Some(place) = message.quoted() {
        return quote(read, block, place).map(Some);
    }
    let body = message.body;
    body.map(|body| super::decode(read, body)).transpose()
}

/// Compares a message that a block quotes with its digest, and with the digest in the block.
///
/// # Errors
/// If the message does not exist or does not match, or the store fails.
pub fn check_quoted(
    read: &(impl StoreRead + ?Sized),
    (loop_key, seq): (LoopKey, u32),
    digest: &[u8; 32],
) -> StoreResult<()> {
    let (_, body) = original(read, (loop_key, seq))?;
    if body.digest == *digest && codec::fits_digest(&body.as_stored_ref()) {
        return Ok(());
    }
    let id = read.loop_by_key(loop_key)?.core.loop_id;
    Err(StoreError::Damaged(format!(
        "message {seq} of loop {id} is not what its digest says"
    )))
}

/// Returns the turn of a message, and its stored form.
fn original(
    read: &(impl StoreRead + ?Sized),
    (loop_key, seq): (LoopKey, u32),
) -> StoreResult<(u32, StoredMessage)> {
    let mut found = None;
    read.messages(loop_key, seq..seq.saturating_add(1), &mut |row| {
        found = Some((row.turn.unwrap_or_default(), row.body));
        Ok(ControlFlow::Break(()))
    })?;
    found.ok_or_else(|| StoreError::Damaged(format!("the quoted message {seq} is missing")))
}

/// Returns what the edits of a block replaced or removed of a message. What they cleared is quoted as recorded: a marker
/// has no words that a quote would bring back.
fn rewritten(
    read: &(impl StoreRead + ?Sized),
    block: QuotingBlock<'_>,
    (loop_key, seq): (LoopKey, u32),
) -> StoreResult<Option<LiveEdits>> {
    let mut found = EditCollector::default();
    if block.edits.is_empty() {
        return Ok(None);
    }
    read.edits_of_loop(loop_key, &mut |edit| {
        let is_own = edit.edit.covers(seq) && block.edits.contains(&edit.run_id);
        if is_own && edit.edit.action.is_rewriting() {
            let run = (edit.run, &*edit.run_id);
            found.add_rows(run, std::iter::once(&edit.edit));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    found.combined()
}

fn quoted(
    read: &(impl StoreRead + ?Sized),
    block: QuotingBlock<'_>,
    (loop_key, seq): (LoopKey, u32),
) -> StoreResult<(AgentMessage, [u8; 32])> {
    let (turn, body) = original(read, (loop_key, seq))?;
    let digest = body.digest;
    let mut message = super::decode(read, body)?;
    let edits = rewritten(read, block, (loop_key, seq))?;
    match edits.as_ref().and_then(|edits| edits.at(seq)) {
        None => {}
        Some(MessageEdit::Parts(edited)) => edited.apply(&mut message),
        Some(MessageEdit::Removed) => {
            message = AgentMessage::extension(extension_kinds::REMOVED, Json::null());
        }
    }
    let quote = if loop_key == block.loop_key {
        quote_of(turn, None, message)
    } else {
        quote_of(turn, Some(&read.loop_by_key(loop_key)?.loop_id), message)
    };
    Ok((quote, digest))
}

/// Returns a message as a block quotes it. `loop_id` is the loop of the message, if it is not that of the block.
#[doc(hidden)]
pub fn quote_of(turn: u32, loop_id: Option<&LoopId>, message: AgentMessage) -> AgentMessage {
    match loop_id {
        None => of_message(&format!("t{turn}"), message),
        Some(loop_id) => of_message(&format!("t{turn} of {loop_id}"), message),
    }
}

fn of_message(place: &str, original: AgentMessage) -> AgentMessage {
    let (label, author) = (label(&original), author_name(&original));
    let mut text = format!("[{label}, {place}, {author}]");
    let mut images = Vec::new();
    match original {
        AgentMessage::Llm(mut llm) => {
            for block in std::mem::take(llm.message.content_mut()) {
                let quoted = match block {
                    Content::Text(quoted) => quoted.text,
                    Content::ToolCall(call) => {
                        format!("{} {}", call.name, call.arguments.as_str())
                    }
                    Content::Other(json) => json.as_str().to_owned(),
                    image @ Content::Image(_) => {
                        images.push(image);
                        continue;
                    }
                    // A provider accepts it only at its original position.
                    Content::Thinking(_) | Content::Sealed(_) => continue,
                };
                text.push('\n');
                text.push_str(&quoted);
            }
        }
        AgentMessage::Extension(_) => text.push_str("\n[removed]"),
    }
    let mut content = vec![Content::text(text)];
    content.extend(images);
    Message::User(UserMessage {
        content,
        timestamp: None,
        author: Some(Author::Harness),
    })
    .into()
}

/// Returns the reason of a quote. A prompt of a person is kept by a policy, or it is pinned; other messages are quoted
/// only if they are pinned.
fn label(original: &AgentMessage) -> &'static str {
    match (original.role(), original.author()) {
        (Role::User, Author::Human) => "Kept prompt",
        _ => "Pinned",
    }
}

/// Returns the author of a message, as a quote names it.
fn author_name(original: &AgentMessage) -> String {
    match (original.message(), original.author()) {
        (Some(Message::ToolResult(result)), _) => match result.tool_name.as_str() {
            "" => "result".to_owned(),
            tool => format!("result of {tool}"),
        },
        (Some(Message::Assistant(_)), _) => "assistant".to_owned(),
        (_, Author::Human) => "user".to_owned(),
        (_, author) => author.as_str().to_owned(),
    }
}
