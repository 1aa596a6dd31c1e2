//! Whose words a message of a transcript is.
//!
//! A format that says so itself decides. Where it says nothing, what a parent agent sends to its sub-agent
//! is an agent's, and a text that is all frame is the harness's. Nothing is written for a message whose
//! author is that of its role.

use std::ops::Range;

use loopstore::model::{AgentMessage, Author, Content, Json, Message, Role, Text};
use loopstore_model::author;

/// Sets the author of a message whose record has none; `is_spawned`: in the session of a sub-agent.
pub(super) fn settle(message: &mut AgentMessage, is_spawned: bool) {
    let Some(inner) = message.message_mut() else {
        return;
    };
    let role = inner.role();
    let told = author_mut(inner).take();
    if role == Role::User && told != Some(Author::Harness) {
        part_frames(inner.content_mut());
    }
    let found = match (told, role) {
        (Some(told), _) => Some(told),
        (None, Role::User) if is_harness_only(inner) => Some(Author::Harness),
        (None, Role::User) if is_spawned => Some(Author::Agent),
        (None, _) => None,
    };
    *author_mut(inner) = found.filter(|author| *author != Author::of_role(role));
}

/// Makes the harness the author of a message, unless its record has another.
pub(super) fn by_harness(mut message: AgentMessage) -> AgentMessage {
    if let Some(inner) = message.message_mut() {
        author_mut(inner).get_or_insert(Author::Harness);
    }
    message
}

/// Whose words a record is by the kind of its origin: a word of the tool's own for where it came from.
pub(super) fn of_origin(kind: &str) -> Author {
    match kind {
        "human" | "user" | "cli" | "typed" | "channel" => Author::Human,
        "agent" | "subagent" | "coordinator" | "peer" | "teammate" => Author::Agent,
        _ => Author::Harness,
    }
}

/// Marks a block of a person's message that its harness put in.
pub(super) fn mark_injected(block: &mut Content) {
    if let Content::Text(text) = block {
        let harness = Json::string(Author::Harness.as_str());
        text.extra.insert(author::BLOCK_AUTHOR, harness);
    }
}

/// Parts texts that [`own_words`](author::own_words) reads more strictly than every later reader: the
/// harness's share becomes blocks of its own.
fn part_frames(content: &mut Vec<Content>) {
    let mut at = 0;
    while at < content.len() {
        let parted = match &content[at] {
            Content::Text(text) if !author::is_injected(text) => parted(text),
            _ => None,
        };
        let Some(blocks) = parted else {
            at += 1;
            continue;
        };
        let count = blocks.len();
        content.splice(at..=at, blocks);
        at += count;
    }
}

fn parted(text: &Text) -> Option<Vec<Content>> {
    let own = author::own_words(&text.text);
    if own.len() >= author::without_frames(&text.text).len() {
        return None;
    }
    Some(around(text, own))
}

/// Parts a text into a person's words and the harness's before and behind them.
pub(super) fn around(text: &Text, mut own: Range<usize>) -> Vec<Content> {
    // No block is blank, and what is all the harness's is one.
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

/// True if all that a message says is a harness's. An image is a person's.
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
