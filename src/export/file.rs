//! A file that is there whole or not at all.
//!
//! It is written beside its place under another name, brought to the disk and renamed. Whatever
//! cuts the writing off, a file of the final name is the old one or the new one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file in the making; dropped before [`WholeFile::finish`], it leaves nothing behind.
///
/// ```
/// use loopstore::export::WholeFile;
/// use std::io::Write;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("report.html");
/// let mut file = WholeFile::create(&path)?;
/// file.write_all(b"<p>All is well.</p>")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert!(path.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    target: PathBuf,
    /// Where it is written; `None`: in its place, which is no file that could be renamed over.
    beside: Option<PathBuf>,
    /// Whether nothing may have its name.
    is_new: bool,
}

impl WholeFile {
    /// Begins a file at `path`, with mode 0600. A link is followed; a pipe or device is written to
    /// as it is.
    ///
    /// # Errors
    /// If its folder cannot be written to, or `path` is a folder.
    pub fn create(path: &Path) -> io::Result<Self> {
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Ok(found) = std::fs::metadata(&target) {
            if found.is_dir() {
                return Err(io::Error::new(
                    io::ErrorKind::IsADirectory,
                    "it is a folder",
                ));
            }
            if !found.is_file() {
                let file = OpenOptions::new().write(true).open(&target)?;
                return Ok(Self {
                    file,
                    target,
                    beside: None,
                    is_new: false,
                });
            }
        }
        Self::beside_of(target, false)
    }

    /// Begins a file at `path`, with mode 0600, where nothing may be: no file, and no link either.
    ///
    /// # Errors
    /// If something has that name, or its folder cannot be written to.
    ///
    /// ```
    /// use loopstore::export::WholeFile;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("session.jsonl");
    /// WholeFile::create_new(&path)?.finish()?;
    /// assert!(WholeFile::create_new(&path).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create_new(path: &Path) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(_) => Err(exists()),
            Err(_) => Self::beside_of(path.to_owned(), true),
        }
    }

    fn beside_of(target: PathBuf, is_new: bool) -> io::Result<Self> {
        let beside = name_beside(&target)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        Ok(Self {
            file,
            target,
            beside: Some(beside),
            is_new,
        })
    }

    /// Where it is written until it is finished; `None` if that is its place.
    pub fn beside(&self) -> Option<&Path> {
        self.beside.as_deref()
    }

    /// Waits for the disk and gives the file its name.
    ///
    /// # Errors
    /// If the disk or the rename fails, or a file that was to be new has a name that another got meanwhile;
    /// then nothing is left behind. If only the folder cannot be
    /// brought to the disk, the file is there, and it is not sure that its name outlasts a power loss.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(beside) = &self.beside else {
            return self.file.flush();
        };
        self.file.sync_all()?;
        let folder = folder_of(&self.target).map(File::open).transpose()?;
        match self.is_new {
            true => rename_to_new(beside, &self.target)?,
            false => std::fs::rename(beside, &self.target)?,
        }
        self.beside = None;
        // The name is on the disk once its folder is.
        folder.map_or(Ok(()), |folder| folder.sync_all())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // What cannot be removed has another name and does no harm.
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// Gives a file another name, which no other may have.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
        // A file system without second names; then only a look says whether the name is free.
        Err(_) => match std::fs::symlink_metadata(to) {
            Ok(_) => Err(exists()),
            Err(_) => std::fs::rename(from, to),
        },
    }
}

fn exists() -> io::Error {
    let why = "something is there already, and it is not replaced";
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

fn folder_of(path: &Path) -> Option<&Path> {
    let folder = path.parent()?;
    Some(if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    })
}

/// Returns a name in the same folder that nobody has.
fn name_beside(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut random = [0; 6];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let mut beside = std::ffi::OsString::from(".");
    // A long name must stay within the 255 bytes that a name may have.
    let short: String = name.to_string_lossy().chars().take(48).collect();
    beside.push(short);
    beside.push(format!(".{}.part", hex::encode(random)));
    Ok(target.with_file_name(beside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "old").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(file);
        assert_eq!(names(folder.path()), ["a"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(names(folder.path()), ["a"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_link_stays_a_link_and_a_device_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut file = WholeFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "new");
        let mut null = WholeFile::create(Path::new("/dev/null")).unwrap();
        null.write_all(b"x").unwrap();
        null.finish().unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        assert!(WholeFile::create(folder.path()).is_err());
        assert!(WholeFile::create(&folder.path().join("none/file")).is_err());
    }

    #[test]
    fn a_very_long_name_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("é".repeat(120));
        WholeFile::create(&path).unwrap().finish().unwrap();
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_is_to_be_new_replaces_nothing_that_came_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = WholeFile::create_new(&path).unwrap();
        file.write_all(b"mine").unwrap();
        std::fs::write(&path, "theirs").unwrap();
        let error = file.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn a_link_to_nowhere_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::os::unix::fs::symlink(folder.path().join("b"), &path).unwrap();
        assert!(WholeFile::create_new(&path).is_err());
        assert_eq!(names(folder.path()), ["a"]);
    }
}
