//! The rules of loopstore that apply to every backend.
//!
//! - [`store`] is the contract of a backend, by table, and the rules on rows: how an append groups turns, which
//!   blocks are active, what a lease allows, what a digest covers, what a pack holds.
//! - `overlay` is the one assembler of blocks.
//! - [`context`] reads the messages that a model call sees through the blocks.
//! - `edit` takes messages out of contexts, and finds what brings them back.
//!
//! There is no SQL here and no database: `loopstore` brings SQLite, `loopstore-postgres` PostgreSQL. Compaction,
//! search and the interface for programs are in `loopstore` too. A program depends on `loopstore`; this crate is
//! for backends and for crates of the workspace, and any release may change it.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod context;
#[doc(hidden)]
pub mod edit;
#[doc(hidden)]
pub mod failpoints;
#[doc(hidden)]
pub mod overlay;
#[doc(hidden)]
pub mod session_lines;
pub mod store;

use loopstore_model::{self as model, clock, compaction, tokens};
use loopstore_provider as provider;
