//! Systems without open file description locks: nothing is locked, and nothing is known of a byte.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Deref;
use std::path::Path;

/// True if this system has open file description locks.
pub const HAS_LOCKS: bool = false;

/// Returns `false`: nothing is locked.
pub fn lock_byte(_: &File, _: i64) -> bool {
    false
}

/// Does nothing.
pub fn unlock_byte(_: &File, _: i64) {}

/// Returns `false`: nothing is known.
pub fn is_byte_free(_: &File, _: i64) -> bool {
    false
}

/// A file; its locks are shared with forked children here.
#[derive(Debug)]
pub struct OwnFile(File);

impl OwnFile {
    /// Wraps an open file.
    pub fn new(file: File) -> Self {
        Self(file)
    }
}

impl Deref for OwnFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

/// A file that is read; closing it removes the locks of the process here.
#[derive(Debug)]
pub struct SharedFile(File);

impl SharedFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`File::open`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::open(path).map(Self)
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
        self.0.read(buffer)
    }
}

impl Seek for SharedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}
