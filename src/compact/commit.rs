//! The end of an attempt: no gain, a commit, or a conflict. Each leaves an audit row.

use std::ops::ControlFlow;
use std::time::Instant;

use sha2::{Digest as _, Sha256};

use super::candidate::{CompactionCandidate, FallbackStep, PlacedBlock, PlannedLoop};
use super::check::introduced_fault;
use super::events::CompactionStarted;
use super::growth::is_handed_over;
use super::outcome::CompactOutcome;
use super::planner::CANCELLED;
use super::report::{BlockReport, BudgetTooSmall, CompactReport, CoverageCounts};
use super::request::{CompactRequest, CompactTrigger};
use super::running::OpenRow;
use super::snapshot::{Snapshot, open_digests};
use crate::compaction::{CompactionScope, OlderLoops, RunConfig};
use crate::context::{Chain, Purpose};
use crate::model::{Json, Size};
use crate::overlay;
use crate::store::active_blocks::{self, ChainLink, ChainView, depth_of};
use crate::store::{
    self, LoopKey, NewBlock, Outcome, RunKey, RunRow, SessionStore, StoreError, StoreRead,
    StoreResult, StoreWrite, codec,
};

/// A run that is about to be written.
pub(super) struct PendingRun<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) snapshot: &'a Snapshot,
    pub(super) request: &'a CompactRequest,
    pub(super) begun: Instant,
    /// The digest of the plan, before any text is made.
    pub(super) plan: [u8; 32],
    pub(super) started: CompactionStarted,
    /// The requested configuration, as JSON.
    pub(super) asked: String,
    pub(super) open_row: &'a OpenRow,
}

/// Returns a digest of the layouts, their sources, the strategy and the config.
pub(super) fn plan_digest(
    snapshot: &Snapshot,
    request: &CompactRequest,
    outline: &[(PlannedLoop, u32)],
) -> StoreResult<[u8; 32]> {
    let config = RunConfig::new(
        &**request.strategy(),
        &request.policy.compaction,
        &request.policy.window,
    );
    let mut hash = Sha256::new();
    hash.update([u8::from(request.trigger == CompactTrigger::Force)]);
    hash.update(codec::to_json(&config)?);
    for (loop_key, block) in &snapshot.active_blocks {
        hash.update(loop_key.0.to_le_bytes());
        hash.update(block.map_or(0, |block| block.0).to_le_bytes());
    }
    for (loop_key, runs) in &snapshot.edits {
        hash.update(loop_key.0.to_le_bytes());
        for run in runs {
            hash.update(run.0.to_le_bytes());
        }
    }
    for pin in &snapshot.pins.messages {
        hash.update(pin.loop_key.0.to_le_bytes());
        hash.update(pin.seq.to_le_bytes());
    }
    for ((depth, kept), through) in outline {
        hash.update(snapshot.chain.links[*depth].row.key.0.to_le_bytes());
        hash.update([u8::from(kept.raw)]);
        for number in [kept.first, kept.recent, kept.turns, *through] {
            hash.update(number.to_le_bytes());
        }
    }
    Ok(hash.finalize().into())
}

/// Returns the configuration of a step as JSON.
pub(super) fn run_config(request: &CompactRequest, step: &FallbackStep) -> StoreResult<String> {
    let strategy = &**request.strategy();
    let mut config = RunConfig::new(strategy, &step.config, &request.policy.window);
    config.keep_recent_turns = step.recent;
    codec::to_json(&config)
}

