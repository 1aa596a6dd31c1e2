//! The end of an attempt: nothing to gain, a commit, or a conflict. Each leaves its audit row.

use std::ops::ControlFlow;
use std::time::Instant;

use sha2::{Digest as _, Sha256};

use super::events::CompactionStarted;
use super::fallback::{FallbackStep, Tried};
use super::planner::Made;
use super::report::{BlockReport, BudgetTooSmall, CompactOutcome, CompactReport};
use super::{CompactRequest, CompactTrigger, Snapshot, blocks, notes, open_digests};
use crate::compaction::plan::Kept;
use crate::compaction::{OlderLoops, RunConfig};
use crate::context::{
    Chain, ContextFault, Purpose, faults_of, introduced, messages_with, originals_of,
    shown_messages,
};
use crate::model::AgentMessage;
use crate::store::active_blocks::{self, View, chain};
use crate::store::{
    self, NewBlock, Outcome, RunKey, RunRow, SessionStore, StoreRead, StoreResult, StoreWrite,
    codec,
};

pub(super) struct Attempt<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) snapshot: &'a Snapshot,
    pub(super) request: &'a CompactRequest,
    pub(super) begun: Instant,
    /// Digest of the plan, before any text is asked for.
    pub(super) plan: [u8; 32],
    pub(super) started: CompactionStarted,
}

/// Returns a digest of the layouts, what they are made from, the strategy and the config.
pub(super) fn plan_digest(
    snapshot: &Snapshot,
    request: &CompactRequest,
    kept: &[(usize, Kept, u32)],
) -> StoreResult<[u8; 32]> {
    let config = RunConfig::new(&request.config, &request.window);
    let mut hash = Sha256::new();
    hash.update([u8::from(request.trigger == CompactTrigger::Force)]);
    hash.update(codec::to_json(&config)?);
    for (loop_key, block) in &snapshot.in_force {
        hash.update(loop_key.0.to_le_bytes());
        hash.update(block.map_or(0, |block| block.0).to_le_bytes());
    }
    for (depth, kept, through) in kept {
        hash.update(snapshot.chain.links[*depth].row.key.0.to_le_bytes());
        hash.update([u8::from(kept.raw)]);
        for number in [kept.first, kept.recent, kept.turns, *through] {
            hash.update(number.to_le_bytes());
        }
    }
    Ok(hash.finalize().into())
}

