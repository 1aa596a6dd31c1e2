//! Files that a killed process was writing.
//!
//! A file is written without a name where the system supports it, so that a kill leaves nothing. A file that
//! needs a name, as SQLite needs one for a copy, is locked until it is finished. Such a file without a lock was
//! left by a process that is gone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

/// The suffix of the name of an unfinished file.
const END: &str = ".part";

/// The number of random digits before the suffix.
const DIGITS: usize = 12;

/// The suffixes of the files that SQLite keeps next to a database.
const SQLITE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Returns a temporary name in the folder of the target.
pub(super) fn temporary_path(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut random = [0; DIGITS / 2];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    // A name may have 255 bytes.
    let short: String = name.to_string_lossy().chars().take(48).collect();
    Ok(target.with_file_name(format!(".{short}.{}{END}", hex::encode(random))))
}

/// True if a file has a name from [`temporary_path`].
fn is_named_so(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let stem = name.and_then(|name| name.strip_prefix('.')?.strip_suffix(END));
    let digits = stem.and_then(|stem| stem.rsplit_once('.'));
    digits.is_some_and(|(_, digits)| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.len() == DIGITS && digits.bytes().all(is_digit)
    })
}

/// Creates a file under a temporary name and locks it, so that no process takes it for a leftover. `announce`
/// gets the path before the file exists.
pub(super) fn create_locked(
    target: &Path,
    announce: &mut dyn FnMut(&Path),
) -> io::Result<(File, PathBuf)> {
    loop {
        let path = temporary_path(target)?;
        announce(&path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        // On a file system without locks, leftovers cannot be recognised either.
        let is_locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        // Another process that removes leftovers may have removed the file before it was locked.
        match is_locked {
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            _ if is_at(&file, &path) => return Ok((file, path)),
            _ => {}
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: &std::fs::Metadata| (found.dev(), found.ino());
    let (open, named) = (file.metadata(), std::fs::symlink_metadata(path));
    matches!((&open, &named), (Ok(open), Ok(named)) if identity(open) == identity(named))
}

/// A file that a killed process left.
#[derive(Debug)]
pub struct UnfinishedFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The size of the file and of SQLite's files beside it, in bytes.
    pub bytes: u64,
    /// The locked file, so that no other process removes it.
    file: File,
}

impl UnfinishedFile {
    /// Returns the file at a path if a killed process of this user left it there.
    pub fn at(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        let is_own = found.uid() == rustix::process::geteuid().as_raw();
        if !is_named_so(path) || !found.is_file() || !is_own {
            return None;
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let size = |path: PathBuf| std::fs::symlink_metadata(path).map_or(0, |found| found.len());
        is_at(&file, path).then(|| Self {
            path: path.to_owned(),
            bytes: found.len()
                + SQLITE_SUFFIXES
                    .map(|end| size(with_end(path, end)))
                    .iter()
                    .sum::<u64>(),
            file,
        })
    }

    /// Removes the file and SQLite's files beside it.
    ///
    /// # Errors
    /// If the file cannot be removed from its folder.
    pub fn remove(self) -> io::Result<()> {
        for end in SQLITE_SUFFIXES {
            match std::fs::remove_file(with_end(&self.path, end)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::remove_file(&self.path)?;
        drop(self.file);
        Ok(())
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Returns the files that killed processes of this user left in a folder, in the order of their names. Returns none
/// if the folder cannot be read.
///
/// # Examples
/// ```
/// use loopstore_files::unfinished_files;
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join(".copy.db.0123456789ab.part"), "half")?;
/// let left = unfinished_files(folder.path());
/// assert_eq!(left[0].bytes, 4);
/// for file in left {
///     file.remove()?;
/// }
/// assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn unfinished_files(folder: &Path) -> Vec<UnfinishedFile> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let paths = paths.iter().filter(|path| is_named_so(path));
    paths.filter_map(|path| UnfinishedFile::at(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_writes_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = create_locked(&folder.path().join("a.db"), &mut |_| ()).unwrap();
        std::fs::write(with_end(&path, "-wal"), "log").unwrap();
        assert!(unfinished_files(folder.path()).is_empty());
        drop(file);
        let left = unfinished_files(folder.path());
        assert_eq!((left[0].path.clone(), left[0].bytes), (path, 3));
        for file in left {
            file.remove().unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_of_others_are_not_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            ".a.part",
            "a.0123456789ab.part",
            ".a.0123456789AB.part",
            ".a.0123456789ab",
        ] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let real = folder.path().join(".a.part");
        std::os::unix::fs::symlink(real, folder.path().join(".b.0123456789ab.part")).unwrap();
        std::fs::create_dir(folder.path().join(".c.0123456789ab.part")).unwrap();
        assert!(unfinished_files(folder.path()).is_empty());
    }
}
