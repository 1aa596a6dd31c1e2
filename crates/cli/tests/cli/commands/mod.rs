//! The commands, as their users meet them: what is typed, and what comes back.
//!
//! Run ids, current times, durations and sizes of files differ from run to run; the stage replaces
//! them, so that a test is a transcript.

mod appending;
mod archiving;
mod blobs;
mod coming_in;
mod compacting;
mod config;
mod context;
mod counting;
pub mod every_command;
mod examining;
mod going_out;
mod heads;
mod listing;
mod measuring;
mod overlays;
mod pinning;
mod provider;
mod reading;
mod recalling;
mod recovering;
mod refusals;
mod resuming;
mod sealed;
mod searching;
pub mod stage;
mod story;
#[cfg(feature = "http")]
mod summarizing;
