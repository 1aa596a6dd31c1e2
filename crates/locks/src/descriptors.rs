//! Descriptors that the table knows: those that no forked child shares, and those that are not closed while
//! another copy of SQLite may have locks on the file.

use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};

use crate::fork;
use crate::table::{self, OpenedFile};

/// Gives every child that is forked later an open file of its own in place of this one.
pub(crate) fn register_own(file: &File) {
    fork::watch();
    table::locked().own.push(file.as_raw_fd());
}

/// Takes a file back out of those that no child shares.
pub(crate) fn forget_own(file: &File) {
    let fd = file.as_raw_fd();
    table::locked().own.retain(|own| *own != fd);
}

/// Notes a file that [`close_shared`] closes.
pub(crate) fn register_shared(file: &File) {
    if crate::install() {
        let fd = file.as_raw_fd();
        let opened = OpenedFile::of(fd, c"", 0);
        table::locked()
            .files
            .extend(opened.map(|opened| (fd, opened)));
    }
}

/// Closes a file, later if another part of the process has it open.
pub(crate) fn close_shared(file: File) {
    let mut table = table::locked();
    if table.forget(file.as_raw_fd()) {
        // The table closes it later.
        let _ = file.into_raw_fd();
    }
}
