//! A file that is written completely or not at all.
//!
//! It is written next to its target, without a name where the file system supports it and else under a
//! temporary name, synced to the disk, and then renamed. If the writing is interrupted at any time, the target
//! is the old file or the new one. The next write to the same target removes the temporary file that a killed
//! process left.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::unfinished::{create_locked, temporary_path, unfinished_files};

/// A file that is being written. If it is dropped before [`WholeFile::finish`], no file remains.
///
/// ```
/// use loopstore_files::WholeFile;
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
    written: Written,
    /// True if the target must not exist.
    is_new: bool,
}

/// The way in which a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Written {
    /// At its target, which cannot be replaced by a rename.
    InPlace,
    /// In the folder of its target, without a name.
    Unnamed,
    /// In the folder of its target, under a temporary name.
    Temporary(PathBuf),
}

impl WholeFile {
    /// Begins a file at `path`, with mode 0600. A link is followed; a pipe or device is written to directly.
    ///
    /// # Errors
    /// If its folder cannot be written to, or `path` is a folder.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::begin(path, None)
    }

    /// Begins a file as [`WholeFile::create`] does, for another program that writes it at the path
    /// [`temporary_path`](WholeFile::temporary_path).
    ///
    /// # Errors
    /// As [`WholeFile::create`].
    pub fn create_named(path: &Path, announce: &mut dyn FnMut(&Path)) -> io::Result<Self> {
        Self::begin(path, Some(announce))
    }

    fn begin(path: &Path, announce: Option<&mut dyn FnMut(&Path)>) -> io::Result<Self> {
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Ok(found) = std::fs::metadata(&target) {
            if found.is_dir() {
                return Err(io::Error::new(
                    io::ErrorKind::IsADirectory,
                    "it is a folder",
                ));
            }
            if !found.is_file() {
                return Ok(Self {
                    file: OpenOptions::new().write(true).open(&target)?,
                    target,
                    written: Written::InPlace,
                    is_new: false,
                });
            }
        }
        Self::in_folder_of(target, false, announce)
    }

    /// Begins a file at `path`, with mode 0600. Neither a file nor a link may exist there.
    ///
    /// # Errors
    /// If `path` exists, or its folder cannot be written to.
    ///
    /// ```
    /// use loopstore_files::WholeFile;
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
            Err(_) => Self::in_folder_of(path.to_owned(), true, None),
        }
    }

    fn in_folder_of(
        target: PathBuf,
        is_new: bool,
        announce: Option<&mut dyn FnMut(&Path)>,
    ) -> io::Result<Self> {
        let folder = folder_of(&target).ok_or(io::ErrorKind::InvalidInput)?;
        for left in unfinished_files(folder) {
            // A file that cannot be removed has a temporary name and does no harm here.
            let _ = left.remove();
        }
        let unnamed = match announce {
            None => unnamed::create(folder),
            Some(_) => None,
        };
        let (file, written) = match (unnamed, announce) {
            (Some(file), _) => (file, Written::Unnamed),
            (None, announce) => {
                let mut nobody = |_: &Path| ();
                let (file, path) = create_locked(&target, announce.unwrap_or(&mut nobody))?;
                (file, Written::Temporary(path))
            }
        };
        Ok(Self {
            file,
            target,
            written,
            is_new,
        })
    }

    /// Returns the path at which the file is written until it is finished; `None` if the file has no name yet, or is
    /// written directly at its target.
    pub fn temporary_path(&self) -> Option<&Path> {
        match &self.written {
            Written::Temporary(path) => Some(path),
            _ => None,
        }
    }

    /// Syncs the file to the disk and renames it to its target.
    ///
    /// # Errors
    /// If the sync or the rename fails, or the target of [`WholeFile::create_new`] was created meanwhile. No file
    /// remains then. If only the sync of the folder fails, the file exists at its target, but its name may be lost
    /// after a power loss.
    pub fn finish(mut self) -> io::Result<()> {
        if self.written == Written::InPlace {
            return self.file.flush();
        }
        self.file.sync_all()?;
        let folder = folder_of(&self.target).map(File::open).transpose()?;
        if self.written == Written::Unnamed {
            if unnamed::link(&self.file, &self.target, self.is_new)? {
                return folder.map_or(Ok(()), |folder| folder.sync_all());
            }
            // An unnamed file cannot replace a file, so it is linked under a temporary name first.
            let path = temporary_path(&self.target)?;
            unnamed::link(&self.file, &path, true)?;
            self.written = Written::Temporary(path);
        }
        if let Written::Temporary(path) = &self.written {
            match self.is_new {
                true => rename_to_new(path, &self.target)?,
                false => std::fs::rename(path, &self.target)?,
            }
        }
        self.written = Written::InPlace;
        // The name is on the disk once the folder is synced.
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
        if let Written::Temporary(path) = &self.written {
            // A file that cannot be removed has a temporary name and does no harm.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Renames a file to a name that no other file may have.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
        // The file system has no hard links; then only a check shows that the name is free.
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

/// Unnamed files.
#[cfg(target_os = "linux")]
mod unnamed {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, CWD, OFlags, linkat};
    use rustix::io::Errno;

    /// Creates a file in a folder; `None` if the file system does not support it, or the system has no `/proc`.
    pub(super) fn create(folder: &Path) -> Option<File> {
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .mode(0o600)
            .open(folder)
            .ok()?;
        path_of(&file).symlink_metadata().is_ok().then_some(file)
    }

    /// Gives a file its name. Returns false if another file has the name and may be replaced.
    ///
    /// # Errors
    /// If the folder rejects the file, or another file has the name and may not be replaced.
    pub(super) fn link(file: &File, path: &Path, is_new: bool) -> io::Result<bool> {
        match linkat(CWD, path_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if is_new => Err(super::exists()),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn path_of(file: &File) -> PathBuf {
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    }
}

/// Unnamed files, which this system does not support.
#[cfg(not(target_os = "linux"))]
mod unnamed {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) fn create(_folder: &Path) -> Option<File> {
        None
    }

    pub(super) fn link(_file: &File, _path: &Path, _is_new: bool) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }
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
        if cfg!(target_os = "linux") {
            assert_eq!(names(folder.path()), ["a"], "a kill would leave something");
        }
        drop(file);
        let named = WholeFile::create_named(&path, &mut |_| ()).unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(named);
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
    fn what_a_killed_process_left_goes_with_the_next_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for end in ["", "-wal", "-shm"] {
            let left = folder.path().join(format!(".b.0123456789ab.part{end}"));
            std::fs::write(left, "half").unwrap();
        }
        WholeFile::create(&path).unwrap().finish().unwrap();
        assert_eq!(names(folder.path()), ["a"]);
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