impl PendingRun<'_> {
    /// Plans the row of an attempt that calls code of users, or leaves the process.
    pub(super) fn plan_open_row(&self, report: &CompactReport) -> StoreResult<()> {
        let is_own = self.request.strategy().is_own() && self.request.policy.hooks.is_empty();
        if !is_own && !self.request.dry_run {
            let scope = self.request.policy.compaction.compaction_scope;
            let row = self.row(report, Outcome::Running, scope, [0; 32])?;
            self.open_row.plan(row);
        }
        Ok(())
    }

    /// Returns the run on this leaf that tried the same plan in vain, if there is one. A run that
    /// found the budget too small is repeated once the context has another size.
    pub(super) fn tried_before(&self) -> StoreResult<Option<RunRow>> {
        let mut found = None;
        store::read(self.store, |read| {
            let born = read.loop_by_key(self.snapshot.leaf)?.tick;
            read.runs(self.snapshot.session, &mut |run| {
                if run.tick < born {
                    return Ok(ControlFlow::Break(()));
                }
                let in_vain = match run.outcome {
                    // A compaction that left too little room waits only while the window fits the context.
                    Outcome::NoGain => run.error.is_none() || self.can_wait(),
                    Outcome::Failed => run.before == self.snapshot.before,
                    // A refused plan has its digest, a veto before the plan and a postponed plan have none.
                    Outcome::Vetoed => true,
                    _ => false,
                };
                let is_here = run.point.loop_key == self.snapshot.leaf;
                if is_here && in_vain && run.plan == self.plan {
                    found = Some(run);
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            })
        })?;
        Ok(found)
    }

    /// Evaluates a candidate, and commits its blocks if they make the context smaller and no other run was
    /// committed meanwhile.
    pub(super) fn finish(
        &self,
        mut report: CompactReport,
        candidate: CompactionCandidate,
    ) -> StoreResult<CompactReport> {
        report.after = candidate.after;
        report.prompts_kept = candidate.prompts.kept;
        report.prompts_left_out = candidate.prompts.left_out;
        if let Some(fault) = introduced_fault(self.store, self.snapshot, &candidate)? {
            let error =
                format!("the context would have a fault that its originals have not: {fault}");
            return self.fail(report, Outcome::Failed, Some(error));
        }
        if let Some(step) = candidate.step.name {
            report.fallback = Some(step.to_owned());
            report.reached = self.reached(&candidate.step)?;
        }
        report.too_small = BudgetTooSmall::check(self.request.policy.window.budget(), report.after);
        report.turn_tokens = self.snapshot.growth.turn;
        report.room = self.snapshot.growth.room(report.after);
        let outcome = match &report.too_small {
            Some(too_small) => {
                report.error = Some(too_small.to_string());
                Outcome::Failed
            }
            None if !self.is_smaller(report.after) => Outcome::NoGain,
            None => match self.lack_of_room(&report) {
                Some(lack) if self.can_wait() => {
                    report.error = Some(format!(
                        "{lack}; nothing was compacted, since the window still fits the context"
                    ));
                    Outcome::NoGain
                }
                lack => {
                    report.error = report.error.or(lack);
                    Outcome::Committed
                }
            },
        };
        if outcome != Outcome::Failed {
            let blocks = &candidate.blocks;
            report.blocks = store::read(self.store, |read| self.block_reports(read, blocks))?;
        }
        let scope = candidate.step.config.compaction_scope;
        let run = self.row(&report, outcome, scope, self.plan)?;
        let blocks = candidate.blocks.into_iter().map(|placed| placed.block);
        self.write(report, run, blocks.collect())
    }

    /// True if a context of this size fits the window and is smaller than the context now.
    pub(super) fn would_commit(&self, after: Size) -> bool {
        let budget = self.request.policy.window.budget();
        budget.fits(after) && self.is_smaller(after)
    }

    /// Returns the reason why a compaction is hardly worth its costs, if it leaves room for less than some turns.
    fn lack_of_room(&self, report: &CompactReport) -> Option<String> {
        let growth = &self.snapshot.growth;
        let is_asked = self.request.trigger != CompactTrigger::Policy;
        if is_asked || is_handed_over(&self.request.policy) || !growth.is_too_full(report.after) {
            return None;
        }
        let (before, after) = (report.before.tokens, report.after.tokens);
        let (room, turn) = (report.room, report.turn_tokens);
        Some(format!(
            "from {before} tokens the context comes down to {after} and leaves room for {room}, and a turn has about \
             {turn}; use a larger window"
        ))
    }

    /// True if the context fits the window as it is, so that a later attempt may find more to compact.
    fn can_wait(&self) -> bool {
        self.request
            .policy
            .window
            .budget()
            .fits(self.snapshot.before)
    }

    fn is_smaller(&self, after: Size) -> bool {
        let before = self.snapshot.before;
        let target = self.request.policy.target();
        let is_for_bytes = target.bytes.is_some_and(|most| before.bytes > most);
        after.tokens < before.tokens || (is_for_bytes && after.bytes < before.bytes)
    }

    /// Ends an attempt that a hook refused. The same plan is not tried again.
    pub(super) fn refuse(
        &self,
        mut report: CompactReport,
        reason: String,
    ) -> StoreResult<CompactReport> {
        report.error = Some(reason);
        let scope = self.request.policy.compaction.compaction_scope;
        let run = self.row(&report, Outcome::Vetoed, scope, self.plan)?;
        self.write(report, run, Vec::new())
    }

    /// Ends an attempt that made no block; the same plan may be tried again.
    pub(super) fn fail(
        &self,
        mut report: CompactReport,
        outcome: Outcome,
        error: Option<String>,
    ) -> StoreResult<CompactReport> {
        report.error = error;
        let scope = self.request.policy.compaction.compaction_scope;
        let run = self.row(&report, outcome, scope, [0; 32])?;
        self.write(report, run, Vec::new())
    }

    fn block_reports(
        &self,
        read: &dyn StoreRead,
        blocks: &[PlacedBlock],
    ) -> StoreResult<Vec<BlockReport>> {
        let report = |PlacedBlock { depth, block }: &PlacedBlock| {
            Ok(BlockReport {
                loop_id: self.snapshot.chain.links[*depth].row.loop_id.clone(),
                generation: None,
                kind: block.row.kind,
                keep_first: block.row.layout.first,
                keep_compacted: block.row.layout.compacted,
                keep_recent: block.row.layout.recent,
                coverage: CoverageCounts::of(read, &block.coverage)?,
            })
        };
        blocks.iter().map(report).collect()
    }

    /// Returns the configuration of a step if it differs from the requested one.
    fn reached(&self, step: &FallbackStep) -> StoreResult<Option<Json>> {
        let reached = run_config(self.request, step)?;
        let damaged = |error: serde_json::Error| StoreError::Invalid(error.to_string());
        match reached == self.asked {
            true => Ok(None),
            false => Json::parse(&reached).map(Some).map_err(damaged),
        }
    }

    fn row(
        &self,
        report: &CompactReport,
        outcome: Outcome,
        scope: CompactionScope,
        plan: [u8; 32],
    ) -> StoreResult<RunRow> {
        Ok(RunRow {
            key: RunKey(0),
            session: self.snapshot.session,
            run_id: crate::clock::new_uuid().to_string(),
            point: self.snapshot.point(),
            tick: 0,
            trigger: self.started.trigger.clone(),
            strategy: report.strategy.clone(),
            round: 0,
            outcome,
            fallback: report.fallback.clone(),
            error: report.error.clone(),
            scope: scope.to_string(),
            older_loops: self.request.policy.compaction.older_loops.to_string(),
            counter: self.store.counter().name().to_owned(),
            before: report.before,
            after: report.after,
            started_at: self.started.timestamp.clone(),
            duration_ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            config: self.asked.clone(),
            usage: report.usage.as_ref().map(|usage| usage.as_str().to_owned()),
            plan,
            record: None,
            events: None,
            reached: report.reached.as_ref().map(|json| json.as_str().to_owned()),
        })
    }

    /// Writes the run, unless this is a dry run, and calls the hooks.
    fn write(
        &self,
        mut report: CompactReport,
        run: RunRow,
        blocks: Vec<NewBlock>,
    ) -> StoreResult<CompactReport> {
        report.outcome = run.outcome.into();
        report.not_needed = None;
        report.duration_ms = run.duration_ms;
        if self.request.dry_run {
            return Ok(report);
        }
        let generations = store::write(self.store, |write| {
            self.commit(write, run, blocks, &mut report)
        })?;
        for (block, generation) in report.blocks.iter_mut().zip(generations) {
            block.generation = Some(generation);
        }
        if report.outcome != CompactOutcome::Committed {
            report.blocks.clear();
        }
        self.open_row.closed();
        let panicked = self
            .request
            .policy
            .hooks
            .after(&report.ended(&self.started));
        report.error = report.error.or(panicked);
        Ok(report)
    }

    /// The commit: one transaction, which compares the active blocks with those of the plan's snapshot.
    /// Returns the generations of the blocks.
    fn commit(
        &self,
        write: &mut dyn StoreWrite,
        mut run: RunRow,
        mut blocks: Vec<NewBlock>,
        report: &mut CompactReport,
    ) -> StoreResult<Vec<u32>> {
        if run.outcome == Outcome::Committed && !self.is_unchanged(write)? {
            run.outcome = Outcome::Conflict;
            run.after = run.before;
            run.error = Some("the session was compacted, redacted or archived meanwhile".into());
        }
        if run.outcome == Outcome::Committed && self.request.cancel.is_cancelled() {
            // Nothing was wrong with the plan: it may be tried again.
            (run.outcome, run.plan) = (Outcome::Failed, [0; 32]);
            run.after = run.before;
            run.error = Some(CANCELLED.into());
        }
        if run.outcome != Outcome::Committed {
            blocks.clear();
        }
        let was = self.open_row.take(write, &mut run)?;
        report.run = Some(run.run_id.clone());
        report.outcome = run.outcome.into();
        report.after = run.after;
        report.error.clone_from(&run.error);
        let events = (&self.started, report.ended(&self.started));
        run.events = Some(codec::to_json(&events)?);
        overlay::commit(write, run, blocks, was)
    }

    /// True if the live edits of the loops that both chains have are those of the plan's snapshot.
    fn has_same_edits(&self, now: &[ChainLink]) -> bool {
        let then = &self.snapshot.edits;
        let then = then.iter().filter(|(key, _)| depth_of(now, *key).is_some());
        let runs: Vec<_> = now.iter().filter_map(ChainLink::edit_runs).collect();
        let blocks = &self.snapshot.active_blocks;
        let was_in = |key: LoopKey| blocks.binary_search_by_key(&key, |(key, _)| *key).is_ok();
        then.eq(runs.iter().filter(|(key, _)| was_in(*key)))
    }

    fn is_unchanged(&self, read: &dyn StoreRead) -> StoreResult<bool> {
        // Content that was removed or redacted since must not come back in a summary.
        let (session, receipt) = (self.snapshot.session, self.snapshot.last_receipt);
        if read.has_receipt_after(session, receipt)? {
            return Ok(false);
        }
        let (view, leaf) = (ChainView::default(), self.snapshot.leaf);
        let (config, window) = (&self.request.policy.compaction, &self.request.policy.window);
        let now = match config.older_loops {
            // The walk ends where nothing before matters, which follows from the sizes of the loops.
            OlderLoops::Skip => Chain::load(read, leaf, view, config, window, Purpose::Plan)?.links,
            // Only the active blocks are read, while others wait.
            OlderLoops::Rollup => active_blocks::chain(read, leaf, view)?,
        };
        if !self.has_same_edits(&now) {
            return Ok(false);
        }
        let then = &self.snapshot.active_blocks;
        // An append may move the end of a walk with `Skip`.
        let depth = match config.older_loops {
            OlderLoops::Skip => now.len().min(then.len()),
            OlderLoops::Rollup => now.len().max(then.len()),
        };
        let blocks = now.iter().rev().map(ChainLink::active_block);
        let is_same = blocks
            .take(depth)
            .eq(then.iter().rev().take(depth).copied());
        Ok(is_same && self.snapshot.open == open_digests(read, &self.snapshot.chain.links)?)
    }
}
