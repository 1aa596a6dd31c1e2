//! Reading a file on which another copy of SQLite may have locks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::Path;

use crate::table::{self, Opened};

/// A file that is read while another part of the process may have it open as a database.
///
/// Closing any descriptor of a file removes the POSIX locks of the whole process. This one is kept open instead
/// until nobody else in the process has the file open.
#[derive(Debug)]
pub struct SharedFile(ManuallyDrop<File>);

impl SharedFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`File::open`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        if crate::install() {
            let fd = file.as_raw_fd();
            let opened = Opened::of(fd, c"", 0);
            table::locked()
                .files
                .extend(opened.map(|opened| (fd, opened)));
        }
        Ok(Self(ManuallyDrop::new(file)))
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: nobody uses the value after it was dropped.
        let file = unsafe { ManuallyDrop::take(&mut self.0) };
        let mut table = table::locked();
        if table.forget(file.as_raw_fd()) {
            // The table closes it later.
            let _ = file.into_raw_fd();
        }
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
