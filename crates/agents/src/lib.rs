//! The commands that connect coding agents with loopstore: `install`, `hook` and `doctor`.
//!
//! - [`install`] writes the lines into an agent's configuration that make it call loopstore, and takes them out again.
//! - [`hook`] is what the agent then calls: it records the session, and hands the working state back after a compaction.
//! - [`doctor`] checks both, and shows what hooks failed with.
//! - [`homes`] finds the folders in which agents keep their sessions.
//!
//! The crate prints and reads the environment, as the command does. It parses no arguments: `loopstore-cli` does. The
//! formats of the agents' transcripts are in `loopstore-transcripts` and `loopstore-export`.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod doctor;
pub mod homes;
pub mod hook;
pub mod install;
mod program;
