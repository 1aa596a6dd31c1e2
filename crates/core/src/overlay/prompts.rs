//! The prompts of people on a chain, which a compaction may keep word for word.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::pins::PinnedMessage;
use crate::model::{Author, Role};
use crate::store::active_blocks::{ActiveBlocks, ChainView};
use crate::store::{Cut, LiveEdits, LoopKey, MessageEdit, Size, StoreRead, StoreResult};

/// A prompt of a person on a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonPrompt {
    /// The message.
    pub message: PinnedMessage,
    /// The tokens of the message as contexts show it.
    pub tokens: u64,
    /// The ids of the runs whose live edits replaced or removed parts of the message.
    pub edits: Vec<String>,
    /// False if a live edit removed the message or cleared a part of it: a quote would show what was cleared.
    pub can_be_quoted: bool,
}

impl PersonPrompt {
    fn of(message: PinnedMessage, size: Size, edits: Option<&LiveEdits>) -> Self {
        let mut prompt = Self {
            message,
            tokens: size.tokens,
            edits: Vec::new(),
            can_be_quoted: true,
        };
        let Some(edits) = edits else { return prompt };
        match edits.at(message.seq) {
            None => {}
            Some(MessageEdit::Removed) => prompt.can_be_quoted = false,
            Some(MessageEdit::Parts(edited)) => {
                prompt.tokens = edited.resized(size).tokens;
                prompt.can_be_quoted = !edited.has_cleared();
                let only = message.seq..message.seq.saturating_add(1);
                let runs: BTreeSet<&str> = edits.rewriting(&only).collect();
                prompt.edits = runs.into_iter().map(str::to_owned).collect();
            }
        }
        prompt
    }
}

/// Returns the prompts of people on the chain of a leaf, the newest first.
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
            let turn = message.turn.filter(|turn| cut.holds(*turn, seq));
            if let Some(turn) = turn.filter(|_| is_prompt) {
                let place = PinnedMessage {
                    loop_key,
                    seq,
                    turn,
                };
                own.push(PersonPrompt::of(place, message.size, edits.as_ref()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        prompts.extend(own.into_iter().rev());
    }
    Ok(prompts)
}
