//! The end of an attempt: nothing to gain, a commit, or a conflict. Each leaves its audit row.

use std::time::Instant;

use sha2::{Digest as _, Sha256};

use super::report::{BlockReport, CompactReport};
use super::{CompactRequest, Ground, Made, Planned, blocks, notes, size_after};
use crate::compaction::RunConfig;
use crate::context::{Chain, Purpose};
use crate::model::Time;
use crate::store::in_force::View;
use crate::store::{
    self, Outcome, RunKey, RunRow, SessionStore, StoreRead, StoreResult, StoreWrite, codec,
};

pub(super) struct Attempt<'a> {
    pub(super) store: &'a dyn SessionStore,
    pub(super) ground: &'a Ground,
    pub(super) request: &'a CompactRequest,
    pub(super) begun: Instant,
    pub(super) started_at: Time,
}

impl Attempt<'_> {
    /// Commits the blocks if they make the context smaller and nobody came first.
    pub(super) fn finish(
        self,
        mut report: CompactReport,
        planned: Planned,
    ) -> StoreResult<CompactReport> {
        let plan = self.plan_digest(&planned)?;
        let made = planned.made;
        report.after = size_after(self.store, self.ground, self.request, &made)?;
        let gains = report.after.tokens < report.before.tokens;
        if !gains && store::read(self.store, |read| self.was_tried(read, &plan))? {
            report.after = report.before;
            return Ok(report);
        }
        let outcome = if gains {
            Outcome::Committed
        } else {
            Outcome::NoGain
        };
        report.blocks = store::read(self.store, |read| self.block_reports(read, &made))?;
        report.outcome = outcome.into();
        report.duration_ms = self.elapsed();
        if self.request.dry_run {
            return Ok(report);
        }
        let run = self.row(&report, outcome, plan)?;
        let written = store::write(self.store, |write| self.write(write, run, made))?;
        report.run = Some(written.run_id);
        report.outcome = written.outcome.into();
        for (block, generation) in report.blocks.iter_mut().zip(written.generations) {
            block.generation = Some(generation);
        }
        if written.outcome != Outcome::Committed {
            report.blocks.clear();
        }
        report.error = written.error;
        Ok(report)
    }

    /// Notes an attempt whose strategy or checks failed.
    pub(super) fn fail(
        self,
        mut report: CompactReport,
        error: String,
    ) -> StoreResult<CompactReport> {
        report.outcome = Outcome::Failed.into();
        report.error = Some(error);
        report.duration_ms = self.elapsed();
        if self.request.dry_run {
            return Ok(report);
        }
        let run = self.row(&report, Outcome::Failed, [0; 32])?;
        let written = store::write(self.store, |write| self.write(write, run, Vec::new()))?;
        report.run = Some(written.run_id);
        Ok(report)
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn row(&self, report: &CompactReport, outcome: Outcome, plan: [u8; 32]) -> StoreResult<RunRow> {
        let config = &self.request.config;
        Ok(RunRow {
            key: RunKey(0),
            session: self.ground.session,
            run_id: uuid::Uuid::now_v7().to_string(),
            point: self.ground.point(),
            tick: 0,
            trigger: if self.request.force {
                "force"
            } else {
                "headroom"
            }
            .to_owned(),
            strategy: report.strategy.clone(),
            round: 0,
            outcome,
            fallback: report.fallback.clone(),
            error: report.error.clone(),
            scope: config.compaction_scope.to_string(),
            older_loops: config.older_loops.to_string(),
            counter: self.store.counter().name().to_owned(),
            before: report.before,
            after: report.after,
            started_at: self.started_at.as_str().to_owned(),
            duration_ms: self.elapsed(),
            config: codec::to_json(&RunConfig::new(config, &self.request.window))?,
            usage: report.usage.as_ref().map(|usage| usage.as_str().to_owned()),
            plan,
            record: None,
        })
    }

    /// Returns a digest of the layouts, what they were made from, the strategy and the config.
    fn plan_digest(&self, planned: &Planned) -> StoreResult<[u8; 32]> {
        let config = RunConfig::new(&self.request.config, &self.request.window);
        let mut hash = Sha256::new();
        hash.update([u8::from(self.request.force)]);
        hash.update(codec::to_json(&config)?);
        for (in_loop, block) in &self.ground.in_force {
            hash.update(in_loop.0.to_le_bytes());
            hash.update(block.map_or(0, |block| block.0).to_le_bytes());
        }
        for (depth, kept, through) in &planned.kept {
            hash.update(self.ground.chain.links[*depth].row.key.0.to_le_bytes());
            hash.update([u8::from(kept.raw)]);
            for number in [kept.first, kept.recent, kept.turns, *through] {
                hash.update(number.to_le_bytes());
            }
        }
        Ok(hash.finalize().into())
    }

    /// Whether a run on this leaf already found that this very plan gains nothing.
    fn was_tried(&self, read: &dyn StoreRead, plan: &[u8; 32]) -> StoreResult<bool> {
        let mut tried = false;
        read.runs(self.ground.session, &mut |run| {
            tried |= run.outcome == Outcome::NoGain
                && run.point.in_loop == self.ground.leaf
                && run.plan == *plan;
            Ok(if tried {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            })
        })?;
        Ok(tried)
    }

    fn block_reports(&self, read: &dyn StoreRead, made: &[Made]) -> StoreResult<Vec<BlockReport>> {
        let report = |Made { depth, block }: &Made| {
            Ok(BlockReport {
                loop_id: self.ground.chain.links[*depth].row.loop_id.clone(),
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

    /// The commit: one transaction, in which what is in force is compared with the plan's ground.
    fn write(
        &self,
        write: &mut dyn StoreWrite,
        mut run: RunRow,
        made: Vec<Made>,
    ) -> StoreResult<Written> {
        let mut session = write.session_by_key(self.ground.session)?;
        session.tick += 1;
        run.tick = session.tick;
        run.round = notes::next_round(write.as_read(), self.ground.leaf)?;
        if run.outcome == Outcome::Committed && !self.is_unchanged(write)? {
            run.outcome = Outcome::Conflict;
            run.after = run.before;
            run.error = Some("another compaction of this chain came first".into());
        }
        let key = write.insert_run(&run)?;
        let mut generations = Vec::new();
        if run.outcome == Outcome::Committed {
            for Made { mut block, .. } in made {
                let mut owner = write.loop_by_key(block.row.in_loop)?;
                owner.totals.generation += 1;
                // An earlier loop may still run: what is covered must not be replaced any more.
                let sealed = owner.totals.sealed_seq.max(block.row.through);
                owner.totals.sealed_seq = sealed;
                write.update_loop(&owner)?;
                block.row.generation = owner.totals.generation;
                block.row.run = key;
                generations.push(block.row.generation);
                write.insert_block(&block)?;
            }
        }
        write.update_session(&session)?;
        Ok(Written {
            run_id: run.run_id,
            outcome: run.outcome,
            error: run.error,
            generations,
        })
    }

    fn is_unchanged(&self, write: &dyn StoreWrite) -> StoreResult<bool> {
        let request = self.request;
        let view = View::default();
        let now = Chain::load(
            write.as_read(),
            self.ground.leaf,
            view,
            &request.config,
            &request.window,
            Purpose::Plan,
        )?;
        Ok(now.in_force() == self.ground.in_force)
    }
}

struct Written {
    run_id: String,
    outcome: Outcome,
    error: Option<String>,
    generations: Vec<u32>,
}
