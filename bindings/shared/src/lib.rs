//! The common part of the packages of loopstore for other languages: open stores, options, queries and messages as
//! JSON, the items of the Responses API, and the classes of errors.
//!
//! A package contains handles and passes JSON; its public classes are written in its language. This crate depends on
//! neither Python nor JavaScript, prints nothing, and has no SQL.

pub mod append_keys;
pub mod calls;
pub mod checkpoints;
pub mod edits;
pub mod entries;
pub mod errors;
mod handle;
pub mod hooks;
pub mod item_changes;
mod item_texts;
pub mod items;
pub mod json_text;
pub mod loops;
pub mod messages;
pub mod options;
pub mod prepare;
pub mod queries;
pub mod redaction;
pub mod summaries;
pub mod views;

pub use errors::CallError;
pub use handle::{Handle, caught};
