//! Archiving: the content of cold loops is compressed, and is read as before.
//!
//! The cold loops are selected in one snapshot. Their messages are read and compressed while no transaction is
//! open; then each batch of a few MiB is written in a transaction of its own, which checks again that the loop
//! is cold and that the messages are unchanged. Other programs can record meanwhile. If the process is killed,
//! some loops are archived in part, and the next call continues.

mod cold;
mod moving;

use std::collections::BTreeMap;

use loopstore::extend::{Database, StoreError, StoreResult};
use loopstore::internal::database;
use loopstore::model::{LoopId, SessionId};
use serde::Serialize;

use cold::{ColdLoop, ColdLoops};

/// A request to archive loops.
#[derive(Clone, Debug, Default)]
pub struct ArchiveRequest {
    /// Loops of this session; `None`: of all.
    pub session: Option<SessionId>,
    /// These loops of the session, even if a context shows them; if empty, the cold loops.
    pub loops: Vec<LoopId>,
    /// True to archive also loops that a context shows, including the current loop.
    pub shown: bool,
    /// Only loops without activity for this number of milliseconds.
    pub older_than: Option<i64>,
    /// The reason; it is stored in the receipts.
    pub reason: Option<String>,
    /// True to change nothing and only report.
    pub dry_run: bool,
}

/// A request to restore archived loops.
#[derive(Clone, Debug, Default)]
pub struct UnarchiveRequest {
    /// Loops of this session; `None`: of all.
    pub session: Option<SessionId>,
    /// These loops of the session; if empty, all loops.
    pub loops: Vec<LoopId>,
    /// The reason; it is stored in the receipts.
    pub reason: Option<String>,
    /// True to change nothing and only report.
    pub dry_run: bool,
}

/// A loop whose content was moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedLoop {
    /// The session.
    pub session_id: SessionId,
    /// The loop.
    pub loop_id: LoopId,
    /// The number of messages moved, extensions included.
    pub messages: u64,
    /// The size of the content before, in bytes.
    pub bytes_before: u64,
    /// The size of the content now, in bytes.
    pub bytes_after: u64,
}

/// The reason that a loop is not archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The loop has not ended, or a program holds its lease.
    Open,
    /// The loop is the current loop of its session.
    Current,
    /// A context shows turns of the loop.
    Shown,
    /// The loop was active more recently than [`ArchiveRequest::older_than`].
    Recent,
    /// The loop changed while other loops were archived.
    Changed,
}

/// A loop that is not archived, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedLoop {
    /// The session.
    pub session_id: SessionId,
    /// The loop.
    pub loop_id: LoopId,
    /// The reason.
    pub why: SkipReason,
}

/// The report of an archiving or a restoration, or of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArchiveReport {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// Loops whose content was moved.
    pub loops: Vec<MovedLoop>,
    /// Messages that were moved.
    pub messages: u64,
    /// The size of the content before, in bytes.
    pub bytes_before: u64,
    /// The size of the content now, in bytes.
    pub bytes_after: u64,
    /// Loops that were not archived.
    pub kept: Vec<SkippedLoop>,
    /// The receipts.
    pub receipts: Vec<i64>,
}

impl ArchiveReport {
    fn new(dry_run: bool) -> Self {
        Self {
            dry_run,
            ..Self::default()
        }
    }

    /// Adds up the moved content of each loop.
    fn take(&mut self, moved: BTreeMap<usize, MovedLoop>) {
        for one in moved.into_values().filter(|one| one.messages > 0) {
            self.messages += one.messages;
            self.bytes_before += one.bytes_before;
            self.bytes_after += one.bytes_after;
            self.loops.push(one);
        }
    }
}

/// Archives loops: their content is compressed, and is read as before. Loops that have not ended are not archived.
/// Loops that a context shows are archived only if the request lists them or sets [`ArchiveRequest::shown`].
///
/// The file does not shrink: its free pages are used again.
///
/// # Errors
/// If the session or a loop does not exist, a loop in `loops` has not ended, or the store fails. Loops that were
/// archived before the error stay archived, and the next call continues.
///
/// # Examples
/// ```
/// use loopstore_admin::retention::{ArchiveRequest, archive};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// chat.end_loop(LoopStatus::Completed)?;
/// // Also a loop that a context shows.
/// let request = ArchiveRequest { shown: true, ..ArchiveRequest::default() };
/// let report = archive(store.database(), &request)?;
/// assert!(report.bytes_after < report.bytes_before);
/// let context = chat.context()?;
/// assert_eq!(context.messages.len(), 41);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn archive(store: &dyn Database, request: &ArchiveRequest) -> StoreResult<ArchiveReport> {
    if request.session.is_none() && !request.loops.is_empty() {
        return Err(StoreError::Invalid(
            "a loop can only be named together with its session".into(),
        ));
    }
    let sessions = database::scan(store, |scan| cold::sessions(scan, request.session.as_ref()))?;
    let mut report = ArchiveReport::new(request.dry_run);
    for key in sessions {
        let plan = database::scan(store, |scan| ColdLoops::of(scan, key, request))?;
        if let Some(plan) = plan {
            report.kept.extend(plan.kept);
            moving::into_packs(store, &plan.session, plan.cold, request, &mut report)?;
        }
    }
    Ok(report)
}

/// Restores the content of archived loops into their rows.
///
/// # Errors
/// If the session or a loop does not exist, a pack is damaged, or the store fails. Content that was restored before
/// the error stays restored.
///
/// # Examples
/// ```
/// use loopstore_admin::retention::{ArchiveRequest, UnarchiveRequest, archive, unarchive};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// chat.end_loop(LoopStatus::Completed)?;
/// archive(store.database(), &ArchiveRequest { shown: true, ..ArchiveRequest::default() })?;
/// let session = Some(chat.id().clone());
/// let request = UnarchiveRequest { session, ..UnarchiveRequest::default() };
/// assert_eq!(unarchive(store.database(), &request)?.messages, 41);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn unarchive(store: &dyn Database, request: &UnarchiveRequest) -> StoreResult<ArchiveReport> {
    let sessions = database::scan(store, |scan| cold::sessions(scan, request.session.as_ref()))?;
    let mut report = ArchiveReport::new(request.dry_run);
    for key in sessions {
        let named = &request.loops;
        let found = database::scan(store, |scan| cold::archived(scan, key, named))?;
        if let Some((session, loops)) = found {
            moving::out_of_packs(store, &session, loops, request, &mut report)?;
        }
    }
    Ok(report)
}
