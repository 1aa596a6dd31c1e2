//! Copies of a database that killed processes left half written.
//!
//! A copy is written under another name beside its target, in any folder, and contains the whole database. While a
//! copy is written outside of the folder of its database, `FILE-copies` beside the database contains its path, so
//! that a removal of content finds the copy.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::Serialize;

use crate::{UnfinishedFile, unfinished_files};

/// A copy that a killed process left half written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnfinishedCopy {
    /// The path of the copy.
    pub path: PathBuf,
    /// The size of the copy and its log, in bytes.
    pub bytes: u64,
    /// True if it was removed.
    pub removed: bool,
}

/// Returns the known unfinished copies of a database: those in its folder, and those with a note.
pub fn unfinished_copies(database: &Path) -> Vec<UnfinishedCopy> {
    let copy = |file: UnfinishedFile| UnfinishedCopy {
        path: file.path.clone(),
        bytes: file.bytes,
        removed: false,
    };
    found(database).into_iter().map(copy).collect()
}

/// Removes the known unfinished copies of a database, and returns them. [`UnfinishedCopy::removed`] is false for a
/// copy that cannot be removed.
pub fn remove_unfinished_copies(database: &Path) -> Vec<UnfinishedCopy> {
    let copy = |file: UnfinishedFile| UnfinishedCopy {
        path: file.path.clone(),
        bytes: file.bytes,
        removed: file.remove().is_ok(),
    };
    let copies = found(database).into_iter().map(copy).collect();
    // If this fails, the notes only stay longer.
    let _ = change_notes(&notes_of(database), |line| Path::new(line).exists());
    copies
}

fn found(database: &Path) -> Vec<UnfinishedFile> {
    let mut files = database.parent().map(unfinished_files).unwrap_or_default();
    for noted in notes(&notes_of(database)) {
        if !files.iter().any(|file| file.path == noted) {
            files.extend(UnfinishedFile::at(&noted));
        }
    }
    files
}

/// The note that a copy is being written. Dropping it removes the note.
#[derive(Debug)]
pub struct CopyNote {
    notes: PathBuf,
    copy: PathBuf,
}

impl CopyNote {
    /// Writes a note before a copy is written. Returns `None` if the copy is found without a note, or if no note can
    /// be written.
    pub fn new(database: &Path, copy: &Path) -> Option<Self> {
        let folder = copy.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        let (database, copy) = (
            database.canonicalize().ok()?,
            folder.join(copy.file_name()?),
        );
        if database.parent() == copy.parent() || copy.as_os_str().as_bytes().contains(&b'\n') {
            return None;
        }
        let notes = notes_of(&database);
        let mut file = open_locked(&notes, true).ok()?;
        file.seek(io::SeekFrom::End(0)).ok()?;
        let line = [copy.as_os_str().as_bytes(), b"\n"].concat();
        file.write_all(&line).ok()?;
        Some(Self { notes, copy })
    }
}

impl Drop for CopyNote {
    fn drop(&mut self) {
        // If this fails, a note stays that refers to no file.
        let _ = change_notes(&self.notes, |line| *line != *self.copy.as_os_str());
    }
}

fn notes_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-copies");
    name.into()
}

fn notes(path: &Path) -> Vec<PathBuf> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let lines = bytes.split(|byte| *byte == b'\n');
    let paths = lines.map(|line| PathBuf::from(std::ffi::OsString::from_vec(line.to_vec())));
    paths.filter(|path| path.is_absolute()).collect()
}

/// Keeps the selected notes; removes the file if none is left.
fn change_notes(path: &Path, is_kept: impl Fn(&std::ffi::OsStr) -> bool) -> io::Result<()> {
    let mut file = open_locked(path, false)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let lines = bytes.split(|byte| *byte == b'\n');
    let kept = lines.filter(|line| !line.is_empty() && is_kept(std::ffi::OsStr::from_bytes(line)));
    let mut new = Vec::new();
    for line in kept {
        new.extend_from_slice(line);
        new.push(b'\n');
    }
    if new.is_empty() {
        return std::fs::remove_file(path);
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&new)
}

/// Opens and locks the notes; waits while another process changes them.
fn open_locked(path: &Path, creates: bool) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(creates)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        // The process that had the lock before may have removed the file.
        let open = file.metadata()?;
        match std::fs::symlink_metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (open.dev(), open.ino()) => return Ok(file),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_in_another_folder_is_found_by_its_note() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let database = here.path().join("a.db");
        std::fs::write(&database, "").unwrap();
        let copy = |folder: &Path, name: &str| {
            let path = folder.join(format!(".{name}.0123456789ab.part"));
            std::fs::write(&path, "half").unwrap();
            path.canonicalize().unwrap()
        };
        let (first, second) = (copy(there.path(), "1"), copy(there.path(), "2"));
        let notes = [&first, &second].map(|path| CopyNote::new(&database, path).unwrap());
        let beside = copy(here.path(), "3");
        assert!(CopyNote::new(&database, &beside).is_none());
        let found = unfinished_copies(&database);
        let paths: Vec<&PathBuf> = found.iter().map(|copy| &copy.path).collect();
        assert_eq!(paths, [&beside, &first, &second]);
        let [one, two] = notes;
        drop(one);
        assert_eq!(unfinished_copies(&database).len(), 2);
        assert!(
            remove_unfinished_copies(&database)
                .iter()
                .all(|copy| copy.removed)
        );
        assert!(first.exists() && !second.exists() && !beside.exists());
        drop(two);
        assert!(!notes_of(&database).exists());
    }

    #[test]
    fn a_note_names_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        std::fs::write(&database, "").unwrap();
        let other = folder.path().join("precious");
        std::fs::write(&other, "x").unwrap();
        let text = format!("{}\nrelative\n\n", other.display());
        std::fs::write(notes_of(&database), text).unwrap();
        assert_eq!(remove_unfinished_copies(&database), []);
        assert!(other.exists());
    }
}
