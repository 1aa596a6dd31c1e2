//! Brings two databases together, both ways: the union of their sessions, byte for byte the same in both.
//!
//! One of the databases may be behind a stream, such as the standard input and output of `ssh`: [`sync_stream`] asks
//! and [`serve`] answers. [`sync`] brings together two databases that are opened here. Both go the same way, through
//! the trait `Peer` (`peer.rs`), so there is one place for every rule.
//!
//! - Fingerprints find the sessions that differ (`fingerprint.rs`). No message is read for that.
//! - A session that differs is read from both databases as its lines (`document.rs`). Over a stream only the lines go
//!   that the other side does not have (`delta.rs`).
//! - The union of both is a pure function (`merge.rs`), the same whichever database begins. A loop that both continued
//!   is split into two branches (`fork.rs`).
//! - Each database that differs from the union writes it in one transaction, if the session is still what was read
//!   (`write.rs`). So nothing is ever half, and an interrupted sync continues with the sessions that still differ.
//! - What one database erased, pruned or redacted is removed or redacted in the other one, with the same receipt
//!   (`local.rs`), unless that database refuses.
//!
//! Nothing is compacted, and no network is used: a stream is opened by the caller.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod cover;
mod delta;
mod document;
mod files;
mod fingerprint;
mod fork;
mod fork_overlay;
mod fork_place;
mod hides;
mod local;
mod merge;
#[cfg(test)]
mod merge_tests;
mod peer;
mod quoted;
mod remote;
mod report;
mod rows;
mod run;
mod ticks;
mod wire;
mod write;

use std::io::{Read, Write};

use loopstore::Database;

use crate::local::LocalPeer;
pub use crate::peer::{SyncError, SyncFilter};
use crate::remote::RemotePeer;
pub use crate::remote::{DatabaseOpener, OpenRequest, serve};
pub use crate::report::{
    MadeBranch, MergedSession, RemovedSession, SyncReport, SyncSide, UnsyncedSession,
};
pub use crate::run::SyncProgress;
use crate::run::SyncRun;
pub use crate::wire::WireError;

/// The options of a sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncOptions {
    /// The sessions to bring together; all by default.
    pub filter: SyncFilter,
    /// True to write nothing and only report.
    pub dry_run: bool,
    /// True if this database keeps the sessions that the other one removed or redacted.
    pub keeps_removed: bool,
}

/// Brings two databases together that are opened here. `progress` is called with the number of compared sessions and
/// the number of those that differ.
///
/// # Errors
/// If a store fails, or the databases count tokens differently. Sessions that were brought together stay.
///
/// # Examples
/// ```
/// use loopstore::*;
/// use loopstore_sync::{SyncOptions, sync};
///
/// let (laptop, desktop) = (Store::in_memory()?, Store::in_memory()?);
/// laptop.session("weather")?.append([Message::user("Will it rain?")])?;
/// desktop.session("dinner")?.append([Message::user("What is there to eat?")])?;
/// let options = SyncOptions::default();
/// let report = sync(laptop.database(), desktop.database(), &options, &mut |_done, _all| {})?;
/// assert_eq!((report.sent.len(), report.fetched.len()), (1, 1));
/// let report = sync(laptop.database(), desktop.database(), &options, &mut |_, _| {})?;
/// assert_eq!(report.unchanged, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sync(
    here: &dyn Database,
    there: &dyn Database,
    options: &SyncOptions,
    progress: &mut SyncProgress<'_>,
) -> Result<SyncReport, SyncError> {
    let mut here = local(here, options, options.keeps_removed);
    let mut there = local(there, options, false);
    sync_peers(&mut here, &mut there, options, progress)
}

/// Brings a database together with one behind a stream, where [`serve`] answers. `database` names the database for the
/// other side; it is created there if it does not exist.
///
/// # Errors
/// As [`sync`], or if the stream fails.
///
/// # Examples
/// ```
/// use loopstore::*;
/// use loopstore_sync::{SyncOptions, serve, sync_stream};
/// use std::os::unix::net::UnixStream;
///
/// let (laptop, desktop) = (Store::in_memory()?, SqliteStore::in_memory()?);
/// laptop.session("weather")?.append([Message::user("Will it rain?")])?;
/// let (here, there) = UnixStream::pair()?;
/// let mut database: Option<Box<dyn Database>> = Some(Box::new(desktop));
/// let answering = std::thread::spawn(move || {
///     let open = &mut |_request: &_| database.take().ok_or("it is open already".to_owned());
///     serve(&there, &there, false, open)
/// });
/// let stream = (&here, &here);
/// let report = sync_stream(laptop.database(), stream, "desktop.db", &SyncOptions::default(), &mut |_, _| {})?;
/// assert_eq!(report.sent.len(), 1);
/// # drop(here);
/// # answering.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sync_stream(
    here: &dyn Database,
    (input, output): (impl Read + Send, impl Write + Send),
    database: &str,
    options: &SyncOptions,
    progress: &mut SyncProgress<'_>,
) -> Result<SyncReport, SyncError> {
    let request = OpenRequest {
        database: database.to_owned(),
        counter: here.counter().name().to_owned(),
        dry_run: options.dry_run,
        filter: options.filter.clone(),
    };
    let mut there = RemotePeer::open(input, output, &request)?;
    let mut here = local(here, options, options.keeps_removed);
    sync_peers(&mut here, &mut there, options, progress)
}

fn local<'a>(
    database: &'a dyn Database,
    options: &SyncOptions,
    keeps_removed: bool,
) -> LocalPeer<'a> {
    LocalPeer::new(
        database,
        options.filter.clone(),
        keeps_removed,
        options.dry_run,
    )
}

fn sync_peers(
    here: &mut dyn peer::Peer,
    there: &mut dyn peer::Peer,
    options: &SyncOptions,
    progress: &mut SyncProgress<'_>,
) -> Result<SyncReport, SyncError> {
    let flags = (
        options.dry_run,
        options.keeps_removed,
        !options.filter.is_empty(),
    );
    SyncRun::new(here, there, flags).run(progress)
}
