//! Files that an earlier import read. A file that is unchanged since then is not read again.

use std::fmt::Debug;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use loopstore::extend::SessionStore;
use serde::{Deserialize, Serialize};

use super::report::ImportReport;
use super::{Importer, log_of};

/// The size, the times and the number of a file. A file with the same stamp is read as unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    bytes: u64,
    /// Seconds since the epoch, and nanoseconds.
    modified: (i64, i64),
    // Also differs if a program has set the modification time back.
    changed: (i64, i64),
    inode: u64,
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok().filter(|data| data.is_file())?;
        Some(Self {
            bytes: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
            inode: data.ino(),
        })
    }
}

/// The stamps of a transcript and of the files that are read with it: its write-ahead log, and those that its format
/// names. `None` for a file that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamps(Vec<(PathBuf, Option<FileStamp>)>);

impl FileStamps {
    /// Returns the present stamps of a file, its write-ahead log, and these other files.
    pub fn of(path: &Path, others: Vec<PathBuf>) -> Self {
        let paths = [path.to_owned(), log_of(path)].into_iter().chain(others);
        Self(paths.map(stamped).collect())
    }

    /// True if all files have the same stamps as before.
    pub fn are_unchanged(&self) -> bool {
        let same = |(path, stamp): &(PathBuf, _)| FileStamp::of(path) == *stamp;
        self.0.iter().all(same)
    }

    /// Returns the size of the transcript in bytes.
    pub fn bytes(&self) -> u64 {
        let first = self.0.first().and_then(|(_, stamp)| stamp.as_ref());
        first.map_or(0, |stamp| stamp.bytes)
    }

    /// Returns the newest modification time of the files, in seconds since the epoch.
    pub fn newest(&self) -> Option<i64> {
        let stamps = self.0.iter().filter_map(|(_, stamp)| stamp.as_ref());
        stamps.map(|stamp| stamp.modified.0).max()
    }
}

fn stamped(path: PathBuf) -> (PathBuf, Option<FileStamp>) {
    let stamp = FileStamp::of(&path);
    (path, stamp)
}

/// Returns the stamps of a transcript before it is read; `None` if it is read with files that are not known beforehand.
pub(super) fn stamps_before(path: &Path, importer: &dyn Importer) -> Option<FileStamps> {
    Some(FileStamps::of(path, importer.other_files(path)?))
}

/// A memory of imported files.
pub trait ImportedFiles: Debug + Send + Sync {
    /// Returns the report of an earlier import of a file that has not changed since and whose sessions are stored;
    /// `None` if the file must be read.
    fn unchanged(&self, store: &dyn SessionStore, path: &Path) -> Option<ImportReport>;

    /// Records that a file of this format was imported. The stamps were made before it was read.
    fn remember(
        &self,
        store: &dyn SessionStore,
        path: &Path,
        format: &str,
        files: FileStamps,
        report: &ImportReport,
    );
}
