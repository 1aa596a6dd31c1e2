//! Coverage: every message that a block covers is in exactly one range, with its disposition.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::extend::{
    BlockKey, BlockKind, BlockMessage, BlockRow, CoverageRow, Disposition, LoopKey, MessageSize,
    StoreResult,
};
use loopstore::internal::whole_as;
use loopstore::model::Role;

use super::blocks::WholeBlock;
use super::report::ProblemKind;
use super::verify::Verify;

/// Recent messages that are not shown unchanged: by sequence, true if a part is shown.
pub(super) type HiddenMessages = BTreeMap<u32, bool>;

/// Checks the coverage of a block.
pub(super) fn check(verify: &mut Verify<'_>, block: &WholeBlock) -> StoreResult<()> {
    let (own, others): (Vec<CoverageRow>, Vec<CoverageRow>) = block
        .coverage
        .iter()
        .partition(|row| row.loop_key == block.row.loop_key);
    let (problems, readable) = {
        let mut sweep = Sweep::new(block, &own);
        sweep.check_ranges();
        let swept = sweep.run(verify);
        sweep.check_ends();
        (sweep.problems, swept)
    };
    verify.found.readable(&block.place, readable)?;
    for detail in problems {
        let kind = ProblemKind::Coverage;
        verify.found.add(kind, &block.place, detail);
    }
    if block.row.kind.covers_earlier_loops() {
        return check_rollup(verify, block, &others);
    }
    if let Some(row) = others.first() {
        let detail = format!("it covers the loop with key {}, no rollup", row.loop_key.0);
        let kind = ProblemKind::Coverage;
        verify.found.add(kind, &block.place, detail);
    }
    Ok(())
}

/// Compares the messages and the ranges of a block in order.
struct Sweep<'a> {
    block: &'a WholeBlock,
    rows: &'a [CoverageRow],
    replaced: HiddenMessages,
    at: usize,
    /// The first and the last turn of the messages found in each range.
    found_turns: Vec<Option<(u32, u32)>>,
    problems: BTreeSet<String>,
}

impl<'a> Sweep<'a> {
    fn new(block: &'a WholeBlock, rows: &'a [CoverageRow]) -> Self {
        Self {
            block,
            rows,
            replaced: block.replaced(),
            at: 0,
            found_turns: vec![None; rows.len()],
            problems: BTreeSet::new(),
        }
    }

    /// Reports a problem once, for the first message with it.
    fn wrong(&mut self, detail: String) {
        if self.problems.len() < 20 {
            self.problems.insert(detail);
        }
    }

    fn check_ranges(&mut self) {
        let mut next = 0;
        for row in self.rows {
            let Some((from, to)) = row.seqs else {
                self.wrong("a range has no sequences".into());
                continue;
            };
            if from < next || to < from || to >= self.block.row.through {
                self.wrong(format!("the range {from} to {to} is out of order"));
            }
            next = to.saturating_add(1);
        }
    }

    fn run(&mut self, verify: &Verify<'_>) -> StoreResult<()> {
        let row = &self.block.row;
        verify
            .scan
            .sizes(row.loop_key, 0..row.through, &mut |message| {
                if message.role != Role::Extension {
                    self.check_message(&message);
                }
                Ok(ControlFlow::Continue(()))
            })
    }

    fn check_message(&mut self, message: &MessageSize) {
        let (seq, turn) = (message.seq, message.turn.unwrap_or_default());
        let is_before = |row: &CoverageRow| row.seqs.is_none_or(|(_, to)| to < seq);
        while self.rows.get(self.at).is_some_and(is_before) {
            self.at += 1;
        }
        let row = self.rows.get(self.at);
        let Some(row) = row.filter(|row| row.seqs.is_some_and(|(from, _)| from <= seq)) else {
            self.wrong(format!("message {seq} is in no range"));
            return;
        };
        let found = &mut self.found_turns[self.at];
        *found = Some((found.map_or(turn, |(first, _)| first), turn));
        if !self.fits(row.disposition, seq, turn) {
            let what = row.disposition.as_str();
            self.wrong(format!("message {seq} of turn {turn} is not {what}"));
        }
    }

