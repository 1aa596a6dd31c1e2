//! Files that are written whole or not at all.
//!
//! [`WholeFile`] writes an unnamed file, or a file under another name beside its target, syncs it to the disk and
//! then renames it to the target. The target is therefore always the old file or the new file. [`unfinished_files`]
//! finds the files that a killed process left under such a name. [`copies`] finds unfinished copies of a database,
//! which can be written to any folder.
//!
//! The crate depends on neither sessions nor SQLite. It is used for exports, reports, backups and resumed
//! transcripts. It is not for files that are appended to or changed in place.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod copies;
mod unfinished;
mod whole_file;

pub use unfinished::{UnfinishedFile, unfinished_files};
pub use whole_file::WholeFile;
