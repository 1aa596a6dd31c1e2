//! The terminal side of loopstore: input and output that are common to its commands.
//!
//! - [`App`] is the database that a command is called with and its output; [`CliError`] is an error of a command.
//! - [`output`], [`table`], [`text`] and [`progress`] print: on a terminal, into a pager or a pipe, as JSON.
//! - [`amount`], [`select`] and [`nearest`] read amounts, times and ids as people type them; [`short`] writes ids.
//! - [`context_text`], [`diff_lines`], [`mod@edits`], [`hits`] and [`runs`] write stored content as text, the same in
//!   all commands.
//!
//! The crate has no command and no options: `loopstore-cli` parses the options and supplies the hints for errors.
//! `loopstore-agents`, `loopstore-browse` and `loopstore-eval` have the larger commands. Programs that embed the
//! store do not need this crate.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod amount;
mod app;
pub mod confirm;
pub mod context_text;
pub mod diff_lines;
pub mod edits;
mod error;
pub mod folders;
pub mod hits;
pub mod nearest;
pub mod output;
mod pager;
pub mod progress;
pub mod runs;
pub mod select;
pub mod server;
pub mod short;
pub mod table;
pub mod text;

pub use app::{App, DatabaseSource, Done, Hints, usual_database};
pub use error::{CliError, with_causes};