    fn fits(&self, disposition: Disposition, seq: u32, turn: u32) -> bool {
        use Disposition as D;
        match (self.block.section(turn), self.replaced.get(&seq)) {
            (Some(0), _) | (Some(2), None) => disposition == D::Kept,
            (Some(2), Some(true)) => disposition == D::Truncated,
            (Some(2), Some(false)) if self.block.row.kind.is_sealed() => disposition == D::Sealed,
            (Some(2), Some(false)) => disposition == D::Dropped,
            (Some(1), _) => match disposition {
                D::Summarised | D::Dropped => true,
                D::RolledUp => self.block.row.kind == BlockKind::Rollup,
                D::Sealed => self.block.row.kind.is_sealed(),
                D::Kept => self.block.quotes(seq),
                D::Removed => self.block.is_removed(self.block.row.loop_key, seq),
                D::Truncated => false,
            },
            _ => false,
        }
    }

    /// Compares the turns of each range, and the messages that replace others, with those found.
    fn check_ends(&mut self) {
        for at in 0..self.rows.len() {
            let (row, found_turns) = (self.rows[at], self.found_turns[at]);
            if row.turns != found_turns {
                let (turns, seqs) = (row.turns, row.seqs);
                self.wrong(format!(
                    "range {seqs:?} names turns {turns:?} and has {found_turns:?}"
                ));
            }
        }
        let recent = self.block.row.layout.recent;
        let last = self.replaced.last_key_value().map(|(seq, _)| *seq);
        let is_beyond = last.is_some_and(|seq| seq >= self.block.row.through);
        if is_beyond || (recent.is_none() && last.is_some()) {
            self.wrong("a message stands for one that is not in its section".into());
        }
    }
}

/// Checks that a rollup covers every loop before its own, itself or through those it extends.
fn check_rollup(
    verify: &mut Verify<'_>,
    block: &WholeBlock,
    others: &[CoverageRow],
) -> StoreResult<()> {
    let above = above(verify, block);
    let Some(above) = verify.found.readable(&block.place, above)? else {
        return Ok(());
    };
    let whole = whole_as(block.row.kind);
    let mut problems = Vec::new();
    for row in whole_ranges(block, others) {
        let last = match above.get(&row.loop_key) {
            Some(cut) => cut.checked_sub(1),
            None => {
                problems.push(format!("the loop with key {} is not above", row.loop_key.0));
                continue;
            }
        };
        if row.disposition != whole || row.turns != last.map(|last| (0, last)) {
            let key = row.loop_key.0;
            problems.push(format!("the loop with key {key} is not covered whole"));
        }
    }
    let covered = coverage_of(verify, block, others, &above);
    if let Some(covered) = verify.found.readable(&block.place, covered)? {
        let has_turns = above.iter().filter(|(_, turns)| **turns > 0);
        for (key, _) in has_turns.filter(|(key, _)| !covered.contains_key(key)) {
            problems.push(format!("the loop with key {} is not covered", key.0));
        }
        problems.extend(unkept(block, &covered));
    }
    for detail in problems {
        let kind = ProblemKind::Coverage;
        verify.found.add(kind, &block.place, detail);
    }
    Ok(())
}

