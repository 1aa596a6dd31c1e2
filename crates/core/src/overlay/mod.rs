//! The one assembler of overlays.
//!
//! Whoever writes a block says in a [`BlockSpec`] what it is to show: the sections with their texts, and
//! which loops before it went into it. All else follows from what is stored, by rules that stand here
//! once: how far a block reaches, the ranges of its coverage, its sizes, and the write of the run.
//! Writers are a compaction ([`crate::compact`]), the import of one that another tool made, and a repair. The
//! restore of an exported session writes back rows that one of these two made.

pub mod block_builder;
pub mod chain_snapshot;
mod coverage;
pub mod foreign;
pub mod imported;
mod pins;
mod ranges;
mod run;
pub mod sealed;
mod turns;

pub use block_builder::{BlockSpec, CompactedAs, whole_as};
pub use chain_snapshot::ChainSnapshot;
pub use coverage::{message_count, rolled_up};
pub use imported::{ImportedCompaction, Replacement, summary_of};
pub use pins::{ChainPins, PinnedMessage, quotes_of};
pub use ranges::{size_of, through, turn_seqs};
pub use run::{commit, next_round};
pub use sealed::{SealedRecord, has_originals};
pub use turns::{StoreTurns, first_prompt};
