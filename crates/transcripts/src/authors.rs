//! The authors of the messages of a transcript.
//!
//! An author that the format records is kept. Otherwise a parent agent is the author of the prompts of its sub-agents,
//! and the harness is the author of a text that consists only of its frames. No author is stored if it is the one that
//! the role implies.

use std::ops::Range;

use loopstore::model::{AgentMessage, Author, Content, Json, Message, Role, Text};
use loopstore_model::author;

/// Sets the author of a message whose record names none. `is_spawned` is true in the session of a sub-agent.
pub(super) fn set_author(message: &mut AgentMessage, is_spawned: bool) {
    let Some(inner) = message.message_mut() else {
        return;
    };
    let role = inner.role();
    let recorded = author_mut(inner).take();
    if role == Role::User && recorded != Some(Author::Harness) {
        split_frames(inner.content_mut());
    }
    let found = match (recorded, role) {
        (Some(recorded), _) => Some(recorded),
        (None, Role::User) if is_harness_only(inner) => Some(Author::Harness),
        (None, Role::User) if is_spawned => Some(Author::Agent),
        (None, _) => None,
    };
    *author_mut(inner) = found.filter(|author| *author != Author::of_role(role));
}

/// Makes the harness the author of a message, unless its record names another author.
pub(super) fn by_harness(mut message: AgentMessage) -> AgentMessage {
    if let Some(inner) = message.message_mut() {
        author_mut(inner).get_or_insert(Author::Harness);
    }
    message
}

/// Returns the author for a kind of origin, as the tool names it in its records.
pub(super) fn of_origin(kind: &str) -> Author {
    match kind {
        "human" | "user" | "cli" | "typed" | "channel" => Author::Human,
        "agent" | "subagent" | "coordinator" | "peer" | "teammate" => Author::Agent,
        _ => Author::Harness,
    }
}

/// Marks a block that the harness inserted into a message of a person.
pub(super) fn mark_injected(block: &mut Content) {
    if let Content::Text(text) = block {
        let harness = Json::string(Author::Harness.as_str());
        text.extra.insert(author::BLOCK_AUTHOR, harness);
    }
}

/// Splits texts that [`own_words`](author::own_words) reads more strictly than later readers do: the parts of the
/// harness become blocks of their own.
fn split_frames(content: &mut Vec<Content>) {
    let mut at = 0;
    while at < content.len() {
        let blocks = match &content[at] {
            Content::Text(text) if !author::is_injected(text) => split_frame(text),
            _ => None,
        };
        let Some(blocks) = blocks else {
            at += 1;
            continue;
        };
        let count = blocks.len();
        content.splice(at..=at, blocks);
        at += count;
    }
}

fn split_frame(text: &Text) -> Option<Vec<Content>> {
    let own = author::own_words(&text.text);
    if own.len() >= author::without_frames(&text.text).len() {
        return None;
    }
    Some(split_around(text, own))
}

/// Splits a text into the words of a person and the texts of the harness before and after them.
pub(super) fn split_around(text: &Text, mut own: Range<usize>) -> Vec<Content> {
    // Blocks are never blank, and a text that is all the harness's stays one block.
    if text.text[own.clone()].trim().is_empty() {
        own = text.text.len()..text.text.len();
    }
    if text.text[..own.start].trim().is_empty() {
        own.start = 0;
    }
    if text.text[own.end..].trim().is_empty() {
        own.end = text.text.len();
    }
    let shares = [
        (0..own.start, true),
        (own.clone(), false),
        (own.end..text.text.len(), true),
    ];
    let shares = shares.into_iter().filter(|(share, _)| !share.is_empty());
    let block = |(share, is_injected): (Range<usize>, bool)| {
        let mut block = Content::Text(Text {
            text: text.text[share].to_owned(),
            extra: text.extra.clone(),
        });
        if is_injected {
            mark_injected(&mut block);
        }
        block
    };
    shares.map(block).collect()
}

/// True if a message contains only texts of a harness. Images are by a person.
fn is_harness_only(message: &Message) -> bool {
    let is_frame = |block: &Content| match block {
        Content::Text(text) => {
            author::is_injected(text) || text.text.trim().is_empty() || author::is_frame(&text.text)
        }
        _ => false,
    };
    let is_text =
        |block: &Content| matches!(block, Content::Text(text) if !text.text.trim().is_empty());
    message.content().iter().all(is_frame) && message.content().iter().any(is_text)
}

fn author_mut(message: &mut Message) -> &mut Option<Author> {
    match message {
        Message::User(m) => &mut m.author,
        Message::Assistant(m) => &mut m.author,
        Message::ToolResult(m) => &mut m.author,
    }
}
