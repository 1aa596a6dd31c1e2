//! What the packages of loopstore for other languages share: open stores, options, queries and messages as
//! JSON, the items of the Responses API, and which error is which class.
//!
//! Such a package holds handles and moves JSON; what its users meet is written in their language.

pub mod calls;
pub mod checkpoints;
pub mod entries;
pub mod errors;
mod handle;
pub mod item_changes;
mod item_texts;
pub mod items;
pub mod json_text;
pub mod messages;
pub mod options;
pub mod queries;
pub mod redaction;
pub mod summaries;

pub use errors::Failure;
pub use handle::{Handle, caught};
