//! The commands that connect coding agents with loopstore: `install`, `hook` and `doctor`.
//!
//! - [`install`] writes the lines into an agent's configuration that make the agent call loopstore, and removes them.
//! - [`hook`] is the command that the agent then calls: it records the session, and returns the working state after a
//!   compaction.
//! - [`doctor`] checks both, and shows the failures of hooks.
//! - [`found`] finds the transcripts of agents, and when the agents delete them.
//! - [`imported`] remembers which files were imported, so that unchanged ones are not read again.
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
pub mod found;
pub mod homes;
pub mod hook;
pub mod imported;
pub mod install;
mod program;
