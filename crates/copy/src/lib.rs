//! Copies all sessions of one database to another, whatever their backends.
//!
//! A session is copied as the lines of its export, which contain all stored data of the session. If the target has
//! the session, the lines of both are compared: equal bytes mean an equal session. Nothing is written twice, so an
//! interrupted copy can be continued, and a later copy adds new content. Each session is one snapshot of the source
//! and one transaction of the target. The lines are kept on disk in between, so that no session needs to fit into
//! memory.
//!
//! [`copy`] never waits for an agent, so the copy of an active session may be out of date at once. [`copy_at_rest`]
//! copies each session while no program holds a lease of it, so that both databases are equal at that time.
//!
//! Besides the lines, a copy has the kept files of imports (`attachments.rs`), the hides of sessions (`hides.rs`) and
//! the receipts of removals (`receipts.rs`). Leases, the search index, and the marks by which an import recognises
//! its transcripts are not copied: leases belong to a process, and the marks are keyed per database. For a copy of an
//! SQLite file, see `loopstore_admin::backup`.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod attachments;
mod cutover;
mod hides;
mod receipts;
mod spool;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, io};

use loopstore::extend::{Database, SessionKey, StoreError, StoreResult};
use loopstore::internal::database;
use loopstore::model::{LoopId, SessionId};
use loopstore_export::ExportError;
use loopstore_transcripts::{ImportError, SessionLines, Source, import_source};
use serde::Serialize;
use spool::{LineSpool, SpooledLines, digest_in};

/// The rules for receipts, without a promise for others.
#[doc(hidden)]
pub mod internal {
    pub use crate::receipts::{seal_again, seal_alone};
}

/// An error that ended a copy. The sessions copied so far stay, and the next copy continues.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// One of the stores failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A session could not be exported.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A session could not be imported.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The folder for temporary files cannot be used.
    #[error("{path}: {source}")]
    Folder {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A session that is not the same in both databases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferingSession {
    /// The session.
    pub session_id: SessionId,
    /// The reason that the session was not copied, if it is known.
    pub reason: Option<String>,
}

/// A session that stayed active for too long: its target has an earlier state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActiveSession {
    /// The session.
    pub session_id: SessionId,
    /// The loop with a held lease; `None` if the session was repeatedly written without a lease.
    pub loop_id: Option<LoopId>,
    /// The owner of the lease.
    pub owner: Option<String>,
    /// The time at which the lease ends unless it is renewed, as ISO-8601 text.
    pub until: Option<String>,
}

impl std::error::Error for ActiveSession {}

impl fmt::Display for ActiveSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session `{}`: ", self.session_id)?;
        match (&self.loop_id, &self.owner, &self.until) {
            (Some(id), Some(owner), Some(until)) => {
                write!(f, "loop `{id}` is driven by `{owner}` until {until}")
            }
            _ => write!(f, "it is written all the time, by somebody without a lease"),
        }
    }
}

/// The report of a copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CopyReport {
    /// Sessions of the source.
    pub sessions: u64,
    /// Sessions that were copied, as a whole or their new content.
    pub copied: u64,
    /// Sessions that the target had already, byte for byte.
    pub same: u64,
    /// Sessions that differ between the databases afterwards.
    pub differ: Vec<DifferingSession>,
    /// Sessions that stayed active; always empty for [`copy`].
    pub at_work: Vec<ActiveSession>,
    /// Sessions that were erased or pruned in the source and are still in the target.
    pub erased: Vec<SessionId>,
    /// Receipts that were copied.
    pub receipts: u64,
    /// The size of the lines that were read from the source, in bytes; [`copy_at_rest`] counts both of its passes.
    pub bytes: u64,
    /// The duration of the copy in seconds.
    pub seconds: f64,
}

impl CopyReport {
    /// True if the target has all sessions of the source and none that was erased, and no session stayed active.
    pub fn is_whole(&self) -> bool {
        self.differ.is_empty() && self.at_work.is_empty() && self.erased.is_empty()
    }
}

/// A function that is called with the number of sessions copied and the total.
pub type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// Copies all sessions of `from` to `to`, and compares them. Temporary, unnamed files are written to `folder`.
/// `progress` is called with the number of sessions copied and the total.
///
/// # Errors
/// If a store or the folder fails.
///
/// # Examples
/// ```
/// use loopstore_copy::copy;
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// // To a server it is the same.
/// let (other, folder) = (Store::in_memory()?, tempfile::tempdir()?);
/// let report = copy(store.database(), other.database(), folder.path(), &mut |_done, _all| {})?;
/// assert!(report.is_whole());
/// assert_eq!(report.copied, 1);
/// // A second copy adds only new content.
/// let report = copy(store.database(), other.database(), folder.path(), &mut |_, _| {})?;
/// assert_eq!((report.copied, report.same), (0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn copy(
    from: &dyn Database,
    to: &dyn Database,
    folder: &Path,
    progress: &mut Progress<'_>,
) -> Result<CopyReport, CopyError> {
    let mut copy = SessionCopier::new(from, to, folder);
    copy.all(progress)?;
    copy.finish()
}