/// Returns the coverage of other loops without the ranges of quotes in it.
fn whole_ranges(block: &WholeBlock, others: &[CoverageRow]) -> Vec<CoverageRow> {
    let mut ranges: Vec<CoverageRow> = Vec::new();
    for row in others {
        let (first, last) = row.seqs.unwrap_or((1, 0));
        let is_quote =
            |(key, seq): (LoopKey, u32)| key == row.loop_key && (first..=last).contains(&seq);
        let mut quotes = block.messages.iter().filter_map(BlockMessage::quoted);
        let mut row = *row;
        let is_removed =
            row.disposition == Disposition::Removed && block.is_removed(row.loop_key, first);
        if is_removed || row.disposition == Disposition::Kept && quotes.any(is_quote) {
            row.disposition = whole_as(block.row.kind);
        }
        match ranges.last_mut() {
            Some(before) if before.goes_on_with(&row) => {
                before.seqs = before.seqs.zip(row.seqs).map(|(a, b)| (a.0, b.1));
                before.turns = before.turns.zip(row.turns).map(|(a, b)| (a.0, b.1));
            }
            _ => ranges.push(row),
        }
    }
    ranges
}

/// Returns the loops above that of a block, each with the number of its turns that belong to the chain.
fn above(verify: &Verify<'_>, block: &WholeBlock) -> StoreResult<BTreeMap<LoopKey, u32>> {
    let mut above = BTreeMap::new();
    let Some(parent) = block.loop_key.parent else {
        return Ok(above);
    };
    let mut cut = block.loop_key.parent_turns();
    verify.scan.walk(parent, &mut |row| {
        above.insert(row.key, cut.min(row.totals.turns));
        cut = row.parent_turns();
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(above)
}

/// Returns the coverage of each loop above: the block's own, else that of the nearest rollup that the block
/// extends.
fn coverage_of(
    verify: &Verify<'_>,
    block: &WholeBlock,
    others: &[CoverageRow],
    above: &BTreeMap<LoopKey, u32>,
) -> StoreResult<BTreeMap<LoopKey, Vec<CoverageRow>>> {
    let mut covered = by_loop(others);
    let is_missing = |covered: &BTreeMap<LoopKey, Vec<CoverageRow>>| {
        let mut turns = above.iter().filter(|(_, turns)| **turns > 0);
        turns.any(|(key, _)| !covered.contains_key(key))
    };
    let mut extends = earlier(&block.row);
    while let Some(key) = extends.filter(|_| is_missing(&covered)) {
        for (loop_key, rows) in by_loop(&verify.scan.coverage(key)?) {
            covered.entry(loop_key).or_insert(rows);
        }
        let (row, _) = verify.scan.block_and_digest(key)?;
        extends = earlier(&row);
    }
    Ok(covered)
}

fn by_loop(rows: &[CoverageRow]) -> BTreeMap<LoopKey, Vec<CoverageRow>> {
    let mut by_loop: BTreeMap<LoopKey, Vec<CoverageRow>> = BTreeMap::new();
    for row in rows {
        by_loop.entry(row.loop_key).or_default().push(*row);
    }
    by_loop
}

/// Returns the problems of quotes from the loops above: the coverage must record them as kept.
fn unkept(block: &WholeBlock, covered: &BTreeMap<LoopKey, Vec<CoverageRow>>) -> Vec<String> {
    let quoted = block.messages.iter().filter_map(BlockMessage::quoted);
    let others = quoted.filter(|(key, _)| *key != block.row.loop_key);
    let unkept = others.filter(|(key, seq)| {
        let holds = |row: &&CoverageRow| {
            row.seqs
                .is_some_and(|(first, last)| (first..=last).contains(seq))
        };
        let row = covered
            .get(key)
            .and_then(|rows| rows.iter().find(|row| holds(row)));
        row.is_none_or(|row| row.disposition != Disposition::Kept)
    });
    let describe = |(key, seq): (LoopKey, u32)| {
        let key = key.0;
        format!("message {seq} of the loop with key {key} is quoted, and coverage does not say so")
    };
    unkept.map(describe).collect()
}

/// Returns the rollup that a block extends. Keys decrease, so the walk back ends.
fn earlier(row: &BlockRow) -> Option<BlockKey> {
    row.extends.filter(|extends| *extends < row.key)
}
