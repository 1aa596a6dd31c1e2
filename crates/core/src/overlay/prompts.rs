//! The prompts of people on a chain, which a compaction may keep word for word.

use std::ops::ControlFlow;

use super::pins::PinnedMessage;
use crate::model::{Author, Role};
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{Cut, LoopKey, StoreRead, StoreResult};

/// A prompt of a person on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersonPrompt {
    /// The message.
    pub message: PinnedMessage,
    /// The tokens of the message as recorded.
    pub tokens: u64,
}

/// Returns the prompts of people on the chain of a leaf, the newest first. A prompt with a live edit is left out: a
/// quote shows the original.
///
/// # Errors
/// If the store fails.
pub fn prompts_of_people(read: &dyn StoreRead, leaf: LoopKey) -> StoreResult<Vec<PersonPrompt>> {
    let (mut loops, mut cut) = (Vec::new(), Cut::NONE);
    read.walk(leaf, &mut |row| {
        loops.push((row.key, cut, row.totals.next_seq, row.edits > 0));
        cut = row.parent_cut();
        Ok(ControlFlow::Continue(()))
    })?;
    let mut walk = ActiveBlocks::new(read, leaf, ChainView::default());
    let mut prompts = Vec::new();
    for (loop_key, cut, end, is_edited) in loops {
        let edits = match is_edited {
            true => walk.live_edits(loop_key)?,
            false => None,
        };
        let mut own = Vec::new();
        read.sizes(loop_key, 0..end, &mut |message| {
            let (seq, is_person) = (message.seq, message.author == Author::Human);
            let is_prompt = message.role == Role::User && is_person;
            let only = seq..seq.saturating_add(1);
            let has_edit = edits.as_ref().is_some_and(|edits| edits.touches(&only));
            let turn = message.turn.filter(|turn| cut.holds(*turn, seq));
            if let Some(turn) = turn.filter(|_| is_prompt && !has_edit) {
                own.push(PersonPrompt {
                    message: PinnedMessage {
                        loop_key,
                        seq,
                        turn,
                    },
                    tokens: message.size.tokens,
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
        prompts.extend(own.into_iter().rev());
    }
    Ok(prompts)
}
