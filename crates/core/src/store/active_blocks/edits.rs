//! The edits that are live from the leaf of a walk, and those that a summary was made with.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use super::{ActiveBlocks, first_seq};
use crate::store::live_edits::EditCollector;
use crate::store::packed_edits::{PackedHead, PackedSection, read_runs};
use crate::store::rows::{
    BlockCore, EditRow, LoopCore, LoopKey, PackedRuns, RunEdit, RunKey, RunRow, SessionKey,
};
use crate::store::{LiveEdits, StoreRead, StoreResult, Tick};

/// The edits of a run that is still open.
#[derive(Clone, Copy, Debug)]
pub struct PendingEdits<'a> {
    /// The run.
    pub run: &'a RunRow,
    /// Its edits in order.
    pub rows: &'a [EditRow],
}

/// The packed edits of the committed runs of a session.
#[derive(Default)]
pub(super) struct EditedLoops {
    packed: PackedRuns,
    /// The runs in the order of their ticks.
    runs: Vec<PackedHead>,
    /// The sections by loop; those of a loop in the order of the runs.
    sections: Vec<PackedSection>,
}

impl EditedLoops {
    fn load(read: &dyn StoreRead, session: SessionKey, until: Option<Tick>) -> StoreResult<Self> {
        let packed = read.packed_edits(session, until)?;
        let (runs, mut sections) = read_runs(&packed.edits)?;
        sections.sort_by_key(|section| section.loop_key);
        Ok(Self {
            packed,
            runs,
            sections,
        })
    }

    /// Returns the sections of a loop in the order of the runs.
    fn sections_of(&self, loop_key: LoopKey) -> &[PackedSection] {
        let of_loop = self.sections.as_slice();
        let start = of_loop.partition_point(|section| section.loop_key < loop_key);
        let end = of_loop.partition_point(|section| section.loop_key <= loop_key);
        &of_loop[start..end]
    }
}

