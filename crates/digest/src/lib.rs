//! The default compaction strategy: a document of the agent's working state, written without a model.
//!
//! - [`DigestCompaction`] is the strategy. [`Digester`] and [`digest_of`] write a document of any messages.
//! - [`activity`] extracts what an agent did from its calls and their results: changed files, the plan, commands and
//!   their outcomes, running calls.
//! - The hidden module `words` splits text into words and stems. The search index of `loopstore` uses the same rules.
//!
//! The crate maps text to text: it reads no database, calls no model and has no rule for a particular domain. It does
//! not decide when to compact, and it stores nothing; `loopstore` does both and exports these types. Summaries by a
//! model are in `loopstore-summarize`.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod activity;
mod digest;
#[doc(hidden)]
pub mod words;

pub use digest::{
    DIGEST, Digest, DigestCompaction, DigestInput, Digester, digest_of, document_work,
};
#[doc(hidden)]
pub use digest::{
    SUMMARIZE, loop_label, rollup_digester, supplement_headers, turns_digester,
    without_recorded_sections,
};
