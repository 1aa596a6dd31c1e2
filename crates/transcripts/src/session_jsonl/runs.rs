//! Runs with their undos and redos, and manifests.

use loopstore::extend::{
    BlockKey, EditRow, EditedPart, FlipRow, HideRow, ManifestKey, ManifestPart, ManifestRow,
    PinRow, Point, RunKey, RunRow, codec,
};

use super::form::*;
use super::restore::{RestoreStage, SessionTarget};
use super::wrong;
use crate::ImportError;
use crate::fields::shown;

/// The run that is being restored.
pub(super) struct OpenRun {
    pub(super) run_id: String,
    pub(super) key: RunKey,
    /// The end of the run, if the run was not stored before.
    new: Option<RunRow>,
    /// The edits of a run that was not stored before.
    edits: Vec<EditRow>,
    /// The stored undos and redos that have not been read yet.
    waiting: std::collections::VecDeque<FlipRow>,
}

impl OpenRun {
    /// True if it was not stored before.
    pub(super) fn is_new(&self) -> bool {
        self.new.is_some()
    }
}

impl SessionTarget<'_> {
    pub(super) fn run(&mut self, line: RunLine) -> Result<(), ImportError> {
        self.enter_stage(RestoreStage::Runs)?;
        let mut row = self.run_row(line)?;
        self.open.seen.runs += 1;
        let run_id = row.run_id.clone();
        let stored = self.open.runs.remove(&run_id);
        let is_new = stored.is_none();
        match stored {
            Some(stored) => {
                row.key = stored.key;
                if row != stored {
                    let id = shown(&run_id);
                    return Err(self.open.diverged(&format!("run {id} is another one")));
                }
            }
            None if self.open.grows() => {
                self.open.is_changed = true;
                row.key = self.write.insert_run(&row)?;
            }
            None => {
                let id = shown(&run_id);
                return Err(self.open.diverged(&format!("run {id} is not there")));
            }
        }
        let key = row.key;
        self.open.in_run = Some(OpenRun {
            run_id,
            key,
            new: is_new.then_some(row),
            edits: Vec::new(),
            waiting: self.write.flips(key)?.into(),
        });
        Ok(())
    }

    fn run_row(&self, line: RunLine) -> Result<RunRow, ImportError> {
        let unknown = || wrong(format!("no outcome `{}`", shown(&line.outcome)));
        let text =
            |json: Option<Box<serde_json::value::RawValue>>| json.map(|json| json.get().to_owned());
        Ok(RunRow {
            key: RunKey::default(),
            session: self.open.key,
            point: Point {
                loop_key: self.open.loop_key(&line.loop_id)?,
                turns: line.turns,
            },
            outcome: line.run_outcome().ok_or_else(unknown)?,
            plan: codec::unhex(&line.plan).ok_or_else(|| wrong("its plan is not a digest"))?,
            run_id: line.run,
            tick: line.tick,
            trigger: line.trigger,
            strategy: line.strategy,
            round: line.round,
            fallback: line.fallback,
            error: line.error,
            scope: line.scope,
            older_loops: line.older_loops,
            counter: line.counter,
            before: line.before.into(),
            after: line.after.into(),
            started_at: line.started_at,
            duration_ms: line.duration_ms,
            config: line.config.get().to_owned(),
            usage: text(line.usage),
            record: text(line.recorded),
            events: text(line.events),
            reached: text(line.reached),
        })
    }

    /// Returns the current run, which must have this id.
    pub(super) fn in_run(&mut self, run: &str) -> Result<&mut OpenRun, ImportError> {
        let open = self.open.in_run.as_mut();
        open.filter(|open| open.run_id == run)
            .ok_or_else(|| wrong(format!("it does not follow its run {}", shown(run))))
    }

    pub(super) fn edit(&mut self, line: EditLine) -> Result<(), ImportError> {
        let loop_key = self.open.loop_key(&line.loop_id)?;
        let salt = hex::decode(&line.salt).ok();
        let salt = salt.and_then(|salt| salt.try_into().ok());
        let row = EditRow {
            loop_key,
            seqs: line.seqs,
            part: line.part.map(|(number, of)| EditedPart { number, of }),
            action: line.action,
            text: line.text,
            before: line.before.into(),
            after: line.after.into(),
            salt: salt.ok_or_else(|| wrong("its salt is malformed"))?,
        };
        let run = self.in_run(&line.run)?;
        // The edits of a stored run are stored too.
        if run.is_new() {
            run.edits.push(row);
        }
        Ok(())
    }

    pub(super) fn flip(&mut self, line: FlipLine) -> Result<(), ImportError> {
        let point = Point {
            loop_key: self.open.loop_key(&line.loop_id)?,
            turns: line.turns,
        };
        let open = self.in_run(&line.run)?;
        let row = FlipRow {
            run: open.key,
            redo: line.redo,
            point,
            tick: line.tick,
            at: line.at,
            reason: line.reason,
        };
        match open.waiting.pop_front() {
            Some(stored) if stored == row => Ok(()),
            None if self.open.grows() => {
                self.write.insert_flip(self.open.key, &row)?;
                self.open.is_changed = true;
                Ok(())
            }
            _ => Err(self.open.diverged("a run was undone or redone otherwise")),
        }
    }

    pub(super) fn pin(&mut self, line: PinLine) -> Result<(), ImportError> {
        self.enter_stage(RestoreStage::Pins)?;
        let row = PinRow {
            loop_key: self.open.loop_key(&line.loop_id)?,
            seq: line.seq,
            pinned: line.pinned,
            point: Point {
                loop_key: self.open.loop_key(&line.leaf)?,
                turns: line.turns,
            },
            tick: line.tick,
            at: line.at,
        };
        match self.open.pins.pop_front() {
            Some(stored) if stored == row => Ok(()),
            None if self.open.grows() => {
                self.write.insert_pin(self.open.key, &row)?;
                self.open.is_changed = true;
                Ok(())
            }
            _ => Err(self.open.diverged("a message was pinned otherwise")),
        }
    }

    pub(super) fn hide(&mut self, line: HideLine) -> Result<(), ImportError> {
        self.enter_stage(RestoreStage::Hides)?;
        let row = HideRow {
            hidden: line.hidden,
            was: line.was,
            session_id: line.session,
            tick: line.tick,
            at: line.at,
        };
        match self.open.hides.pop_front() {
            Some(stored) if stored == row => Ok(()),
            None if self.open.grows() => {
                self.write.restore_hide(self.open.key, &row)?;
                self.open.is_changed = true;
                Ok(())
            }
            _ => Err(self.open.diverged("the session was hidden otherwise")),
        }
    }

    /// Ends the current run; if the file is newer, it must contain all stored undos and redos.
    pub(super) fn close_run(&mut self) -> Result<(), ImportError> {
        let Some(run) = self.open.in_run.take() else {
            return Ok(());
        };
        if let Some(row) = &run.new {
            self.write.insert_edits(run.key, &run.edits)?;
            self.write.close_run(row, None)?;
        }
        match self.open.grows() && !run.waiting.is_empty() {
            true => Err(self.open.diverged("a run was undone or redone otherwise")),
            false => Ok(()),
        }
    }

    /// Returns the key of a block that was restored before.
    pub(super) fn block_key(&self, name: &BlockAddress) -> Result<BlockKey, ImportError> {
        let loop_key = self.open.loop_key(&name.loop_id)?;
        let blocks = self.write.blocks_of_loop(loop_key)?;
        let found = blocks.iter().find(|row| row.generation == name.generation);
        found.map(|row| row.key).ok_or_else(|| {
            let id = shown(name.loop_id.as_str());
            wrong(format!(
                "there is no earlier block {} of loop `{id}`",
                name.generation
            ))
        })
    }

    pub(super) fn manifest(&mut self, line: ManifestLine) -> Result<(), ImportError> {
        self.enter_stage(RestoreStage::Manifests)?;
        self.open.seen.manifests += 1;
        // A stored manifest is not compared: it can be neither changed nor added to.
        if self.open.manifests.contains(&line.manifest) {
            return Ok(());
        }
        let mut parts = Vec::with_capacity(line.parts.len());
        for part in &line.parts {
            let block = part.block.as_ref();
            parts.push(ManifestPart {
                loop_key: self.open.loop_key(&part.loop_id)?,
                section: part.section.clone(),
                block: block.map(|name| self.block_key(name)).transpose()?,
                seqs: part.seqs,
                messages: part.messages,
            });
        }
        self.write.insert_manifest(&ManifestRow {
            key: ManifestKey::default(),
            session: self.open.key,
            leaf: self.open.loop_key(&line.loop_id)?,
            manifest_id: line.manifest,
            tick: line.tick,
            recorded_at: line.recorded_at,
            older_loops: line.older_loops,
            parts,
            size: line.size.into(),
            counter: line.counter,
            sha256: codec::unhex(&line.sha256)
                .ok_or_else(|| wrong("its sha256 is not a digest"))?,
        })?;
        self.open.is_changed = true;
        Ok(())
    }
}
