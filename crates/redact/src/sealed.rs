//! Content that only a provider can read, in a redacted message.

use loopstore_model::{AgentMessage, Content, Json, Message};

/// Removes the signature of thinking that has changed, and sealed items that have changed.
pub(super) fn unsign(before: &AgentMessage, after: &mut AgentMessage) {
    let old = before.message().map(Message::content).unwrap_or_default();
    let Some(new) = after.message_mut() else {
        return;
    };
    let mut old = old.iter();
    new.content_mut().retain_mut(|new| {
        let old = old.next();
        match (old, &mut *new) {
            (Some(Content::Thinking(old)), Content::Thinking(new))
                if old.thinking != new.thinking =>
            {
                new.signature = None;
            }
            (Some(old), Content::Sealed(_)) => return old == new,
            (Some(old), Content::Other(json)) if is_signed(json) => return old == new,
            _ => {}
        }
        true
    });
}

/// Returns the numbers of the parts that [`drop_sealed`] removes from a message, in order.
#[doc(hidden)]
pub fn sealed_parts(message: &AgentMessage, all: bool) -> Vec<usize> {
    let content = message.message().map_or(&[][..], |inner| inner.content());
    let parts = content.iter().enumerate();
    let removed = parts.filter(|(_, block)| is_removed(block, all));
    removed.map(|(number, _)| number).collect()
}

/// Removes all sealed content and the signatures of thinking, or only compactions; returns true if there was any.
#[doc(hidden)]
pub fn drop_sealed(message: &mut AgentMessage, all: bool) -> bool {
    let Some(inner) = message.message_mut() else {
        return false;
    };
    let content = inner.content_mut();
    let before = content.len();
    content.retain(|block| !is_removed(block, all));
    let mut dropped = content.len() < before;
    if all {
        for block in content {
            if let Content::Thinking(thinking) = block {
                dropped |= thinking.signature.take().is_some();
            }
        }
    }
    dropped
}

fn is_removed(block: &Content, all: bool) -> bool {
    match block {
        Content::Sealed(sealed) => all || sealed.compaction().is_some(),
        Content::Other(json) => all && is_signed(json),
        _ => false,
    }
}

/// True if an item of a provider has content that only the provider can read.
fn is_signed(item: &Json) -> bool {
    item.as_str().contains("\"encrypted_")
}
