//! The administration of a database of loopstore.
//!
//! - [`inspect`]: the difference between two contexts, the originals behind a compaction, and changes of files
//! - [`retention`]: redact, erase, prune, archive
//! - [`backup`], [`salvage`]: a checked copy of a database file, and a copy of the intact rows of a damaged file
//! - [`replay`]: a session turn by turn, with the context of the model at each turn
//!
//! The crate `loopstore-verify` checks a database, and `loopstore-copy` copies all sessions to another database. A
//! program that only stores sessions needs none of the three crates: see [`Store`](loopstore::Store). This crate
//! neither prints nor reads the environment; the command `loopstore` does.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod backup;
pub mod inspect;
pub mod replay;
pub mod retention;
pub mod salvage;
