//! The sizes that edits store: of the messages or the part as recorded, and of what contexts show instead.

use std::ops::ControlFlow;

use super::append::recorded_size;
use super::live_edits::set_text;
use super::rows::{EditRow, EditedPart, LoopKey, Size};
use super::{StoreError, StoreRead, StoreResult, codec};
use crate::model::{AgentMessage, Content};
use crate::tokens::TokenCounter;

/// Returns the tokens of a part, and the bytes of its JSON.
///
/// # Errors
/// If the part cannot be written as JSON.
pub fn part_size(part: &Content, counter: &dyn TokenCounter) -> StoreResult<Size> {
    let json = serde_json::to_vec(part).map_err(|error| StoreError::Invalid(error.to_string()))?;
    Ok(Size {
        tokens: counter.block_tokens(part),
        bytes: json.len() as u64,
        messages: 0,
    })
}

/// Returns the size of a part as recorded, and that of the text shown instead.
///
/// # Errors
/// If the part cannot be written as JSON.
pub fn edited_sizes(
    part: &Content,
    text: Option<&str>,
    counter: &dyn TokenCounter,
) -> StoreResult<(Size, Size)> {
    let after = match text {
        None => Size::default(),
        Some(text) => {
            let mut shown = part.clone();
            set_text(&mut shown, text);
            part_size(&shown, counter)?
        }
    };
    Ok((part_size(part, counter)?, after))
}

/// Derives the sizes of an edit again from the messages that are stored now. An edit of a part whose message has no
/// content any more keeps its sizes.
///
/// # Errors
/// If the messages cannot be read.
pub fn measure(
    read: &dyn StoreRead,
    counter: &dyn TokenCounter,
    edit: &mut EditRow,
) -> StoreResult<()> {
    let Some(part) = edit.part else {
        let (from, to) = edit.seqs;
        edit.before = recorded_size(read, edit.loop_key, from..to.saturating_add(1))?;
        return Ok(());
    };
    let message = message_at(read, edit.loop_key, edit.seqs.0)?;
    if let Some(shown) = message.as_ref().and_then(|message| part_of(message, part)) {
        (edit.before, edit.after) = edited_sizes(shown, edit.text.as_deref(), counter)?;
    }
    Ok(())
}

fn part_of(message: &AgentMessage, part: EditedPart) -> Option<&Content> {
    let content = message.message()?.content();
    content.get(usize::try_from(part.number).ok()?)
}

fn message_at(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    seq: u32,
) -> StoreResult<Option<AgentMessage>> {
    let mut found = None;
    read.messages(loop_key, seq..seq.saturating_add(1), &mut |row| {
        if row.body.head.is_some() {
            found = Some(codec::decode(row.body, &mut |name| read.blob(name))?);
        }
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}
