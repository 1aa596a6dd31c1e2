//! A copy of a database that is checked before it gets its name.

use std::io;
use std::path::{Path, PathBuf};

use loopstore::extend::{
    Key, OpenError, StoreError, StoreResult,
    sqlite::{SqliteOptions, SqliteStore},
};
use loopstore_files::WholeFile;
use loopstore_files::copies::CopyNote;
use loopstore_verify::{Checked, VerifyReport, verify};

/// An error that ended a backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file with the name of the copy exists.
    #[error("{0} already exists")]
    Exists(PathBuf),
    /// The copy would overwrite the database itself.
    #[error("{0} is the database itself, or belongs to it")]
    IsTheDatabase(PathBuf),
    /// Another program uses the database at the target, or was killed: a write-ahead log is beside the target.
    #[error("{0} is in use: its write-ahead log exists")]
    InUse(PathBuf),
    /// The target is not a file.
    #[error("{0} is not a regular file")]
    NoFile(PathBuf),
    /// The file could not be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The database could not be read, or the copy could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The copy could not be opened again.
    #[error("the copy cannot be opened")]
    Open(#[from] OpenError),
    /// The copy is damaged, since the database is.
    #[error("the copy is damaged: {}", first_problem(.0))]
    Damaged(Box<VerifyReport>),
}

fn first_problem(report: &VerifyReport) -> String {
    let problem = report.problems.first();
    problem.map_or_else(String::new, |p| format!("{}: {}", p.place, p.detail))
}

/// Copies the database of `store` to `to` while other programs continue to write, checks the copy as [`verify`] does,
/// and renames it to `to` only if the check finds no problem. Returns the size of the copy in bytes.
///
/// The copy has mode 0600 and is on the disk when the function returns. With `force`, an existing file is replaced.
///
/// # Errors
/// See [`BackupError`]. After an error `to` is unchanged, unless only the sync of the folder failed.
///
/// # Examples
/// ```
/// use loopstore_admin::backup::backup;
/// use loopstore::SqliteStore;
///
/// let folder = tempfile::tempdir()?;
/// let store = SqliteStore::open(folder.path().join("agent.db"))?;
/// let copy = folder.path().join("copy.db");
/// backup(&store, &copy, false, &mut |_done, _all| {})?;
/// assert!(loopstore_verify::verify(&SqliteStore::open(&copy)?)?.ok);
/// // An existing file is replaced only with `force`.
/// assert!(backup(&store, &copy, false, &mut |_, _| {}).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn backup(
    store: &SqliteStore,
    to: &Path,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, BackupError> {
    checked_copy(store.path(), store.key(), to, force, &mut |temporary| {
        store.copy_to(temporary, progress)
    })
    .map(|(bytes, _)| bytes)
}

/// Makes a copy as [`backup`] does, without the free space of deleted rows. It takes longer than [`backup`], since
/// every row is written anew.
///
/// # Errors
/// As [`backup`].
///
/// # Examples
/// ```
/// use loopstore::SqliteStore;
/// use loopstore_admin::backup::compact_backup;
///
/// let folder = tempfile::tempdir()?;
/// let store = SqliteStore::open(folder.path().join("agent.db"))?;
/// let copy = folder.path().join("copy.db");
/// let bytes = compact_backup(&store, &copy, false)?;
/// assert_eq!(copy.metadata()?.len(), bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compact_backup(store: &SqliteStore, to: &Path, force: bool) -> Result<u64, BackupError> {
    checked_copy(store.path(), store.key(), to, force, &mut |temporary| {
        store.vacuum_into(temporary)
    })
    .map(|(bytes, _)| bytes)
}

/// Writes a copy next to `to`, checks it and renames it. Returns its size in bytes and the counts of the check.
pub(crate) fn checked_copy(
    database: Option<&Path>,
    key: Option<&Key>,
    to: &Path,
    force: bool,
    copy: &mut dyn FnMut(&Path) -> StoreResult<()>,
) -> Result<(u64, Checked), BackupError> {
    let failed = |source| BackupError::Write {
        path: to.to_owned(),
        source,
    };
    if database.is_some_and(|database| is_part_of(to, database)) {
        return Err(BackupError::IsTheDatabase(to.to_owned()));
    }
    if !force && to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    // SQLite would apply the log of another database to the copy.
    let log = with_end(to, "-wal").metadata();
    if log.is_ok_and(|log| log.len() > 0) {
        return Err(BackupError::InUse(to.to_owned()));
    }
    // The note is written before the file: a process that is killed between leaves a note without a file.
    let mut note = None;
    let mut announce = |temporary: &Path| {
        note = database.and_then(|database| CopyNote::new(database, temporary));
    };
    let file = WholeFile::create_named(to, &mut announce).map_err(failed)?;
    let Some(temporary) = file.temporary_path().map(Path::to_owned) else {
        return Err(BackupError::NoFile(to.to_owned()));
    };
    let made = copy_and_check(&temporary, key, copy);
    for end in ["-wal", "-shm", "-journal"] {
        // These files exist only after an error.
        let _ = std::fs::remove_file(with_end(&temporary, end));
    }
    let made = made?;
    file.finish().map_err(failed)?;
    drop(note);
    Ok(made)
}

fn copy_and_check(
    to: &Path,
    key: Option<&Key>,
    copy: &mut dyn FnMut(&Path) -> StoreResult<()>,
) -> Result<(u64, Checked), BackupError> {
    copy(to)?;
    let options = SqliteOptions::new()
        .stored_counter()
        .create(false)
        .allow_network(true)
        .maybe_key(key);
    let report = verify(&SqliteStore::open_with(to, options)?)?;
    if !report.ok {
        return Err(BackupError::Damaged(Box::new(report)));
    }
    let size = std::fs::metadata(to).map(|found| (found.len(), report.checked));
    size.map_err(|source| BackupError::Write {
        path: to.to_owned(),
        source,
    })
}

/// True if a path is that of a database or of one of the files beside the database.
///
/// ```
/// use loopstore_admin::backup::is_part_of;
/// use std::path::Path;
///
/// assert!(is_part_of(Path::new("/data/agent.db-wal"), Path::new("/data/agent.db")));
/// assert!(!is_part_of(Path::new("/data/copy.db"), Path::new("/data/agent.db")));
/// ```
pub fn is_part_of(path: &Path, database: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (path, database) = (whole(path), whole(database));
    let ends = ["", "-wal", "-shm", "-journal", "-queue", "-copies"];
    ends.iter().any(|end| path == with_end(&database, end))
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
