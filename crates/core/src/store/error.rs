//! The errors of a store, divided by what the caller can do about them.

use std::path::PathBuf;

use super::edit_refusal::EditRefusal;

/// The driver's own error, behind `source()`.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An error on opening a database.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or its folder does not exist.
    #[error("{path}: there is no database here")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a loopstore database.
    #[error("{path}: this is not a loopstore database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The database is to be opened for writing, but its file or its folder is read-only.
    #[error("{path}: the database can only be read here: its file or its folder is read-only")]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// A key was given for a database that is not encrypted.
    #[error("{path}: this database is not encrypted; open it without a key")]
    NotEncrypted {
        /// The file.
        path: PathBuf,
    },
    /// The file is encrypted, or not a database; no key was given.
    #[error("{path}: this is an encrypted database, or none at all; a key is needed to tell")]
    KeyMissing {
        /// The file.
        path: PathBuf,
    },
    /// The key is not the key of the file.
    #[error("{path}: wrong key; or this is not a database, or its first page is damaged")]
    WrongKey {
        /// The file.
        path: PathBuf,
    },
    /// A key was given, but this program was built without encryption.
    #[error("this program was built without encryption (feature `sqlcipher`)")]
    NoEncryption,
    /// The path is a symbolic link.
    #[error("{path}: this is a symbolic link to {to}; name that file instead")]
    Link {
        /// The link.
        path: PathBuf,
        /// The target of the link.
        to: PathBuf,
    },
    /// The file was written by a later version.
    #[error(
        "{path}: written by a newer loopstore (format {found}; this program reads up to {known}); \
         use that version or a later one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format that this program knows.
        known: i64,
    },
    /// The file was written by an earlier version, and is to be opened for reading only.
    #[error(
        "{path}: written by an older loopstore (format {found}, now {known}); open it once for \
         writing to upgrade it"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The format of this program.
        known: i64,
    },
    /// The file was written by a version that was never released, in a format that is no longer read.
    #[error(
        "{path}: written by a loopstore that was never released, in a format that is no longer read; \
         export its sessions with the program that wrote it and import them into a new database"
    )]
    Unreleased {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error("{path}: the database is damaged ({detail})")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The findings, as text.
        detail: String,
    },
    /// The file is to be upgraded, and its tables have triggers, indexes or references that are not part of the
    /// store, or another object is in place of a table that opening reads.
    #[error(
        "{path}: the schema of the database has objects that are not part of it: {objects}; drop them, or \
         copy the record into a new database, then try again"
    )]
    ForeignSchema {
        /// The file.
        path: PathBuf,
        /// The findings, as text.
        objects: String,
    },
    /// The file is on a network file system, where SQLite's locks cannot be trusted.
    #[error(
        "{path}: locks on a {kind} file system are not reliable; keep the database on a local disk"
    )]
    NetworkFileSystem {
        /// The file.
        path: PathBuf,
        /// The kind of file system.
        kind: String,
    },
    /// The database was written with another token counter.
    #[error(
        "this database counts tokens with `{stored}`, not `{given}`; open it with that counter, or \
         recount it"
    )]
    Counter {
        /// The counter that wrote it.
        stored: String,
        /// The counter of this program.
        given: String,
    },
    /// A recount was interrupted, or is still running: some counts are new and some are old.
    #[error("a recount with `{to}` was interrupted and must be finished first")]
    Recounting {
        /// The counter of the recount.
        to: String,
    },
    /// The folder of the database is read-only, and a part of the data is only in the write-ahead log.
    #[error(
        "{path}: the write-ahead log holds changes that are not in the file yet, and reading them \
         needs a writable folder; copy the file together with its `-wal` and open the copy"
    )]
    LogUnread {
        /// The file.
        path: PathBuf,
    },
    /// Another program holds the database.
    #[error("the database is busy; try again when the other program is done")]
    Busy,
    /// The address of a database server cannot be read.
    #[error("invalid database address: {detail}; expected postgres://USER:PASSWORD@HOST:5432/NAME")]
    Address {
        /// The fault in the address, without the values in it.
        detail: String,
    },
    /// The server cannot be reached.
    #[error(
        "{place}: cannot reach the server ({detail}); check host and port, and that it is running"
    )]
    Unreachable {
        /// Hosts and name, without user and password.
        place: String,
        /// The error of the connection.
        detail: String,
    },
    /// The server refused this user.
    #[error(
        "{place}: the server refused this user ({detail}); check user, password and pg_hba.conf"
    )]
    Refused {
        /// Hosts and name.
        place: String,
        /// The message of the server.
        detail: String,
    },
    /// The server has no such database.
    #[error("{place}: the server has no database with this name; create it with `createdb`")]
    NoDatabase {
        /// Hosts and name.
        place: String,
    },
    /// The server is too old.
    #[error("{place}: this is PostgreSQL {found}; loopstore needs {oldest} or later")]
    OldServer {
        /// Hosts and name.
        place: String,
        /// Its version.
        found: i64,
        /// The oldest supported version.
        oldest: i64,
    },
    /// The database separates tenants, but row-level security does not apply to this role.
    #[error(
        "{place}: this database separates tenants, and this role sees all of them; connect with the \
         role of one tenant, or assume it with `?options=-c%20role%3DNAME`"
    )]
    EveryTenant {
        /// Hosts and name.
        place: String,
    },
    /// The database is on a Citus cluster, and its tables are not distributed there.
    #[error(
        "{place}: this is a Citus cluster, and {detail}; the tables must be made there as distributed ones \
         before the database is opened, on the coordinator"
    )]
    Undistributed {
        /// Hosts and name.
        place: String,
        /// The state of the tables that was found.
        detail: String,
    },
    /// The server is a worker of a Citus cluster.
    #[error("{place}: this is a worker of a Citus cluster; connect to its coordinator")]
    Worker {
        /// Hosts and name.
        place: String,
    },
    /// The server refuses a statement that opening needs.
    #[error("{place}: cannot open the database: {detail}")]
    Server {
        /// Hosts and name.
        place: String,
        /// The message of the server.
        detail: String,
    },
    /// Any other error.
    #[error("{path}: cannot open the database: {cause}")]
    Other {
        /// The file.
        path: PathBuf,
        /// The error of the driver or the system.
        #[source]
        cause: Cause,
    },
}

