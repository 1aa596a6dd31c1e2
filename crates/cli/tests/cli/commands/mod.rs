//! The commands: command lines and their output.
//!
//! Run ids, current times, durations and file sizes differ from run to run; the stage replaces them, so that a test is
//! a transcript.

mod appending;
mod archiving;
mod blaming;
mod blobs;
mod coming_in;
mod compacting;
mod config;
mod context;
mod counting;
mod editing;
pub mod every_command;
mod examining;
mod going_out;
mod heads;
mod listing;
mod measuring;
mod naming;
mod overlays;
mod pinning;
mod pricing;
mod provider;
mod read;
mod reading;
mod recalling;
mod recovering;
mod refusals;
mod resuming;
mod sealed;
mod searching;
mod sharing;
mod spending;
pub mod stage;
mod starting;
mod story;
#[cfg(feature = "http")]
mod summarizing;
mod syncing;
