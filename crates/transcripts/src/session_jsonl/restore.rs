//! Restores the sessions of a file: the beginning and the end of each, and the check that the stored history is the
//! same.

use std::collections::{HashMap, VecDeque};

use loopstore::extend::{
    HideRow, LoopKey, Outcome, PinRow, RunRow, SessionKey, SessionRow, StoreRead, StoreResult,
    StoreWrite,
};
use loopstore::model::{LoopId, SessionId, Time};
use loopstore::tokens::TokenCounter;
use loopstore_verify::verify_session;

use super::form::*;
use super::loop_rows::RestoredLoop;
use super::redacted::RedactedMessages;
use super::runs::OpenRun;
use super::wrong;
use crate::fields::shown;
use crate::{ImportError, ImportReport};

/// The maximum tick, so that later operations still have ticks.
const MAX_TICK: i64 = 1 << 53;

/// The digests of the records that messages were imported from, by the digests of the messages. Both are of one
/// database.
pub type RecordOrigins = HashMap<[u8; 32], [u8; 32]>;

/// Restores stored rows into a store, session by session.
pub struct SessionRestorer<'a> {
    write: &'a mut (dyn StoreWrite + 'a),
    counter: &'a dyn TokenCounter,
    /// The only session to restore; `None` for all.
    only: Option<&'a SessionId>,
    origins: Option<&'a RecordOrigins>,
    report: ImportReport,
    open: Option<OpenSession>,
    /// True within a session that is not restored.
    passes_over: bool,
}

/// The age of a session of the file, compared with the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Age {
    /// More is stored than the file contains.
    Older,
    /// The same is stored.
    Same,
    /// A part of it is stored.
    Newer,
    /// Nothing of it is stored.
    New,
}

/// The number of rows of each kind in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowCounts {
    pub(super) loops: usize,
    pub(super) runs: usize,
    pub(super) manifests: usize,
}

/// The session that is being restored.
pub(super) struct OpenSession {
    pub(super) key: SessionKey,
    pub(super) age: Age,
    line: SessionLine,
    /// The number of its lines so far.
    records: u64,
    pub(super) seen: RowCounts,
    pub(super) loops: HashMap<LoopId, LoopKey>,
    pub(super) loop_key: Option<RestoredLoop>,
    /// The runs that are stored.
    pub(super) runs: HashMap<String, RunRow>,
    pub(super) in_run: Option<OpenRun>,
    /// The stored pins that were not read from the file yet.
    pub(super) pins: VecDeque<PinRow>,
    /// The stored events that hid or showed the session, without those read so far.
    pub(super) hides: VecDeque<HideRow>,
    pub(super) manifests: Vec<String>,
    /// The kind of the last record; the kinds come in this order.
    stage: RestoreStage,
    pub(super) is_changed: bool,
    pub(super) redacted: Option<RedactedMessages>,
}

/// The parts of a session in the order of its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RestoreStage {
    Loops,
    Runs,
    Pins,
    Hides,
    Manifests,
}

/// The current session, and the store that it is restored into.
pub(super) struct SessionTarget<'r> {
    pub(super) write: &'r mut dyn StoreWrite,
    pub(super) counter: &'r dyn TokenCounter,
    pub(super) origins: Option<&'r RecordOrigins>,
    pub(super) report: &'r mut ImportReport,
    pub(super) open: &'r mut OpenSession,
}

