//! The messages that a summary hides, but for which coverage has a disposition of their own: quoted ones are kept, and
//! those that an edit removed are no part of the summary.

use std::ops::{ControlFlow, Range};

use super::coverage::OwnCoverage;
use super::pins::PinnedMessage;
use crate::model::{Role, Turns};
use crate::store::{CoverageRow, Disposition, LiveEdits, LoopKey, StoreRead, StoreResult};

/// The messages with a disposition of their own.
#[derive(Clone, Copy)]
pub(super) struct Exceptions<'a> {
    /// The pinned messages that the block quotes.
    pub(super) quotes: &'a [PinnedMessage],
    /// The live edits of the covered loop.
    pub(super) edits: Option<&'a LiveEdits>,
}

impl Exceptions<'_> {
    /// True if one of these messages of a loop may be an exception.
    pub(super) fn are_in(&self, loop_key: LoopKey, turns: Turns, seqs: &Range<u32>) -> bool {
        let is_here = |pin: &PinnedMessage| pin.loop_key == loop_key && turns.contains(pin.turn);
        self.quotes.iter().any(is_here) || self.edits.is_some_and(|edits| edits.touches(seqs))
    }

    fn disposition(&self, row: &CoverageRow, seq: u32) -> Disposition {
        let is_quoted = |pin: &PinnedMessage| pin.place() == (row.loop_key, seq);
        if self.quotes.iter().any(is_quoted) {
            return Disposition::Kept;
        }
        match self.edits.is_some_and(|edits| edits.removes(seq)) {
            true => Disposition::Removed,
            false => row.disposition,
        }
    }
}

/// Covers the messages that a summary hides, one by one.
pub(super) fn cover_with_exceptions(
    read: &dyn StoreRead,
    coverage: &mut OwnCoverage,
    row: &CoverageRow,
    exceptions: Exceptions<'_>,
) -> StoreResult<()> {
    let (Some((first, last)), Some((section, _))) = (row.seqs, row.turns) else {
        return Ok(());
    };
    let mut is_first = true;
    read.sizes(
        row.loop_key,
        first..last.saturating_add(1),
        &mut |message| {
            let Some(turn) = message.turn.filter(|_| message.role != Role::Extension) else {
                return Ok(ControlFlow::Continue(()));
            };
            let disposition = exceptions.disposition(row, message.seq);
            if std::mem::take(&mut is_first) {
                let seqs = first..message.seq.saturating_add(1);
                coverage.add(Turns::only(turn), &seqs, disposition);
            } else {
                coverage.add_message((turn, message.seq), section, disposition);
            }
            Ok(ControlFlow::Continue(()))
        },
    )
}

/// Splits the coverage of a loop that the summary on another loop covers whole.
pub(super) fn split_by_exceptions(
    read: &dyn StoreRead,
    row: CoverageRow,
    exceptions: Exceptions<'_>,
) -> StoreResult<Vec<CoverageRow>> {
    let turns = row.turns.map(|(first, last)| Turns { first, last });
    let (Some((first, last)), Some(turns)) = (row.seqs, turns) else {
        return Ok(vec![row]);
    };
    let end = last.saturating_add(1);
    if !exceptions.are_in(row.loop_key, turns, &(first..end)) {
        return Ok(vec![row]);
    }
    let mut coverage = OwnCoverage::new(row.loop_key);
    cover_with_exceptions(read, &mut coverage, &row, exceptions)?;
    Ok(coverage.finish(end))
}
