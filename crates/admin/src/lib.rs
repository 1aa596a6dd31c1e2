//! Commands for those who run a database of loopstore.
//!
//! - [`inspect`]: the difference between two contexts, and the originals behind a compaction
//! - [`retention`]: redact, erase, prune, archive
//! - [`backup`], [`salvage`]: a copy of a file that was checked, and what is intact of a damaged file
//! - [`replay`]: a session as it happened
//!
//! The checks of a database are the crate `loopstore-verify`, and `loopstore-copy` brings all sessions to another
//! database. A program that only keeps sessions needs none of the three: see [`Store`](loopstore::Store). Nothing here
//! prints or reads the environment; the command `loopstore` does.

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
