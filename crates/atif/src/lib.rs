//! The Agent Trajectory Interchange Format of Harbor, version 1.8.
//!
//! [`form`] has the types of the format, and [`messages`] the messages that a step contains. The format has no place
//! for much of what loopstore stores; [`stored`] defines the part of a document that has it, so that a session is
//! restored from the document as it was: [`document`] reads it. Steps of other writers are read by [`foreign`].
//!
//! The crate reads and writes no file: `loopstore-export` writes documents, and `loopstore-transcripts` reads them.
//! Its items are for these two crates and may change in any release.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod document;
pub mod foreign;
pub mod form;
pub mod messages;
mod object;
pub mod stored;