impl<'a> SessionRestorer<'a> {
    /// Returns a restore into `write`; with `only`, of just that session.
    pub(crate) fn new(
        write: &'a mut (dyn StoreWrite + 'a),
        counter: &'a dyn TokenCounter,
        only: Option<&'a SessionId>,
    ) -> Self {
        Self {
            write,
            counter,
            only,
            origins: None,
            report: ImportReport::default(),
            open: None,
            passes_over: false,
        }
    }

    /// Gives new messages the origins of their records.
    pub(super) fn with_origins(self, origins: &'a RecordOrigins) -> Self {
        Self {
            origins: Some(origins),
            ..self
        }
    }

    /// Returns the report.
    pub(crate) fn finish(self) -> ImportReport {
        self.report
    }

    pub(super) fn session(&mut self, line: SessionLine) -> Result<(), ImportError> {
        self.is_whole()?;
        if line.loopstore != FORM {
            return Err(wrong(format!(
                "it is of form {}; this version reads form {FORM}",
                line.loopstore
            )));
        }
        if self.only.is_some_and(|only| *only != line.session) {
            self.passes_over = true;
            return Ok(());
        }
        let (theirs, ours) = (shown(&line.counter), self.counter.name());
        if line.counter != ours {
            return Err(wrong(format!(
                "its tokens are counted with {theirs}, those of the database with {ours}; \
                 recount one of the two"
            )));
        }
        if !(0..=MAX_TICK).contains(&line.tick) {
            return Err(wrong(format!("tick {} is out of range", line.tick)));
        }
        self.open = Some(OpenSession::begin(self.write, line)?);
        Ok(())
    }

    /// Counts a record of the current session; `None` if the session is not restored.
    pub(super) fn next_in_session(&mut self) -> Result<Option<SessionTarget<'_>>, ImportError> {
        if self.passes_over {
            return Ok(None);
        }
        let Some(open) = &mut self.open else {
            return Err(wrong("it does not belong to a session"));
        };
        open.records += 1;
        Ok(Some(SessionTarget {
            write: &mut *self.write,
            counter: self.counter,
            origins: self.origins,
            report: &mut self.report,
            open,
        }))
    }

    pub(super) fn end(&mut self, line: EndLine) -> Result<(), ImportError> {
        let Some(mut session) = self.next_in_session()? else {
            self.passes_over = false;
            return Ok(());
        };
        session.close_loop()?;
        session.close_run()?;
        let open = &*session.open;
        // The end was counted, but not the session's own line.
        if open.records != line.records {
            return Err(wrong(format!(
                "session `{}` has {} lines instead of {}",
                shown(open.id().as_str()),
                open.records,
                line.records
            )));
        }
        session.finish()?;
        self.open = None;
        Ok(())
    }

    /// Checks that no session is incomplete.
    pub(super) fn is_whole(&self) -> Result<(), ImportError> {
        let unfinished = "the session before is not whole: its end is missing";
        match self.open.is_some() || self.passes_over {
            true => Err(wrong(unfinished)),
            false => Ok(()),
        }
    }
}

