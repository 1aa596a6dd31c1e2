//! Registered descriptors: those that no forked child shares, and those that stay open while another copy of
//! SQLite may have locks on the file.

use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};

use crate::fork;
use crate::table::{self, OpenedFile};

/// Registers a file: every child that is forked later gets an open file of its own in place of this one.
pub(crate) fn register_own(file: &File) {
    fork::watch();
    table::locked().own.push(file.as_raw_fd());
}

/// Removes a file from those that no child shares.
pub(crate) fn forget_own(file: &File) {
    let fd = file.as_raw_fd();
    table::locked().own.retain(|own| *own != fd);
}

/// Registers a file for [`close_shared`].
pub(crate) fn register_shared(file: &File) {
    if crate::install() {
        let fd = file.as_raw_fd();
        let opened = OpenedFile::of(fd, c"", 0);
        table::locked()
            .files
            .extend(opened.map(|opened| (fd, opened)));
    }
}

/// Closes a file, or postpones the close if another part of the process has the file open.
pub(crate) fn close_shared(file: File) {
    let mut table = table::locked();
    if table.forget(file.as_raw_fd()) {
        // The table closes the descriptor later.
        let _ = file.into_raw_fd();
    }
}