impl ActiveBlocks<'_> {
    /// True if the edits that a block was made with are the live ones.
    pub(super) fn has_its_edits(
        &mut self,
        row: &LoopCore,
        block: &BlockCore,
        edits: Option<&LiveEdits>,
    ) -> StoreResult<bool> {
        let live = self.edits_behind(row.parent, block, edits)?;
        Ok(live.iter().eq(&block.edits))
    }

    /// Returns the ids of the live runs that removed or replaced something of a message that a block hides, or that
    /// its text may quote. `edits` are the live edits of the loop of the block, and `parent` is the parent of that
    /// loop.
    ///
    /// # Errors
    /// If the store fails.
    pub fn edits_behind(
        &mut self,
        parent: Option<LoopKey>,
        block: &BlockCore,
        edits: Option<&LiveEdits>,
    ) -> StoreResult<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        if let Some(edits) = edits {
            let hidden = hidden_by(self.read, block)?;
            found.extend(edits.rewriting(&hidden).map(str::to_owned));
            // A text may begin with the task, whether or not the block keeps the prompt.
            if !hidden.is_empty() {
                for seq in prompts_before(self.read, block.loop_key, hidden.start, edits)? {
                    let prompt = seq..seq.saturating_add(1);
                    found.extend(edits.rewriting(&prompt).map(str::to_owned));
                }
            }
        }
        let parent = parent.filter(|_| block.kind.covers_earlier_loops());
        if let Some(parent) = parent {
            let (read, mut edited) = (self.read, Vec::new());
            read.chain(parent, &mut |row| {
                edited.extend((row.edits > 0).then_some(row.key));
                Ok(ControlFlow::Continue(()))
            })?;
            for key in edited {
                if let Some(edits) = self.live_edits(key)? {
                    found.extend(edits.rewriting(&(0..u32::MAX)).map(str::to_owned));
                }
            }
        }
        Ok(found)
    }

    /// Returns the edits of a loop that count and are live from the leaf.
    ///
    /// # Errors
    /// If the store fails.
    pub fn live_edits(&mut self, loop_key: LoopKey) -> StoreResult<Option<LiveEdits>> {
        let session = match &self.edited {
            Some(_) => None,
            None => Some(self.read.loop_by_key(loop_key)?.session),
        };
        self.live_edits_in(session, loop_key)
    }

    /// Returns the live edits of a loop of a session. The session is needed for the first loop with edits.
    pub(super) fn live_edits_in(
        &mut self,
        session: Option<SessionKey>,
        loop_key: LoopKey,
    ) -> StoreResult<Option<LiveEdits>> {
        let edited = match (self.edited.take(), session) {
            (Some(edited), _) => edited,
            (None, Some(session)) => EditedLoops::load(self.read, session, self.view.at)?,
            (None, None) => EditedLoops::default(),
        };
        let found = self.combine(&edited, loop_key);
        self.edited = Some(edited);
        found
    }

    fn combine(
        &mut self,
        edited: &EditedLoops,
        loop_key: LoopKey,
    ) -> StoreResult<Option<LiveEdits>> {
        let mut found = EditCollector::default();
        let (packed, sections) = (&edited.packed, edited.sections_of(loop_key));
        found.reserve(sections);
        for section in sections {
            let head = &edited.runs[section.run];
            let is_flipped = packed.flipped.contains(&head.run);
            if self.counts(head.point)? && (!is_flipped || self.is_live(head.run)?) {
                let run_id = &packed.edits[head.run_id.clone()];
                found.add_section(head.run, run_id, &packed.edits[section.content.clone()])?;
            }
        }
        if let Some(PendingEdits { run, rows }) = self.pending {
            let own = rows.iter().filter(|edit| edit.loop_key == loop_key);
            found.add_rows((run.key, &run.run_id), own);
        }
        found.combined()
    }

    /// Returns the edits of a loop that count and are live from the leaf, in the order of their ticks.
    ///
    /// # Errors
    /// If the store fails.
    pub fn live_rows(&mut self, loop_key: LoopKey) -> StoreResult<Vec<RunEdit>> {
        let (read, mut live) = (self.read, Vec::new());
        let mut last: Option<(RunKey, bool)> = None;
        read.edits_of_loop(loop_key, &mut |edit| {
            let is_live = match last.filter(|(run, _)| *run == edit.run) {
                Some((_, is_live)) => is_live,
                None => {
                    self.view.at.is_none_or(|at| edit.tick <= at)
                        && self.counts(edit.point)?
                        && self.is_live(edit.run)?
                }
            };
            last = Some((edit.run, is_live));
            live.extend(is_live.then_some(edit));
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(PendingEdits { run, rows }) = self.pending {
            let own = (0u32..)
                .zip(rows)
                .filter(|(_, edit)| edit.loop_key == loop_key);
            live.extend(own.map(|(ordinal, edit)| RunEdit {
                run: run.key,
                run_id: run.run_id.clone(),
                point: run.point,
                tick: run.tick,
                ordinal,
                edit: edit.clone(),
            }));
        }
        Ok(live)
    }
}

/// Returns the messages of its loop that a block does not show as they were recorded.
fn hidden_by(read: &dyn StoreRead, block: &BlockCore) -> StoreResult<Range<u32>> {
    if block.kind.is_sealed() {
        return Ok(0..block.through);
    }
    let Some(turns) = block.layout.compacted else {
        return Ok(0..0);
    };
    let start = first_seq(read, block.loop_key, turns.first)?;
    let after = read.turn(block.loop_key, turns.end())?;
    let end = after.map_or(block.through, |turn| turn.first_seq.min(block.through));
    Ok(start..end)
}

/// Returns the prompts before a sequence that were removed or replaced.
fn prompts_before(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    end: u32,
    edits: &LiveEdits,
) -> StoreResult<Vec<u32>> {
    let mut prompts = Vec::new();
    if edits.rewrites(&(0..end)) {
        read.sizes(loop_key, 0..end, &mut |message| {
            prompts.extend(message.is_prompt().then_some(message.seq));
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(prompts)
}
