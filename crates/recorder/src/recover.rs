//! Recovery after a crash: loops without a driver, and calls without a result.

use loopstore::extend::{
    self as store, LoopKey, SessionKey, SessionStore, StoreError, StoreRead, StoreResult,
    StoreWrite, lease,
};
use loopstore::internal::{close_interrupted, edit_loop, set_status_leased, time_text};
use loopstore::model::{LoopId, LoopStatus, SessionId, Time};
use loopstore_model::clock::now;
use serde::Serialize;

use crate::calls::{self, StartedCall};
use crate::notes::fold;

/// The scope of a recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoverRequest {
    /// The session to recover; `None` for all.
    pub session: Option<SessionId>,
    /// True to abort also loops with a driver, and loops that never had one (imports).
    pub all: bool,
    /// True to change nothing and only report.
    pub dry_run: bool,
}

/// A loop that was aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AbortedLoop {
    /// The session.
    pub session_id: SessionId,
    /// The loop.
    pub loop_id: LoopId,
    /// The earlier status: `Running` or `Pending`.
    pub was: String,
    /// The owner of its lease.
    pub owner: Option<String>,
    /// The end of its lease, as ISO-8601 text.
    pub lease_until: Option<String>,
    /// The number of stored turns.
    pub turns: u32,
}

/// A loop that was not aborted, since its driver may still run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldLoop {
    /// The session.
    pub session_id: SessionId,
    /// The loop.
    pub loop_id: LoopId,
    /// The owner of its lease; `None` if the loop never had a driver.
    pub owner: Option<String>,
    /// The end of its lease, as ISO-8601 text.
    pub lease_until: Option<String>,
}

/// The report of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecoverReport {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// Loops that were marked as aborted, or would be in a dry run.
    pub aborted: Vec<AbortedLoop>,
    /// Loops that were left running.
    pub left: Vec<HeldLoop>,
    /// Tool calls that had started and have no result, except those of loops whose driver may still run.
    pub calls: Vec<StartedCall>,
    /// The runs of compactions that were closed as interrupted, or would be in a dry run.
    pub interrupted: Vec<String>,
}

/// The treatment of a running loop.
enum Recovery {
    Gone,
    Left(HeldLoop),
    Aborted(AbortedLoop),
}

/// Marks pending and running loops without a driver as aborted, each in one transaction, and lists the calls that
/// have started and have no result. An aborted loop can be resumed.
///
/// # Errors
/// If the session does not exist, or the store fails. Loops that were marked before the error stay marked.
///
/// # Examples
/// ```
/// use loopstore_recorder::event::*;
/// use loopstore_recorder::{RecoverRequest, recover};
/// use loopstore::*;
/// use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};
///
/// # let store = Store::in_memory()?;
/// # let (session, loop_key) = (SessionId::new("s")?, LoopId::new("s.1")?);
/// let mut recorder = SessionRecorder::new(store.database(), RecorderOptions::default());
/// let start = AgentStart::new(session, loop_key.clone());
/// recorder.record(AgentEvent::AgentStart(start))?;
/// drop(recorder);
/// let report = recover(store.database(), &RecoverRequest::default())?;
/// assert_eq!(report.aborted[0].loop_id, loop_key);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recover(store: &dyn SessionStore, request: &RecoverRequest) -> StoreResult<RecoverReport> {
    let (session, loops) = store::read(store, |read| {
        let session = session_key(read, request)?;
        Ok((session, read.loops_at_work(session)?))
    })?;
    let mut report = RecoverReport {
        dry_run: request.dry_run,
        ..RecoverReport::default()
    };
    for key in loops {
        let found = match request.dry_run {
            true => store::read(store, |read| look(read, key, request.all, now()))?,
            false => store::write(store, |write| abort(write, key, request.all))?,
        };
        match found {
            Recovery::Gone => {}
            Recovery::Left(held) => report.left.push(held),
            Recovery::Aborted(aborted) => report.aborted.push(aborted),
        }
    }
    report.interrupted = close_interrupted(store, session, request.dry_run)?;
    report.calls = store::read(store, |read| {
        let calls = calls::started(read, read.open_calls(session)?)?;
        Ok(calls
            .into_iter()
            .filter(|call| !is_driven(&report, call))
            .collect())
    })?;
    Ok(report)
}

/// True if the driver of a call's loop may still run.
fn is_driven(report: &RecoverReport, call: &StartedCall) -> bool {
    let mut left = report.left.iter();
    left.any(|held| {
        held.owner.is_some() && held.session_id == call.session_id && held.loop_id == call.loop_id
    })
}

fn session_key(read: &dyn StoreRead, request: &RecoverRequest) -> StoreResult<Option<SessionKey>> {
    let Some(id) = &request.session else {
        return Ok(None);
    };
    match read.session(id)? {
        Some(row) => Ok(Some(row.key)),
        None => Err(StoreError::NoSession(id.to_string())),
    }
}

fn look(read: &dyn StoreRead, key: LoopKey, all: bool, now: i64) -> StoreResult<Recovery> {
    let row = read.loop_by_key(key)?;
    if row.status.is_ended() {
        return Ok(Recovery::Gone);
    }
    let session = read.session_by_key(row.session)?.session_id;
    let held = read.lease(key)?;
    let is_driven = held.is_none() || lease::held(read, key, now)?.is_some();
    let owner = held.as_ref().map(|held| held.owner.clone());
    let lease_until = held.as_ref().map(|held| time_text(held.expires_at));
    Ok(match is_driven && !all {
        true => Recovery::Left(HeldLoop {
            session_id: session,
            loop_id: row.core.loop_id,
            owner,
            lease_until,
        }),
        false => Recovery::Aborted(AbortedLoop {
            session_id: session,
            was: row.status.as_str().to_owned(),
            turns: row.totals.turns,
            loop_id: row.core.loop_id,
            owner,
            lease_until,
        }),
    })
}

fn abort(write: &mut dyn StoreWrite, key: LoopKey, all: bool) -> StoreResult<Recovery> {
    let now = now();
    lease::recount(write, key, now)?;
    let found = look(write, key, all, now)?;
    if matches!(found, Recovery::Aborted(_)) {
        // From here on writes of the driver fail, if it still runs.
        lease::revoke(write, key)?;
        let ended_at = Time::now();
        edit_loop(write, key, |record| {
            record.status = LoopStatus::Aborted;
            record.ended_at = Some(ended_at.clone());
        })?;
        fold(write, key)?;
        set_status_leased(write, key, LoopStatus::Aborted, Some(&ended_at))?;
    }
    Ok(found)
}
