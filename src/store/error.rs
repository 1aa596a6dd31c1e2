//! What can go wrong, by what the caller can do about it.

use std::path::PathBuf;

/// The driver's own error, behind `source()`.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or its folder is not there.
    #[error("{path}: there is no database here; check --db, or create one with `loopstore import`")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path}: this is not a loopstore database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// A key was given for a database that is not encrypted.
    #[error("{path}: this database is not encrypted; open it without a key")]
    NotEncrypted {
        /// The file.
        path: PathBuf,
    },
    /// The file is encrypted, or no database; no key was given.
    #[error("{path}: this is an encrypted database, or none at all; it takes a key to tell")]
    KeyMissing {
        /// The file.
        path: PathBuf,
    },
    /// The key does not fit the file.
    #[error("{path}: the key does not fit; or this is no database, or its beginning is damaged")]
    WrongKey {
        /// The file.
        path: PathBuf,
    },
    /// A key was given, and this program cannot encrypt.
    #[error("this program was built without encryption; it takes the feature `sqlcipher`")]
    NoEncryption,
    /// The path is a symbolic link.
    #[error("{path}: this is a link to {to}; name that file itself")]
    Link {
        /// The link.
        path: PathBuf,
        /// The file that it leads to.
        to: PathBuf,
    },
    /// A later version wrote it.
    #[error(
        "{path}: written by a newer loopstore (format {found}, this program reads up to {known}); \
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
    /// An earlier version wrote it, and it is to be opened for reading only.
    #[error(
        "{path}: written by an older loopstore (format {found}, now {known}); open it once for \
         writing to bring it up to date"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The format of this program.
        known: i64,
    },
    /// A version that was never released wrote it, in a format that is no longer read.
    #[error(
        "{path}: written by a loopstore that was never released, in a format that is no longer read; \
         export its sessions with the program that wrote it and import them into a new database"
    )]
    Unreleased {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "{path}: the database is damaged ({detail}); restore a backup, or see `loopstore verify`"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The file is on a network file system, where SQLite's locks cannot be trusted.
    #[error(
        "{path}: a {kind} file system cannot be trusted with locks; keep the database on a local disk"
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
         count anew with `loopstore recount`"
    )]
    Counter {
        /// The counter that wrote it.
        stored: String,
        /// The counter it was to be opened with.
        given: String,
    },
    /// A recount was cut off, or is still at work: some counts are new and some are old.
    #[error("a recount with `{to}` is not finished; run `loopstore recount` to finish it")]
    Recounting {
        /// The counter that it counts with.
        to: String,
    },
    /// It is to be read in a folder that cannot be written, and not all of it is in the file.
    #[error(
        "{path}: the log beside the file holds what is not in it yet, and reading that needs a folder \
         that can be written; copy the file together with its `-wal` and open the copy"
    )]
    LogUnread {
        /// The file.
        path: PathBuf,
    },
    /// Another program holds the database.
    #[error("the database is busy; try again when the other program is done")]
    Busy,
    /// The address of a database server cannot be read.
    #[error(
        "the address of the database cannot be read: {detail}; it looks like \
         postgres://USER:PASSWORD@HOST:5432/NAME"
    )]
    Address {
        /// What is wrong, without the values in it.
        detail: String,
    },
    /// The server cannot be reached.
    #[error(
        "{place}: the server cannot be reached ({detail}); check host and port, and that it runs"
    )]
    Unreachable {
        /// Hosts and name, without user and password.
        place: String,
        /// What the connection said.
        detail: String,
    },
    /// The server does not let this user in.
    #[error(
        "{place}: the server does not let this user in ({detail}); check user and password, and what \
         pg_hba.conf allows"
    )]
    Refused {
        /// Hosts and name.
        place: String,
        /// What the server said.
        detail: String,
    },
    /// The server has no such database.
    #[error("{place}: the server has no database of this name; create it with `createdb`")]
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
        /// The oldest that will do.
        oldest: i64,
    },
    /// The database keeps tenants apart, and row-level security does not hold for this role.
    #[error(
        "{place}: tenants are kept apart here, and this role sees all of them; connect with a role of \
         one tenant, or take its place with `?options=-c%20role%3DNAME`"
    )]
    EveryTenant {
        /// Hosts and name.
        place: String,
    },
    /// The server refuses what opening needs.
    #[error("{place}: cannot open the database: {detail}")]
    Server {
        /// Hosts and name.
        place: String,
        /// What the server said.
        detail: String,
    },
    /// Anything else.
    #[error("{path}: cannot open the database: {cause}")]
    Other {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: Cause,
    },
}

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer held the database longer than the busy timeout.
    #[error("the database is busy: another writer held it longer than the timeout; try again")]
    Busy,
    /// There is no such session.
    #[error("no session `{0}`; `loopstore sessions` lists them")]
    NoSession(String),
    /// There is no such loop.
    #[error("no loop `{0}` in this session; `loopstore show` lists them")]
    NoLoop(String),
    /// There is no such run.
    #[error("no run `{0}`; `loopstore history` lists them")]
    NoRun(String),
    /// There is no such blob.
    #[error("no blob `{0}`; the images in `payload` of the view v_messages name theirs")]
    NoBlob(String),
    /// The session is there already.
    #[error("session `{0}` exists already")]
    SessionExists(String),
    /// The loop is there already.
    #[error("loop `{0}` exists already in this session")]
    LoopExists(String),
    /// An id that fits several.
    #[error("`{given}` fits {count} ids: {}; give more of it", listed(ids, *count))]
    Ambiguous {
        /// What was given.
        given: String,
        /// How many ids begin with it.
        count: usize,
        /// A few of them.
        ids: Vec<String>,
    },
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// A commit found that another run had come first.
    #[error("another compaction of this chain came first; build the context again and retry")]
    Conflict,
    /// Somebody else drives the loop.
    #[error(
        "loop `{loop_id}` is driven by `{owner}` until {until}; wait, or see `loopstore recover`"
    )]
    LeaseHeld {
        /// The loop.
        loop_id: String,
        /// Who.
        owner: String,
        /// When its lease ends if it is not renewed, as ISO-8601 text.
        until: String,
    },
    /// The writer no longer drives the loop; nothing of this write was kept.
    #[error(
        "the lease of loop `{loop_id}` (token {token}) is lost{}; build the context again before \
         going on",
        taken(to)
    )]
    LeaseLost {
        /// The loop.
        loop_id: String,
        /// The token that no longer counts.
        token: i64,
        /// Who drives it now, if anybody.
        to: Option<String>,
    },
    /// The database holds something it cannot hold.
    #[error("the database is damaged: {0}; run `loopstore verify`")]
    Damaged(String),
    /// The index of messages is damaged; what is recorded is not.
    #[error("the search index is damaged ({0}); `loopstore index --rebuild` makes it anew")]
    IndexDamaged(String),
    /// The database is read-only.
    #[error("the database is read-only")]
    ReadOnly,
    /// The file or its log was deleted, moved or replaced by another since it was opened, or written
    /// where that seemed impossible.
    #[error(
        "the database's files are not those that were opened: they were deleted, moved, replaced or \
         rewritten; open the database again"
    )]
    FileReplaced,
    /// The disk is full.
    #[error("the disk is full; nothing of this write was kept")]
    Full,
    /// The files cannot be reached, or the disk failed. What was to be written is not there for this
    /// store, and writing may be tried again; only if the disk failed at the very end of a commit
    /// *and* the process is then killed may the write be there after all, whole.
    #[error("the database's files cannot be read or written: {0}")]
    Io(#[source] Cause),
    /// The server cannot be reached, or the connection to it broke; nothing of a write was kept.
    #[error(
        "the connection to the database is lost ({0}); nothing of this was kept, try again when the \
         server is back"
    )]
    Connection(#[source] Cause),
    /// The connection broke, or the disk failed, while a write was being committed. It may be there, whole.
    #[error(
        "the database did not confirm a commit ({0}); look whether it is there before you write it \
         again"
    )]
    Unconfirmed(#[source] Cause),
    /// Other writers came between; the database asks to run the transaction again.
    #[error("other writers came between, and nothing of this was kept; try again")]
    SerializationFailure,
    /// A statement took longer than the server allows.
    #[error(
        "the server stopped a statement that took longer than its statement_timeout; nothing of \
         this was kept"
    )]
    TimedOut,
    /// The server did not answer a statement for so long, and its connection was given up.
    #[error(
        "the server did not answer for {} s, and the connection to it was given up; nothing of this \
         was kept: check the server, then try again",
        .0.as_secs_f64()
    )]
    StatementTimeout(std::time::Duration),
    /// All connections are in use.
    #[error(
        "all {0} connections to the database are in use, and none became free in time; try again, \
         or allow more"
    )]
    PoolTimeout(usize),
    /// Anything else.
    #[error("the database refused: {0}")]
    Other(#[source] Cause),
}

/// The result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

fn taken(to: &Option<String>) -> String {
    to.as_ref()
        .map_or_else(String::new, |owner| format!(" to `{owner}`"))
}

/// Lists ids for people, and tells that there are more.
fn listed(ids: &[String], count: usize) -> String {
    let quoted: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
    let more = if count > ids.len() { ", …" } else { "" };
    quoted.join(", ") + more
}
