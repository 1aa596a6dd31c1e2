//! Coverage: the disposition of everything that a block replaces.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use super::ranges::{size_of, through};
use crate::model::{Role, Turns};
use crate::store::active_blocks::ChainLink;
use crate::store::{CoverageRow, Disposition, LoopKey, StoreRead, StoreResult};

/// Returns the coverage of a loop that the summary on another loop covers whole, up to its cut.
///
/// The range ends at the last message before the cut, as the range of a block on the loop does, since the summary was
/// made from these messages.
pub fn rolled_up(read: &dyn StoreRead, link: &ChainLink) -> StoreResult<CoverageRow> {
    let through = through(read, link, link.turns)?;
    Ok(CoverageRow {
        loop_key: link.row.key,
        seqs: through.checked_sub(1).map(|last| (0, last)),
        turns: link.turns.checked_sub(1).map(|last| (0, last)),
        disposition: Disposition::RolledUp,
    })
}

/// The coverage of a block's own loop while it is built, section by section.
pub(super) struct OwnCoverage {
    loop_key: LoopKey,
    rows: Vec<CoverageRow>,
}

impl OwnCoverage {
    pub(super) fn new(loop_key: LoopKey) -> Self {
        let rows = Vec::new();
        Self { loop_key, rows }
    }

    /// Covers some turns with one disposition.
    pub(super) fn add(&mut self, turns: Turns, seqs: &Range<u32>, disposition: Disposition) {
        self.rows.push(CoverageRow {
            loop_key: self.loop_key,
            seqs: Some((seqs.start, seqs.end.saturating_sub(1))),
            turns: Some((turns.first, turns.last)),
            disposition,
        });
    }

    /// Covers one message of a section that begins with the turn `section`, together with neighbours of the
    /// same disposition.
    pub(super) fn add_message(
        &mut self,
        (turn, seq): (u32, u32),
        section: u32,
        disposition: Disposition,
    ) {
        if let Some(row) = self.rows.last_mut()
            && row.disposition == disposition
            && let (Some(seqs), Some(turns)) = (row.seqs.as_mut(), row.turns.as_mut())
            && turns.0 >= section
        {
            (seqs.1, turns.1) = (seq, turn);
            return;
        }
        self.add(
            Turns::only(turn),
            &(seq..seq.saturating_add(1)),
            disposition,
        );
    }

    /// Returns the rows. Extensions between two ranges belong to the first of them, and the last range ends
    /// at the end of the block.
    pub(super) fn finish(mut self, through: u32) -> Vec<CoverageRow> {
        let mut end = through;
        for row in self.rows.iter_mut().rev() {
            if let Some(seqs) = &mut row.seqs {
                seqs.1 = end.saturating_sub(1);
                end = seqs.0;
            }
        }
        self.rows
    }
}

/// Splits compacted turns into runs of summarised and dropped ones.
pub(super) fn dispositions(turns: Turns, summarised: &BTreeSet<u32>) -> Vec<(Turns, Disposition)> {
    let mut runs: Vec<(Turns, Disposition)> = Vec::new();
    for turn in turns.first..=turns.last {
        let disposition = match summarised.contains(&turn) {
            true => Disposition::Summarised,
            false => Disposition::Dropped,
        };
        match runs.last_mut() {
            Some((run, same)) if *same == disposition => run.last = turn,
            _ => runs.push((Turns::only(turn), disposition)),
        }
    }
    runs
}

/// Returns the number of messages that a range covers; extensions do not count. With `within_turns`, the range
/// may begin or end within a turn, as it does next to a quote.
pub fn message_count(
    read: &dyn StoreRead,
    row: &CoverageRow,
    within_turns: bool,
) -> StoreResult<u64> {
    use Disposition as D;
    let is_part = within_turns
        || matches!(
            row.disposition,
            D::Kept | D::Truncated | D::Dropped | D::Removed
        );
    match (row.seqs, row.turns) {
        (Some((first, last)), _) if is_part => {
            let (mut messages, seqs) = (0, first..last.saturating_add(1));
            read.sizes(row.loop_key, seqs, &mut |message| {
                messages += u64::from(message.role != Role::Extension);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(messages)
        }
        (_, Some((first, last))) => {
            let end = row.seqs.map(|(_, last)| last.saturating_add(1));
            Ok(size_of(read, row.loop_key, Turns { first, last }, end)?.messages)
        }
        _ => Ok(0),
    }
}
