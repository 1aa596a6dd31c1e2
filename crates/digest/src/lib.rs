//! The default strategy of compaction: a document of the working state, made from the record without a model.
//!
//! - [`activity`] reads from calls and their results what an agent did: files, plan, commands, running calls.
//! - [`DigestCompaction`] writes the document; [`Digester`] and [`digest_of`] do so for any messages.
//! - The rules for words (their limits, stems and stop words) are those of the search, too.
//!
//! Everything is text in, text out: the crate reads no database, calls no model, and knows no domain. Summaries
//! by models are in `loopstore-summarize`; when a compaction is made, and how it is stored, is the task of
//! `loopstore`, which exports these types.

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
