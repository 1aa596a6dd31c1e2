//! Quotes: the form in which a block shows a pinned message that it covers.
//!
//! A block stores the position of the message and the size of its quote, never its text: the text is read
//! from the original each time, so that a quote follows a redaction. A quote is always a user message, as
//! a quoted call would need its result, and a quoted result its call.

use std::ops::ControlFlow;

use super::rows::{BlockMessage, LoopKey, StoredMessage};
use super::{StoreError, StoreRead, StoreResult, codec};
use crate::model::{AgentMessage, Author, Content, Message, Role, UserMessage};
use crate::tokens::TokenCounter;

/// Returns a message as a block on the loop `block_loop` quotes it.
///
/// # Errors
/// If the message does not exist, or the store fails.
pub fn quote(
    read: &(impl StoreRead + ?Sized),
    block_loop: LoopKey,
    place: (LoopKey, u32),
) -> StoreResult<AgentMessage> {
    Ok(quoted(read, block_loop, place)?.0)
}

/// Returns the stored form of a quote in a block on the loop `block_loop`: the size of the quote, and the
/// digest of the original.
///
/// # Errors
/// If the message does not exist, or the store fails.
pub fn quote_body(
    read: &(impl StoreRead + ?Sized),
    counter: &dyn TokenCounter,
    block_loop: LoopKey,
    place: (LoopKey, u32),
) -> StoreResult<StoredMessage> {
    let (message, digest) = quoted(read, block_loop, place)?;
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

/// Returns the message that a row of a block on the loop `block_loop` shows; `None` if the original is dropped.
///
/// # Errors
/// If the stored form is damaged, or a quoted message does not exist.
pub fn shown_message(
    read: &(impl StoreRead + ?Sized),
    block_loop: LoopKey,
    message: BlockMessage,
) -> StoreResult<Option<AgentMessage>> {
    if let Some(place) = message.quoted() {
        return quote(read, block_loop, place).map(Some);
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
    found.ok_or_else(|| StoreError::Damaged(format!("the pinned message {seq} is missing")))
}

fn quoted(
    read: &(impl StoreRead + ?Sized),
    block_loop: LoopKey,
    (loop_key, seq): (LoopKey, u32),
) -> StoreResult<(AgentMessage, [u8; 32])> {
    let (turn, body) = original(read, (loop_key, seq))?;
    let digest = body.digest;
    let place = if loop_key == block_loop {
        format!("t{turn}")
    } else {
        format!("t{turn} of {}", read.loop_by_key(loop_key)?.loop_id)
    };
    Ok((of_message(&place, super::decode(read, body)?), digest))
}

fn of_message(place: &str, original: AgentMessage) -> AgentMessage {
    let mut text = format!("[Pinned, {place}, {}]", author_name(&original));
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
