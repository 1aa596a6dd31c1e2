//! Files that are written whole or not at all.
//!
//! [`WholeFile`] writes a file without a name, or under another name where the file system needs one, waits for
//! the disk, and then gives the file its name. A reader of the final name sees the old file or the new one, also
//! after a kill or a power loss. [`unfinished_files`] returns the files that killed processes left in a folder.
//!
//! Exports, reports and backups are written through this crate. The crate knows nothing of sessions or
//! databases, and takes no locks that outlast the writing.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod unfinished;
mod whole_file;

pub use unfinished::{UnfinishedFile, unfinished_files};
pub use whole_file::WholeFile;