/// An error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer held the database longer than the busy timeout.
    #[error("the database is busy: another writer held it longer than the timeout; try again")]
    Busy,
    /// There is no such session.
    #[error("no session `{0}`")]
    NoSession(String),
    /// There is no such loop.
    #[error("no loop `{0}` in this session")]
    NoLoop(String),
    /// There is no such run.
    #[error("no run `{0}`")]
    NoRun(String),
    /// There is no such manifest.
    #[error("no manifest `{0}`")]
    NoManifest(String),
    /// There is no compaction that could be undone or redone.
    #[error("there is no {what}")]
    NoCompaction {
        /// The kind and state of the run that was searched for.
        what: &'static str,
        /// The loop whose chain was searched.
        loop_id: String,
    },
    /// There is no such blob.
    #[error("no blob `{0}`; `payload` in the view v_messages names the blobs of a message")]
    NoBlob(String),
    /// The session exists already.
    #[error("session `{0}` already exists")]
    SessionExists(String),
    /// The loop exists already.
    #[error("loop `{0}` already exists in this session")]
    LoopExists(String),
    /// An append key of the session belongs to other messages.
    #[error("{}", key_taken(key, loop_id, seqs))]
    KeyTaken {
        /// The key.
        key: String,
        /// The loop with the last of the messages that were appended under the key.
        loop_id: String,
        /// The sequences of these messages in that loop.
        seqs: std::ops::Range<u32>,
    },
    /// An abbreviated id that matches several ids.
    #[error("`{given}` matches {count} ids: {}; give more characters", listed(ids, *count))]
    Ambiguous {
        /// The abbreviated id.
        given: String,
        /// The number of ids that begin with it.
        count: usize,
        /// A few of these ids.
        ids: Vec<String>,
    },
    /// An edit cannot be made.
    #[error(transparent)]
    EditRefused(#[from] EditRefusal),
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// Another run of this chain was committed first.
    #[error("another compaction of this chain was committed first; rebuild the context and retry")]
    Conflict,
    /// Another driver holds the lease of the loop.
    #[error("loop `{loop_id}` is leased by `{owner}` until {until}")]
    LeaseHeld {
        /// The loop.
        loop_id: String,
        /// The holder of the lease.
        owner: String,
        /// When its lease ends if it is not renewed, as ISO-8601 text.
        until: String,
    },
    /// The writer no longer holds the lease of the loop; nothing of this write was kept.
    #[error(
        "the lease of loop `{loop_id}` (token {token}) was lost{}; rebuild the context before \
         continuing",
        taken(to)
    )]
    LeaseLost {
        /// The loop.
        loop_id: String,
        /// The token that is no longer valid.
        token: i64,
        /// The present holder of the lease, if there is one.
        to: Option<String>,
    },
    /// The database contains something that the store never writes.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The tables have triggers, indexes or references that are not part of the store, or other objects replace its
    /// tables; they could copy, change or block a write. A read fails with this error only if it exceeds a time
    /// limit.
    #[error(
        "the schema of the database has objects that are not part of it: {0}; nothing was written; drop \
         them, or copy the record into a new database, then try again"
    )]
    ForeignSchema(String),
    /// The index of messages is damaged; the stored messages are not.
    #[error("the search index is damaged ({0}); rebuild it")]
    IndexDamaged(String),
    /// The database is read-only.
    #[error("the database is read-only")]
    ReadOnly,
    /// The file or its log was deleted, moved, replaced or rewritten by another program since it was opened.
    #[error(
        "the database files were deleted, moved, replaced or rewritten since they were opened; open \
         the database again"
    )]
    FileReplaced,
    /// The disk is full.
    #[error("the disk is full; nothing was written")]
    Full,
    /// The files cannot be reached, or the disk failed. The write is not stored and may be repeated. There is one
    /// exception: if the disk failed at the very end of a commit *and* the process is then killed, the whole write
    /// may be stored.
    #[error("cannot read or write the database files: {0}")]
    Io(#[source] Cause),
    /// The server cannot be reached, or the connection to it broke; nothing of a write was kept.
    #[error(
        "lost the connection to the database ({0}); nothing was written, try again when the \
         server is back"
    )]
    Connection(#[source] Cause),
    /// The connection broke, or the disk failed, during a commit. The whole write may be stored, or nothing of it.
    #[error(
        "the database did not confirm the commit ({0}); check whether it was applied before \
         retrying"
    )]
    Unconfirmed(#[source] Cause),
    /// Concurrent writes conflict with the transaction; it has to be run again.
    #[error("conflicting concurrent writes; nothing was written, try again")]
    SerializationFailure,
    /// A statement took longer than the server allows.
    #[error(
        "the server cancelled a statement that exceeded its statement_timeout; nothing was \
         written"
    )]
    TimedOut,
    /// The server did not answer a statement for this long, and the connection was closed.
    #[error(
        "the server did not answer for {} s and the connection was closed; nothing was \
         written: check the server, then try again",
        .0.as_secs_f64()
    )]
    StatementTimeout(std::time::Duration),
    /// All connections are in use.
    #[error(
        "all {0} database connections are in use and none became free in time; try again, or allow \
         more"
    )]
    PoolTimeout(usize),
    /// Any other error.
    #[error("database error: {0}")]
    Other(#[source] Cause),
}

/// The result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

fn taken(to: &Option<String>) -> String {
    to.as_ref()
        .map_or_else(String::new, |owner| format!(" to `{owner}`"))
}

/// Lists ids for people, with an ellipsis if there are more.
fn listed(ids: &[String], count: usize) -> String {
    let quoted: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
    let more = if count > ids.len() { ", …" } else { "" };
    quoted.join(", ") + more
}

/// Describes the append that a key belongs to.
pub fn key_taken(key: &str, loop_id: &str, seqs: &std::ops::Range<u32>) -> String {
    let first = match seqs.len() {
        0 => "an append without messages".to_owned(),
        1 => format!("message {} of loop `{loop_id}`", seqs.start),
        _ => format!(
            "messages {} to {} of loop `{loop_id}`",
            seqs.start,
            seqs.end - 1
        ),
    };
    format!(
        "append key `{key}` already belongs to {first}; append other messages under a key of their own"
    )
}
