//! Counts the messages of blocks, and the tokens that blocks cover and show.

use super::{RecountState, StoreRecount, count};
use crate::model::Role;
use crate::store::append::{recorded_size, size_through};
use crate::store::error::StoreResult;
use crate::store::{
    BlockKey, BlockMessage, BlockRow, Section, Turns, added_loops, quote_body, tokens_of_others,
    tokens_to,
};
use crate::tokens::TokenCounter;

/// Counts the next block; returns whether there was one.
pub(super) fn step(
    write: &mut dyn StoreRecount,
    counter: &dyn TokenCounter,
    state: &mut RecountState,
) -> StoreResult<bool> {
    let Some(block) = write.block_from(BlockKey(state.block.unwrap_or(0)))? else {
        return Ok(false);
    };
    let messages = count_messages(write, counter, &block)?;
    let covered = CoveredOriginals::of(write, &block)?;
    let shown = covered.shown(&messages)?;
    let tokens = covered.all + covered.of_others()?;
    write.put_block_tokens(block.key, tokens, shown)?;
    state.messages += messages.len() as u64;
    state.blocks += 1;
    state.block = Some(block.key.0 + 1);
    Ok(true)
}

/// Counts a block's own messages and returns them with their new counts.
fn count_messages(
    write: &mut dyn StoreRecount,
    counter: &dyn TokenCounter,
    block: &BlockRow,
) -> StoreResult<Vec<BlockMessage>> {
    let mut messages = write.block_messages(block.key)?;
    let mut counts = Vec::new();
    for (ordinal, message) in (0u32..).zip(&mut messages) {
        let Some(body) = &mut message.body else {
            continue;
        };
        body.tokens = match message.quotes.zip(message.replaces) {
            Some(place) => quote_body(&*write, counter, block.quoting(), place)?.tokens,
            None => count(body.clone(), counter)?,
        };
        counts.push((ordinal, body.tokens));
    }
    write.put_block_message_tokens(block.key, &counts)?;
    Ok(messages)
}

/// The originals that a block covers.
struct CoveredOriginals<'a> {
    reader: &'a dyn StoreRecount,
    block: &'a BlockRow,
    /// The tokens of all covered originals: the last turn may have grown since.
    all: u64,
}

impl<'a> CoveredOriginals<'a> {
    fn of(reader: &'a dyn StoreRecount, block: &'a BlockRow) -> StoreResult<Self> {
        let all = tokens_to(reader, block.loop_key, block.layout.end(), block.through)?;
        Ok(Self { reader, block, all })
    }

    fn tokens_of(&self, turns: Option<Turns>) -> StoreResult<u64> {
        let Some(turns) = turns else { return Ok(0) };
        let to = if turns.end() == self.block.layout.end() {
            self.all
        } else {
            size_through(self.reader, self.block.loop_key, turns.end())?.tokens
        };
        let before = size_through(self.reader, self.block.loop_key, turns.first)?;
        Ok(to.saturating_sub(before.tokens))
    }

    /// Returns the tokens that the block shows with these messages.
    fn shown(&self, messages: &[BlockMessage]) -> StoreResult<u64> {
        let layout = &self.block.layout;
        let mut shown = self.tokens_of(layout.first)? + self.tokens_of(layout.recent)?;
        for message in messages {
            if let (Section::Recent, Some(seq)) = (message.section, message.replaces) {
                let original =
                    recorded_size(self.reader, self.block.loop_key, seq..seq.saturating_add(1))?;
                let original = original.tokens;
                shown = shown.saturating_sub(original);
            }
            let body = message.body.as_ref();
            shown += body
                .filter(|body| body.role != Role::Extension)
                .map_or(0, |body| body.tokens);
        }
        Ok(shown)
    }

    /// Returns the tokens of the loops before its own that a rollup covers.
    fn of_others(&self) -> StoreResult<u64> {
        if !self.block.kind.covers_earlier_loops() {
            return Ok(0);
        }
        let before = self.block.extends;
        let before = before
            .map(|key| self.reader.block_by_key(key))
            .transpose()?;
        let mut tokens = match before {
            // Its own loop is that of this one.
            Some(before) if before.loop_key == self.block.loop_key => {
                tokens_of_others(self.reader, &before)?
            }
            Some(before) => before.tokens_covered,
            None => 0,
        };
        for (key, seq, turn) in added_loops(self.reader, self.block)? {
            let end = seq.saturating_add(1);
            tokens += tokens_to(self.reader, key, turn.saturating_add(1), end)?;
        }
        Ok(tokens)
    }
}
