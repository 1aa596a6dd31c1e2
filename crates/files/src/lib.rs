//! Files that are written whole or not at all.
//!
//! [`WholeFile`] writes a file without a name, or under another name beside its place, brings it to the disk and then
//! gives it its name. A file of the final name is therefore always the old one or the new one.
//! [`unfinished_files`] finds what a killed process left under such another name. [`copies`] does so for the copies of
//! a database, which can be written to any folder.
//!
//! The crate knows neither sessions nor SQLite. It is used for exports, reports, backups and resumed transcripts, and
//! it is not for files that are appended to or changed in place.

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