impl Attempt<'_> {
    /// Returns the run on this leaf that tried this very plan in vain, if there is one. One that
    /// found the budget too small is tried again once the context has another size.
    pub(super) fn was_tried(&self) -> StoreResult<Option<RunRow>> {
        let mut found = None;
        store::read(self.store, |read| {
            let born = read.loop_by_key(self.snapshot.leaf)?.tick;
            read.runs(self.snapshot.session, &mut |run| {
                if run.tick < born {
                    return Ok(ControlFlow::Break(()));
                }
                if run.point.loop_key != self.snapshot.leaf {
                    return Ok(ControlFlow::Continue(()));
                }
                let in_vain = match run.outcome {
                    Outcome::NoGain => true,
                    Outcome::Failed => run.before == self.snapshot.before,
                    _ => false,
                };
                if in_vain && run.plan == self.plan {
                    found = Some(run);
                }
                Ok(match found {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                })
            })
        })?;
        Ok(found)
    }

    /// Asks the hooks; returns the reason of the one that says no.
    pub(super) fn veto(&self) -> Option<String> {
        let hooks = &self.request.hooks;
        (!self.request.dry_run)
            .then(|| hooks.veto(&self.started))
            .flatten()
    }

    /// Ends an attempt that leaves no audit row.
    pub(super) fn leave(&self, report: CompactReport) -> StoreResult<CompactReport> {
        if !self.request.dry_run {
            self.request.hooks.after(&report.ended(&self.started));
        }
        Ok(report)
    }

    /// Commits the blocks if they make the context smaller and nobody came first.
    pub(super) fn finish(
        &self,
        mut report: CompactReport,
        tried: Tried,
    ) -> StoreResult<CompactReport> {
        report.after = tried.after;
        if let Some(fault) = self.introduced(&tried)? {
            let error =
                format!("the context would have a fault that its originals have not: {fault}");
            return self.end(report, Outcome::Failed, Some(error));
        }
        let made = tried.planned.made;
        if let Some(step) = tried.step.step {
            report.fallback = Some(step.to_owned());
        }
        report.too_small = BudgetTooSmall::check(self.request.window.budget(), report.after);
        let outcome = match &report.too_small {
            Some(too_small) => {
                report.error = Some(too_small.to_string());
                Outcome::Failed
            }
            None if report.after.tokens < report.before.tokens => Outcome::Committed,
            None if report.after.bytes < report.before.bytes && self.is_for_bytes(&report) => {
                Outcome::Committed
            }
            None => Outcome::NoGain,
        };
        if outcome != Outcome::Failed {
            report.blocks = store::read(self.store, |read| self.block_reports(read, &made))?;
        }
        self.write_run(report, outcome, &tried.step, Some(self.plan), made)
    }

    /// Returns a fault that the new blocks would bring in. The originals are read only if the
    /// context has faults at all.
    fn introduced(&self, tried: &Tried) -> StoreResult<Option<String>> {
        let fresh: Vec<&NewBlock> = tried.planned.made.iter().map(|made| &made.block).collect();
        let leaf = self.snapshot.chain.links.last();
        let in_flight = leaf.is_some_and(|leaf| !leaf.row.status.is_ended());
        store::read(self.store, |read| {
            let shown = messages_with(read, &tried.chain, &fresh)?;
            if faults_of(&shown, in_flight).is_empty() {
                return Ok(None);
            }
            let raw = View {
                raw: true,
                ..View::default()
            };
            let originals = originals_of(read, &chain(read, self.snapshot.leaf, raw)?)?;
            let now = active_blocks::chain(read, self.snapshot.leaf, View::default())?;
            let now: Vec<Vec<AgentMessage>> = now
                .iter()
                .map(|link| {
                    Ok(shown_messages(read, link)?
                        .into_iter()
                        .map(|(_, m)| m)
                        .collect())
                })
                .collect::<StoreResult<_>>()?;
            // What an overlay of another tool brought in already is not this run's.
            let same = |a: &ContextFault, b: &ContextFault| {
                a.kind == b.kind && a.tool_call_id == b.tool_call_id
            };
            let known = introduced(&originals, &now.concat(), in_flight);
            let new = introduced(&originals, &shown, in_flight).into_iter();
            let new = new.filter(|fault| !known.iter().any(|known| same(known, fault)));
            Ok(new
                .map(|fault| format!("{:?} at message {}", fault.kind, fault.message))
                .next())
        })
    }

    /// Whether the context was compacted for its bytes.
    fn is_for_bytes(&self, report: &CompactReport) -> bool {
        let budget = self.request.config.policy.target_of(&self.request.window);
        budget.bytes.is_some_and(|most| report.before.bytes > most)
    }

    /// Ends an attempt that made no block; the same plan may be tried again.
    pub(super) fn end(
        &self,
        mut report: CompactReport,
        outcome: Outcome,
        error: Option<String>,
    ) -> StoreResult<CompactReport> {
        report.error = error;
        let asked = FallbackStep::asked(&self.request.config, self.snapshot.chain.recent);
        self.write_run(report, outcome, &asked, None, Vec::new())
    }

    fn write_run(
        &self,
        mut report: CompactReport,
        outcome: Outcome,
        step: &FallbackStep,
        plan: Option<[u8; 32]>,
        made: Vec<Made>,
    ) -> StoreResult<CompactReport> {
        report.outcome = outcome.into();
        report.duration_ms = self.elapsed();
        if self.request.dry_run {
            return Ok(report);
        }
        let mut run = self.row(&report, outcome, step)?;
        run.plan = plan.unwrap_or_default();
        let written = store::write(self.store, |write| {
            self.write(write, run, made, &mut report)
        })?;
        for (block, generation) in report.blocks.iter_mut().zip(written) {
            block.generation = Some(generation);
        }
        if report.outcome != CompactOutcome::Committed {
            report.blocks.clear();
        }
        self.request.hooks.after(&report.ended(&self.started));
        Ok(report)
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn row(
        &self,
        report: &CompactReport,
        outcome: Outcome,
        step: &FallbackStep,
    ) -> StoreResult<RunRow> {
        let config = RunConfig {
            keep_recent_turns: step.recent,
            ..RunConfig::new(&step.config, &self.request.window)
        };
        Ok(RunRow {
            key: RunKey(0),
            session: self.snapshot.session,
            run_id: uuid::Uuid::now_v7().to_string(),
            point: self.snapshot.point(),
            tick: 0,
            trigger: self.started.trigger.clone(),
            strategy: report.strategy.clone(),
            round: 0,
            outcome,
            fallback: report.fallback.clone(),
            error: report.error.clone(),
            scope: step.config.compaction_scope.to_string(),
            older_loops: step.config.older_loops.to_string(),
            counter: self.store.counter().name().to_owned(),
            before: report.before,
            after: report.after,
            started_at: self.started.timestamp.clone(),
            duration_ms: self.elapsed(),
            config: codec::to_json(&config)?,
            usage: report.usage.as_ref().map(|usage| usage.as_str().to_owned()),
            plan: [0; 32],
            record: None,
            events: None,
        })
    }

    fn block_reports(&self, read: &dyn StoreRead, made: &[Made]) -> StoreResult<Vec<BlockReport>> {
        let report = |Made { depth, block }: &Made| {
            Ok(BlockReport {
                loop_id: self.snapshot.chain.links[*depth].row.loop_id.clone(),
                generation: None,
                kind: block.row.kind,
                keep_first: block.row.layout.first,
                keep_compacted: block.row.layout.compacted,
                keep_recent: block.row.layout.recent,
                coverage: blocks::counts(read, &block.coverage)?,
            })
        };
        made.iter().map(report).collect()
    }

    /// The commit: one transaction, in which what is in force is compared with the plan's snapshot.
    /// Returns the generations of the blocks.
    fn write(
        &self,
        write: &mut dyn StoreWrite,
        mut run: RunRow,
        made: Vec<Made>,
        report: &mut CompactReport,
    ) -> StoreResult<Vec<u32>> {
        let mut session = write.session_by_key(self.snapshot.session)?;
        session.tick += 1;
        run.tick = session.tick;
        run.round = notes::next_round(write.as_read(), session.key, self.snapshot.leaf)?;
        if run.outcome == Outcome::Committed && !self.is_unchanged(write)? {
            run.outcome = Outcome::Conflict;
            run.after = run.before;
            run.error = Some("another compaction of this chain came first".into());
        }
        report.run = Some(run.run_id.clone());
        report.outcome = run.outcome.into();
        report.after = run.after;
        report.error.clone_from(&run.error);
        run.events = Some(self.events(report)?);
        let key = write.insert_run(&run)?;
        let mut generations = Vec::new();
        if run.outcome == Outcome::Committed {
            for Made { mut block, .. } in made {
                let mut owner = write.loop_by_key(block.row.loop_key)?;
                owner.totals.generation += 1;
                // An earlier loop may still run: what is covered must not be replaced any more.
                let sealed = owner.totals.sealed_seq.max(block.row.through);
                owner.totals.sealed_seq = sealed;
                write.update_totals(&owner, &owner.progress)?;
                block.row.generation = owner.totals.generation;
                block.row.run = key;
                generations.push(block.row.generation);
                write.insert_block(&block)?;
            }
        }
        write.touch_session(&(&session).into())?;
        Ok(generations)
    }

    fn events(&self, report: &CompactReport) -> StoreResult<String> {
        codec::to_json(&(&self.started, report.ended(&self.started)))
    }

    fn is_unchanged(&self, write: &dyn StoreWrite) -> StoreResult<bool> {
        let (config, window) = (&self.request.config, &self.request.window);
        // What is in force is all that is asked, while others wait.
        let purpose = match config.older_loops {
            OlderLoops::Skip => Purpose::Plan,
            OlderLoops::Rollup => Purpose::Build,
        };
        let (read, view) = (write.as_read(), View::default());
        let now = Chain::load(read, self.snapshot.leaf, view, config, window, purpose)?;
        let (now, then) = (now.in_force(), &self.snapshot.in_force);
        // With `Skip` the walk ends where nothing before matters, which an append may move.
        let depth = match config.older_loops {
            OlderLoops::Skip => now.len().min(then.len()),
            OlderLoops::Rollup => now.len().max(then.len()),
        };
        let is_same = now
            .iter()
            .rev()
            .take(depth)
            .eq(then.iter().rev().take(depth));
        Ok(is_same && self.snapshot.open == open_digests(read, &self.snapshot.chain.links)?)
    }
}
