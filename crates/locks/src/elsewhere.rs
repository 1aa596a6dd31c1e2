//! Systems without open file description locks: nothing is locked, and nothing is known of a byte.

use std::fs::File;
use std::ops::Deref;

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
