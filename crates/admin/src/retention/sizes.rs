//! Values derived from the sizes of messages: totals of turns and loops, and the coverage and sizes of blocks.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use loopstore::TokenCounter;
use loopstore::extend::{
    BlockKey, BlockMessage, BlockRow, LoopKey, MessageSize, Section, SessionKey, Size, StoreRead,
    StoreResult, StoreWrite, Turns, quote_body,
};
use loopstore::internal::added_loops;
use loopstore::model::Role;

/// The growth of a message; negative if it shrank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SizeChange {
    pub(super) tokens: i64,
    pub(super) bytes: i64,
}

impl SizeChange {
    /// Returns the change from one size to another.
    pub(super) fn between(before: (u64, u64), after: (u64, u64)) -> Self {
        let less = |a: u64, b: u64| a.cast_signed().saturating_sub(b.cast_signed());
        Self {
            tokens: less(after.0, before.0),
            bytes: less(after.1, before.1),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The changes of sizes in a session. Of extensions only system prompts count.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Messages that are no extension, by loop and sequence.
    pub(super) messages: BTreeMap<LoopKey, BTreeMap<u32, SizeChange>>,
    /// System prompts, by loop.
    pub(super) system: BTreeMap<LoopKey, SizeChange>,
    /// Messages of blocks that are no extension.
    pub(super) in_blocks: BTreeMap<BlockKey, SizeChange>,
}

impl Changes {
    /// Writes all values that depend on the changes.
    pub(super) fn settle(
        &self,
        write: &mut dyn StoreWrite,
        counter: &dyn TokenCounter,
        session: SessionKey,
    ) -> StoreResult<()> {
        let loops = write.loops(session)?;
        for row in &loops {
            if self.messages.contains_key(&row.key) || self.system.contains_key(&row.key) {
                self.settle_loop(write, row.key)?;
            }
        }
        let mut blocks = Vec::new();
        for row in &loops {
            blocks.extend(write.blocks_of_loop(row.key)?);
        }
        // A rollup comes after the one that it extends.
        blocks.sort_by_key(|block| block.key);
        let mut covered: HashMap<BlockKey, CoveredSizes> = HashMap::new();
        for block in blocks {
            self.settle_block(write, counter, block, &mut covered)?;
        }
        Ok(())
    }

    fn settle_loop(&self, write: &mut dyn StoreWrite, key: LoopKey) -> StoreResult<()> {
        let mut row = write.loop_by_key(key)?;
        let system = self.system.get(&key).copied().unwrap_or_default();
        row.progress.system_tokens = moved(row.progress.system_tokens, system.tokens);
        let totals = &mut row.totals;
        let none = BTreeMap::new();
        let messages = self.messages.get(&key).unwrap_or(&none);
        let mut by_turn: BTreeMap<u32, SizeChange> = BTreeMap::new();
        for (seq, change) in messages {
            let turn = turn_of(write, key, *seq)?;
            by_turn.entry(turn.unwrap_or(0)).or_default().add(*change);
        }
        let first = by_turn.keys().next().copied().unwrap_or(totals.turns);
        let mut sum = SizeChange::default();
        for mut turn in write.turns(key, first..totals.turns)? {
            sum.add(by_turn.get(&turn.turn).copied().unwrap_or_default());
            turn.tokens = moved(turn.tokens, sum.tokens);
            turn.bytes = moved(turn.bytes, sum.bytes);
            write.put_turn(key, &turn)?;
        }
        totals.tokens = moved(totals.tokens, sum.tokens);
        totals.bytes = moved(totals.bytes, sum.bytes);
        write.update_loop(&row)
    }

    fn settle_block(
        &self,
        write: &mut dyn StoreWrite,
        counter: &dyn TokenCounter,
        mut block: BlockRow,
        covered: &mut HashMap<BlockKey, CoveredSizes>,
    ) -> StoreResult<()> {
        let messages = write.block_messages(block.key)?;
        let (own, mut shown) = self.of_sections(write, &block, &messages)?;
        shown.add(self.in_blocks.get(&block.key).copied().unwrap_or_default());
        shown.add(self.settle_quotes(write, counter, &block, &messages)?);
        let others = self.of_others(write, &block, covered)?;
        let all = own.saturating_add(others);
        let loop_key = block.loop_key;
        covered.insert(
            block.key,
            CoveredSizes {
                loop_key,
                own,
                others,
            },
        );
        if all == 0 && shown == SizeChange::default() {
            return Ok(());
        }
        block.tokens_covered = moved(block.tokens_covered, all);
        block.size = Size {
            tokens: moved(block.size.tokens, shown.tokens),
            bytes: moved(block.size.bytes, shown.bytes),
            ..block.size
        };
        write.resize_block(&block)
    }

    /// Writes the sizes of a block's quotes whose originals changed, and returns the changes.
    fn settle_quotes(
        &self,
        write: &mut dyn StoreWrite,
        counter: &dyn TokenCounter,
        block: &BlockRow,
        messages: &[BlockMessage],
    ) -> StoreResult<SizeChange> {
        let mut all = SizeChange::default();
        for (ordinal, message) in (0u32..).zip(messages) {
            let (Some((key, seq)), Some(old)) = (message.quoted(), &message.body) else {
                continue;
            };
            let changes = self.messages.get(&key);
            if changes.is_none_or(|changes| !changes.contains_key(&seq)) {
                continue;
            }
            let quote = quote_body(write, counter, block.quoting(), (key, seq))?;
            write.resize_quote(block.key, ordinal, &quote)?;
            let (before, after) = ((old.tokens, old.bytes), (quote.tokens, quote.bytes));
            all.add(SizeChange::between(before, after));
        }
        Ok(all)
    }

    /// Returns the change of the messages that a block covers in its own loop, and of the originals that it
    /// shows.
    fn of_sections(
        &self,
        read: &dyn StoreRead,
        block: &BlockRow,
        messages: &[BlockMessage],
    ) -> StoreResult<(i64, SizeChange)> {
        let (mut all, mut shown) = (0i64, SizeChange::default());
        let Some(changes) = self.messages.get(&block.loop_key) else {
            return Ok((all, shown));
        };
        let recent = || messages.iter().filter(|one| one.section == Section::Recent);
        let replaced = |seq: u32| recent().any(|one| one.replaces == Some(seq));
        for (seq, change) in changes.range(..block.through) {
            all = all.saturating_add(change.tokens);
            let Some(turn) = turn_of(read, block.loop_key, *seq)? else {
                continue;
            };
            let is_in =
                |turns: Option<Turns>| turns.is_some_and(|t| t.first <= turn && turn <= t.last);
            if is_in(block.layout.first) || (is_in(block.layout.recent) && !replaced(*seq)) {
                shown.add(*change);
            }
        }
        Ok((all, shown))
    }

    /// Returns the change of the messages that a rollup covers in other loops.
    fn of_others(
        &self,
        read: &dyn StoreRead,
        block: &BlockRow,
        covered: &HashMap<BlockKey, CoveredSizes>,
    ) -> StoreResult<i64> {
        if !block.kind.covers_earlier_loops() {
            return Ok(0);
        }
        let before = block.extends.and_then(|key| covered.get(&key));
        let mut all = match before {
            // The earlier rollup belongs to the same loop.
            Some(before) if before.loop_key == block.loop_key => before.others,
            Some(before) => before.own.saturating_add(before.others),
            None => 0,
        };
        for (key, seq, _) in added_loops(read, block)? {
            if let Some(changes) = self.messages.get(&key) {
                all += changes
                    .range(..=seq)
                    .map(|(_, change)| change.tokens)
                    .sum::<i64>();
            }
        }
        Ok(all)
    }
}

/// The growth of the originals that a block covers, in tokens.
struct CoveredSizes {
    loop_key: LoopKey,
    /// In its own loop.
    own: i64,
    /// In the loops before.
    others: i64,
}

fn moved(number: u64, by: i64) -> u64 {
    number.saturating_add_signed(by)
}

fn turn_of(read: &dyn StoreRead, key: LoopKey, seq: u32) -> StoreResult<Option<u32>> {
    let mut found = None;
    read.sizes(key, seq..seq.saturating_add(1), &mut |size: MessageSize| {
        found = size.turn.filter(|_| size.role != Role::Extension);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}
