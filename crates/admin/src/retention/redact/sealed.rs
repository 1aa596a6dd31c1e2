//! Content that only a provider can read, in sessions where a message was redacted.
//!
//! Only the provider can read sealed content, which was made from the messages that it is bound to. Where a
//! message changes, the sealed items of its turn and the signatures of thinking are removed, and also every
//! compaction that replaces the message. Such a compaction is undone.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use loopstore::extend::{
    BlockKey, BlockRow, FlipRow, LoopKey, LoopRow, Outcome, RunRow, SessionKey, StoreRead,
    StoreResult, StoreWrite,
    scan::{MessagePlace, StoreScan},
};
use loopstore::internal::SealedRecord;
use loopstore::model::{AgentMessage, LoopId, Time};
use loopstore_redact::drop_sealed;

use super::RedactableText;

/// The sealed content that is removed.
#[derive(Default)]
pub(super) struct SealedDrops {
    /// The turns in which a message changes.
    turns: BTreeSet<(LoopKey, u32)>,
    /// The messages that change.
    changed: BTreeSet<(LoopKey, u32)>,
    /// The messages whose compaction is removed.
    compactions: BTreeSet<(LoopKey, u32)>,
    /// The blocks of these compactions.
    blocks: BTreeSet<BlockKey>,
    /// Their runs.
    runs: Vec<RunRow>,
}

impl SealedDrops {
    /// Records that a message changes.
    pub(super) fn changes(&mut self, key: LoopKey, seq: u32, turn: Option<u32>) {
        self.changed.insert((key, seq));
        self.turns.extend(turn.map(|turn| (key, turn)));
    }

    /// Finds the compactions that replace changed messages.
    pub(super) fn find_compactions(
        &mut self,
        scan: &dyn StoreScan,
        session: SessionKey,
    ) -> StoreResult<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let read: &dyn StoreRead = scan;
        let mut runs = Vec::new();
        read.runs(session, &mut |run| {
            let by = run.sealed_by();
            if by.is_some() && run.outcome == Outcome::Committed {
                runs.push(run);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let loops = scan.loops(session)?;
        let key_of = |id: &LoopId| {
            loops
                .iter()
                .find(|row| row.loop_id == *id)
                .map(|row| row.key)
        };
        for run in runs {
            let record = SealedRecord::of(&run);
            let place = record.and_then(|record| Some((key_of(&record.loop_id)?, record.seq)));
            let blocks = read.blocks_of_run(run.key)?;
            let mut goes = place.is_some_and(|place| self.changed.contains(&place));
            // A compaction that was made on request contains the messages of the request, covered or not.
            let through = SealedRecord::through(&run);
            if let Some((key, seq)) = through.and_then(|(id, seq)| Some((key_of(&id)?, seq))) {
                goes = goes || self.changed.range((key, 0)..=(key, seq)).next().is_some();
            }
            for block in &blocks {
                goes = goes || self.covers_a_change(read, block)?;
            }
            if goes {
                self.compactions.extend(place);
                self.blocks.extend(blocks.iter().map(|block| block.key));
                self.runs.push(run);
            }
        }
        Ok(())
    }

    fn covers_a_change(&self, read: &dyn StoreRead, block: &BlockRow) -> StoreResult<bool> {
        let mut next = Some((block.key, block.extends));
        while let Some((key, extends)) = next {
            for row in read.coverage(key)? {
                let (from, to) = row.seqs.unwrap_or((1, 0));
                let mut changed = self
                    .changed
                    .range((row.loop_key, from)..=(row.loop_key, to.max(from)));
                if from <= to && changed.next().is_some() {
                    return Ok(true);
                }
            }
            next = match extends.filter(|before| *before < key) {
                Some(before) => Some((before, read.block_by_key(before)?.extends)),
                None => None,
            };
        }
        Ok(false)
    }

    /// Returns a message, already redacted or not, without the removed content; `None` if nothing changes.
    pub(super) fn apply(
        &self,
        target: &RedactableText,
        row: &LoopRow,
        new: Option<AgentMessage>,
    ) -> Option<AgentMessage> {
        let (in_turn, as_compaction) = match target.place {
            MessagePlace::InLoop(key, seq) => (
                target
                    .turn
                    .is_some_and(|turn| self.turns.contains(&(key, turn))),
                self.compactions.contains(&(key, seq)),
            ),
            MessagePlace::InBlock(block, _) => (
                target
                    .turn
                    .is_some_and(|turn| self.turns.contains(&(row.key, turn))),
                self.blocks.contains(&block),
            ),
        };
        // A text of a block that was made from a changed message changes too.
        let in_turn = in_turn || (new.is_some() && target.turn.is_some());
        if !in_turn && !as_compaction {
            return new;
        }
        let mut open = new.clone().unwrap_or_else(|| target.message.clone());
        match drop_sealed(&mut open, in_turn) {
            true => Some(open),
            false => new,
        }
    }

    /// Undoes the removed compactions.
    pub(super) fn undo(&self, write: &mut dyn StoreWrite, session: SessionKey) -> StoreResult<()> {
        for run in &self.runs {
            if write.flips(run.key)?.last().is_some_and(|flip| !flip.redo) {
                continue;
            }
            let mut owner = write.session_by_key(session)?;
            owner.tick += 1;
            let row = FlipRow {
                run: run.key,
                redo: false,
                point: run.point,
                tick: owner.tick,
                at: Time::now().as_str().to_owned(),
                reason: Some("redacted".to_owned()),
            };
            write.insert_flip(session, &row)?;
            write.touch_session(&(&owner).into())?;
        }
        Ok(())
    }
}
