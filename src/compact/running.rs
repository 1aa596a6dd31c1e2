//! Attempts in progress. An attempt that calls code of users, or another process, is recorded before the call. If the
//! process is killed, an open row is left, which the next compaction of the session closes.

use std::cell::RefCell;

use crate::model::Time;
use crate::overlay;
use crate::store::{
    self, LeaseGuard, LeaseRow, LoopKey, Outcome, RunRow, SessionKey, SessionStore, StoreRead,
    StoreResult, StoreWrite, digest, lease,
};

/// The time in milliseconds for which an attempt counts as alive if the state of its process is unknown.
const MAY_RUN: i64 = 60 * 60 * 1_000;

/// The open row of an attempt, if it is to have one.
#[derive(Default)]
pub(super) struct OpenRow {
    planned: RefCell<Option<RunRow>>,
    opened: RefCell<Option<OpenedRun>>,
}

struct OpenedRun {
    row: RunRow,
    /// Shows others that the attempt is alive.
    _guard: Option<LeaseGuard>,
}

impl OpenRow {
    /// Sets the row to write. Without a plan no row is written.
    pub(super) fn plan(&self, row: RunRow) {
        *self.planned.borrow_mut() = Some(row);
    }

    /// Writes the row if it was planned, once.
    pub(super) fn write(&self, store: &dyn SessionStore) -> StoreResult<()> {
        let Some(mut row) = self.planned.borrow_mut().take() else {
            return Ok(());
        };
        let guard = store::write(store, |write| {
            row.key = write.insert_run(&row)?;
            write.note_open_run(&row)?;
            let guard = write.guard_lease(NO_LOOP, row.key.0)?;
            Ok(guard)
        })?;
        *self.opened.borrow_mut() = Some(OpenedRun { row, _guard: guard });
        Ok(())
    }

    /// True if the row is written.
    pub(super) fn is_written(&self) -> bool {
        self.opened.borrow().is_some()
    }

    /// Turns `run` into the row that closes the open one, if that still is open. Returns the digest of the open row.
    pub(super) fn take(
        &self,
        write: &dyn StoreRead,
        run: &mut RunRow,
    ) -> StoreResult<Option<[u8; 32]>> {
        let Some(OpenedRun { row, .. }) = &*self.opened.borrow() else {
            return Ok(None);
        };
        if write.run_by_key(row.key)?.outcome != Outcome::Running {
            return Ok(None);
        }
        run.key = row.key;
        run.run_id.clone_from(&row.run_id);
        Ok(Some(digest::run(row, &[])))
    }

    /// Forgets the row, which is closed.
    pub(super) fn closed(&self) {
        self.opened.borrow_mut().take();
    }
}

/// The loop under which the leases of attempts are stored; no loop has this key.
const NO_LOOP: LoopKey = LoopKey(0);

/// Closes the attempts of a session, or of all sessions, whose process has ended, and returns the ids of their runs.
///
/// # Errors
/// If the store fails; attempts before the error are closed.
#[doc(hidden)]
pub fn close_interrupted(
    store: &dyn SessionStore,
    session: Option<SessionKey>,
    dry_run: bool,
) -> StoreResult<Vec<String>> {
    let gone = store::read(store, |read| {
        let mut gone = Vec::new();
        for row in read.open_runs(session)? {
            if is_gone(read, &row)? {
                gone.push(row);
            }
        }
        Ok(gone)
    })?;
    let mut closed = Vec::new();
    for row in gone {
        if dry_run || store::write(store, |write| interrupt(write, &row))? {
            closed.push(row.run_id);
        }
    }
    Ok(closed)
}

fn is_gone(read: &dyn StoreRead, row: &RunRow) -> StoreResult<bool> {
    let holder = LeaseRow {
        loop_key: NO_LOOP,
        owner: String::new(),
        token: row.key.0,
        ttl: MAY_RUN,
        renewed_at: 0,
        expires_at: 0,
        released: false,
    };
    if read.is_holder_gone(&holder)? {
        return Ok(true);
    }
    let started = Time::from_text(row.started_at.clone()).millis();
    Ok(started.is_none_or(|at| at.saturating_add(MAY_RUN) < lease::now()))
}

/// Closes an attempt; `false` if it ended meanwhile.
fn interrupt(write: &mut dyn StoreWrite, row: &RunRow) -> StoreResult<bool> {
    if write.run_by_key(row.key)?.outcome != Outcome::Running {
        return Ok(false);
    }
    let run = RunRow {
        outcome: Outcome::Interrupted,
        error: Some("its process ended before it did".into()),
        ..row.clone()
    };
    overlay::commit(write, run, Vec::new(), Some(digest::run(row, &[])))?;
    Ok(true)
}
