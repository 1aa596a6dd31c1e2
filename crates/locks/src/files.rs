//! Files with locks of their own, on every system.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::Path;

use crate::descriptors;

/// A file whose locks (of any kind) belong to this process alone.
///
/// A forked child shares the open files of its parent, and with them their locks: a lock would last until the
/// child ends, even if the parent is killed. A child gets an open file of its own in place of this one, without
/// locks. On systems other than Linux the file is shared.
#[derive(Debug)]
pub struct OwnFile(File);

impl OwnFile {
    /// Wraps an open file.
    pub fn new(file: File) -> Self {
        descriptors::register_own(&file);
        Self(file)
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        descriptors::forget_own(&self.0);
    }
}

impl Deref for OwnFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

/// A file that is read while another part of the process may have it open as a database.
///
/// Closing any descriptor of a file removes the POSIX locks of the whole process. On Linux this one is kept open
/// instead until no other part of the process has the file open.
#[derive(Debug)]
pub struct SharedFile(ManuallyDrop<File>);

impl SharedFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`File::open`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        descriptors::register_shared(&file);
        Ok(Self(ManuallyDrop::new(file)))
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: nothing uses the value after it was dropped.
        let file = unsafe { ManuallyDrop::take(&mut self.0) };
        descriptors::close_shared(file);
    }
}

impl Deref for SharedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Read for SharedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buffer)
    }
}

impl Seek for SharedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self.0).seek(to)
    }
}
