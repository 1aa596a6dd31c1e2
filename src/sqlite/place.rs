//! Checks that the files at the path are still those that were opened.
//!
//! SQLite goes on writing to a file that was deleted or replaced, and to its log: every commit would
//! be acknowledged and none found again. So device and inode of both are compared before and after each
//! write and before each read, which costs about three microseconds.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::store::error::{StoreError, StoreResult};

/// The files of an open database.
#[derive(Debug)]
pub(super) struct OpenFiles {
    file: PathBuf,
    log: PathBuf,
    opened: Metadata,
    /// `None`: there is none, as nobody writes.
    opened_log: Option<Metadata>,
    is_still: bool,
}

impl OpenFiles {
    /// Notes the files of a database that was just opened; `is_still`: as one that nobody writes.
    ///
    /// # Errors
    /// If the file is not there any more.
    pub(super) fn of(path: &Path, is_still: bool) -> io::Result<Self> {
        // The process may go to another folder.
        let file = std::path::absolute(path)?;
        let log = log_of(&file);
        Ok(Self {
            opened: file.metadata()?,
            opened_log: log.metadata().ok(),
            file,
            log,
            is_still,
        })
    }

    /// Returns the file with all its folders.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the log beside it.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Returns `true` if the file at `path` is the one that was opened.
    pub(super) fn is_of(&self, path: &Path) -> bool {
        is_same(path, &self.opened)
    }

    /// Checks that both files are where they were, and returns the length of the database in bytes.
    ///
    /// # Errors
    /// [`StoreError::FileReplaced`] if not.
    pub(super) fn check(&self) -> StoreResult<u64> {
        let log = self.opened_log.as_ref();
        match self.file.metadata() {
            Ok(now)
                if are_same(&now, &self.opened)
                    && log.is_none_or(|opened| is_same(&self.log, opened)) =>
            {
                Ok(now.len())
            }
            _ => Err(StoreError::FileReplaced),
        }
    }

    /// Checks, where the file was opened as one that nobody writes, that nobody has.
    ///
    /// # Errors
    /// [`StoreError::FileReplaced`] if somebody has.
    pub(super) fn check_still(&self) -> StoreResult<()> {
        if !self.is_still {
            return Ok(());
        }
        let now = self.file.metadata().map_err(|_| StoreError::FileReplaced)?;
        let stamp = |data: &Metadata| (data.len(), data.mtime(), data.mtime_nsec());
        match stamp(&now) == stamp(&self.opened) && !has_log(&self.file) {
            true => Ok(()),
            false => Err(StoreError::FileReplaced),
        }
    }

    /// Removes the files.
    ///
    /// # Errors
    /// If the folder refuses.
    pub(super) fn remove(&self) -> io::Result<()> {
        std::fs::remove_file(&self.file)?;
        for end in ["-wal", "-shm", "-queue", "-copies"] {
            match std::fs::remove_file(with_end(&self.file, end)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_same(path: &Path, opened: &Metadata) -> bool {
    path.metadata().is_ok_and(|now| are_same(&now, opened))
}

fn are_same(now: &Metadata, opened: &Metadata) -> bool {
    (now.dev(), now.ino()) == (opened.dev(), opened.ino())
}

/// Returns true if the file has a log or a journal: commits that are not in the file yet, or pages that an
/// unfinished commit would restore.
pub(super) fn has_log(path: &Path) -> bool {
    let ends = ["-wal", "-journal"];
    ends.iter().any(|end| {
        with_end(path, end)
            .metadata()
            .is_ok_and(|log| log.len() > 0)
    })
}

fn log_of(path: &Path) -> PathBuf {
    with_end(path, "-wal")
}

pub(super) fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Returns the URI under which SQLite reads a file as one that nobody writes: it then needs neither
/// locks nor a log.
pub(super) fn immutable_uri(path: &Path) -> io::Result<String> {
    let path = std::path::absolute(path)?;
    Ok(format!("file://{}?immutable=1", escaped(path.as_os_str())))
}

fn escaped(path: &OsStr) -> String {
    let mut text = String::new();
    for byte in path.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                text.push(char::from(*byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_any_path() {
        let path = OsStr::from_bytes(b"/a b/100%?#\xff&/x.db");
        insta::assert_snapshot!(escaped(path), @"/a%20b/100%25%3F%23%FF%26/x.db");
    }
}