impl OpenSession {
    fn begin(write: &mut dyn StoreWrite, line: SessionLine) -> StoreResult<Self> {
        let stored = write.session(&line.session)?;
        let (key, age) = match &stored {
            None => (write.insert_session(&row_of(&line, None))?, Age::New),
            Some(row) if line.tick > row.tick => (row.key, Age::Newer),
            Some(row) if line.tick == row.tick => (row.key, Age::Same),
            Some(row) => (row.key, Age::Older),
        };
        let mut open = Self {
            key,
            age,
            line,
            records: 0,
            seen: RowCounts::default(),
            loops: HashMap::new(),
            loop_key: None,
            runs: HashMap::new(),
            in_run: None,
            pins: write.pins(key)?.into(),
            hides: write.hides(key)?.into(),
            manifests: Vec::new(),
            stage: RestoreStage::Loops,
            is_changed: stored.is_none(),
            redacted: None,
        };
        let read: &dyn StoreRead = write;
        read.runs(key, &mut |run| {
            // A run that has not ended is in no file.
            if run.outcome != Outcome::Running {
                open.runs.insert(run.run_id.clone(), run);
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        let manifests = read.manifests(key)?.into_iter();
        open.manifests.extend(manifests.map(|row| row.manifest_id));
        Ok(open)
    }

    /// True if rows with a tick of their own may be added.
    pub(super) fn grows(&self) -> bool {
        self.age >= Age::Newer
    }

    pub(super) fn id(&self) -> &SessionId {
        &self.line.session
    }

    /// Returns the key of a loop that was restored before.
    pub(super) fn loop_key(&self, id: &LoopId) -> Result<LoopKey, ImportError> {
        let unknown = || wrong(format!("there is no earlier loop `{}`", shown(id.as_str())));
        self.loops.get(id).copied().ok_or_else(unknown)
    }

    /// Returns the error for a stored session that continued differently from the one in the file.
    pub(super) fn diverged(&self, detail: &str) -> ImportError {
        wrong(format!(
            "session `{}` went on differently in the database: {detail}; import the file into \
             another database",
            shown(self.line.session.as_str())
        ))
    }
}

/// Returns the row of a session. Loops come later, so no loop is current yet.
fn row_of(line: &SessionLine, current_loop: Option<LoopKey>) -> SessionRow {
    SessionRow {
        key: SessionKey::default(),
        session_id: line.session.clone(),
        agent_id: line.agent_id.clone(),
        title: line.title.clone(),
        created_at: sortable(&line.created_at),
        last_active_at: sortable(&line.last_active_at),
        current_loop,
        tick: line.tick,
        source: line.source.clone(),
        project: line.project.clone(),
        meta: line.meta.get().to_owned(),
    }
}

/// Returns a time in the form of its column, since other programs write files too.
fn sortable(time: &Option<String>) -> Option<String> {
    Time::from_text(time.as_ref()?.as_str()).sortable()
}

impl SessionTarget<'_> {
    /// Checks that a record comes in order, and ends the part before it.
    pub(super) fn enter_stage(&mut self, stage: RestoreStage) -> Result<(), ImportError> {
        if self.open.stage > stage {
            return Err(wrong("it comes too late in the session"));
        }
        self.close_loop()?;
        self.close_run()?;
        self.open.stage = stage;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ImportError> {
        self.session_row()?;
        self.close_redacted()?;
        if self.open.is_changed {
            self.is_same_history()?;
            self.is_sound()?;
        }
        let id = self.open.id().clone();
        if !self.report.sessions.contains(&id) {
            self.report.sessions.push(id);
        }
        Ok(())
    }

    /// Updates the description of the session, unless the stored one is newer.
    fn session_row(&mut self) -> Result<(), ImportError> {
        let open = &mut *self.open;
        let current = open.line.current_loop.as_ref();
        let current = current.map(|id| open.loop_key(id)).transpose()?;
        let wanted = SessionRow {
            key: open.key,
            ..row_of(&open.line, current)
        };
        if open.age > Age::Older && self.write.session_by_key(open.key)? != wanted {
            self.write.update_session(&wanted)?;
            open.is_changed = true;
        }
        Ok(())
    }

    /// Checks that the newer file contains everything that is stored.
    fn is_same_history(&self) -> Result<(), ImportError> {
        let open = &*self.open;
        if !open.grows() {
            return Ok(());
        }
        let stored = counts(self.write, open.key)?;
        if stored != open.seen || !open.pins.is_empty() || !open.hides.is_empty() {
            let detail = "it has loops, runs, pins, hides or manifests that the file does not have";
            return Err(open.diverged(detail));
        }
        Ok(())
    }

    /// Checks the restored rows as `verify` does.
    fn is_sound(&self) -> Result<(), ImportError> {
        let report = verify_session(self.write, self.counter, self.open.key)?;
        match report.problems.first() {
            None => Ok(()),
            Some(problem) => Err(wrong(format!(
                "what the file says does not fit together: {}: {}",
                shown(&problem.place),
                shown(&problem.detail)
            ))),
        }
    }
}

fn counts(read: &dyn StoreRead, session: SessionKey) -> StoreResult<RowCounts> {
    let mut counts = RowCounts {
        loops: read.loops(session)?.len(),
        manifests: read.manifests(session)?.len(),
        ..RowCounts::default()
    };
    read.runs(session, &mut |run| {
        counts.runs += usize::from(run.outcome != Outcome::Running);
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(counts)
}
