//! The state of files, by which a change is noticed without reading them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The size, the times and the inode of a file. A file with the same stamp is taken for unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    /// Seconds since the epoch, and nanoseconds.
    modified: (i64, i64),
    // Also differs if a program has set the modification time back.
    changed: (i64, i64),
    inode: u64,
}

impl Stamp {
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

/// The stamps of a transcript and of the files that are read with it: its write-ahead log, if it is a database, and
/// those that its format names. `None` for a file that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamps(Vec<(PathBuf, Option<Stamp>)>);

impl FileStamps {
    /// Returns the present stamps of a file, its write-ahead log, and these other files.
    pub fn of(path: &Path, others: Vec<PathBuf>) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let others = others.into_iter();
        // A path that is relative to this folder means another file elsewhere.
        let others = others.filter_map(|path| std::path::absolute(path).ok());
        let paths = [path.to_owned(), log.into()].into_iter().chain(others);
        let stamped = paths.map(|path| {
            let stamp = Stamp::of(&path);
            (path, stamp)
        });
        Self(stamped.collect())
    }

    /// True if all files have the same stamps as before.
    pub fn are_unchanged(&self) -> bool {
        let mut files = self.0.iter();
        files.all(|(path, stamp)| Stamp::of(path) == *stamp)
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