/// Copies as [`copy`] does, and then copies each session again under its leases: takes the leases of its current loop
/// and of its open loops in `from`, copies new content, compares, and releases the leases. So both databases are
/// equal at a time at which no agent was writing. Waits for active agents, for `patience` in total; sessions that are
/// still active afterwards are in [`CopyReport::at_work`].
///
/// # Errors
/// As [`copy`], or if `from` is read-only.
///
/// # Examples
/// ```
/// use loopstore_copy::copy_at_rest;
/// use loopstore::*;
/// use std::time::Duration;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// let (other, folder) = (Store::in_memory()?, tempfile::tempdir()?);
/// let patience = Duration::from_secs(60);
/// let report = copy_at_rest(store.database(), other.database(), folder.path(), patience, &mut |_, _| {})?;
/// for session in &report.at_work {
///     println!("not at rest: {session}");
/// }
/// assert!(report.is_whole());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn copy_at_rest(
    from: &dyn Database,
    to: &dyn Database,
    folder: &Path,
    patience: Duration,
    progress: &mut Progress<'_>,
) -> Result<CopyReport, CopyError> {
    let mut copy = SessionCopier::new(from, to, folder);
    copy.all(progress)?;
    copy.copy_all_undriven(patience, progress)?;
    copy.finish()
}

/// A running copy.
struct SessionCopier<'a> {
    begun: Instant,
    from: &'a dyn Database,
    to: &'a dyn Database,
    folder: &'a Path,
    /// The copied sessions, by their keys in the source.
    copied: HashSet<SessionKey>,
    differ: BTreeMap<SessionKey, DifferingSession>,
    report: CopyReport,
}

/// The result for one session.
enum SessionOutcome {
    /// The session was removed since it was listed.
    Gone,
    /// The target had the session, byte for byte.
    Same,
    /// The session was copied.
    Copied,
    /// The target has another session with the id; with the reason if it is known.
    Differs(Option<String>),
}

impl<'a> SessionCopier<'a> {
    fn new(from: &'a dyn Database, to: &'a dyn Database, folder: &'a Path) -> Self {
        Self {
            begun: Instant::now(),
            from,
            to,
            folder,
            copied: HashSet::new(),
            differ: BTreeMap::new(),
            report: CopyReport::default(),
        }
    }

    /// Copies each session from one snapshot.
    fn all(&mut self, progress: &mut Progress<'_>) -> Result<(), CopyError> {
        let sessions = self.sessions()?;
        for (done, (key, id)) in (1..).zip(&sessions) {
            self.one(*key, id)?;
            progress(done, sessions.len() as u64);
        }
        Ok(())
    }

    /// Lists the sessions of the source in the order in which they were stored.
    fn sessions(&mut self) -> StoreResult<Vec<(SessionKey, SessionId)>> {
        let sessions = database::scan(self.from, |scan| {
            let keys = scan.session_keys()?.into_iter();
            let named = keys.map(|key| Ok((key, scan.session_by_key(key)?.session_id)));
            let mut named = named.collect::<StoreResult<Vec<_>>>()?;
            // A session that lost its id in the source loses it in the target before the session that took the
            // id is copied.
            let mut renamed = std::collections::HashSet::new();
            for (key, _) in &named {
                if !scan.hides(*key)?.is_empty() {
                    renamed.insert(*key);
                }
            }
            named.sort_by_key(|(key, _)| !renamed.contains(key));
            Ok(named)
        })?;
        self.report.sessions = sessions.len() as u64;
        Ok(sessions)
    }

    fn one(&mut self, key: SessionKey, id: &SessionId) -> Result<(), CopyError> {
        let outcome = self.copy_once(id)?;
        if !matches!(
            outcome,
            SessionOutcome::Gone | SessionOutcome::Differs(Some(_))
        ) {
            attachments::copy_attachments(self, id)?;
        }
        self.differ.remove(&key);
        match outcome {
            SessionOutcome::Gone => {
                self.copied.remove(&key);
                self.report.sessions -= 1;
            }
            SessionOutcome::Same => {}
            SessionOutcome::Copied => {
                self.copied.insert(key);
            }
            SessionOutcome::Differs(reason) => {
                let session = id.clone();
                self.differ.insert(
                    key,
                    DifferingSession {
                        session_id: session,
                        reason,
                    },
                );
            }
        }
        Ok(())
    }

    fn copy_once(&mut self, id: &SessionId) -> Result<SessionOutcome, CopyError> {
        hides::follow(self.from, self.to, id)?;
        let mut way = LineSpool::new(self.folder)?;
        let Some(lines) = SpooledLines::of(self.from, id, &mut way.file)? else {
            return Ok(SessionOutcome::Gone);
        };
        self.report.bytes += lines.bytes;
        if digest_in(self.to, id)? == Some(lines.digest) {
            return Ok(SessionOutcome::Same);
        }
        let source = &mut Source {
            path: Path::new("the lines of the session"),
            reader: &mut way.reader()?,
        };
        match import_source(self.to, &SessionLines, source, Some(id.clone())) {
            Ok(_) if digest_in(self.to, id)? == Some(lines.digest) => Ok(SessionOutcome::Copied),
            Ok(_) => Ok(SessionOutcome::Differs(None)),
            Err(error @ (ImportError::NoTranscript(_) | ImportError::Refused(_))) => {
                Ok(SessionOutcome::Differs(Some(error.to_string())))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn finish(mut self) -> Result<CopyReport, CopyError> {
        receipts::copy_receipts(&mut self)?;
        self.copied.retain(|key| !self.differ.contains_key(key));
        let mut report = self.report;
        report.copied = self.copied.len() as u64;
        report.differ = self.differ.into_values().collect();
        let others = report.copied + report.differ.len() as u64;
        report.same = report.sessions.saturating_sub(others);
        report.seconds = self.begun.elapsed().as_secs_f64();
        Ok(report)
    }
}
