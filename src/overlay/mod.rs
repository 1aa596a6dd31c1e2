//! The one assembler of overlays.
//!
//! Whoever writes a block says in a [`BlockSpec`] what it is to show: the sections with their texts, and
//! which loops before it went into it. All else follows from what is stored, by rules that stand here
//! once: how far a block reaches, the ranges of its coverage, its sizes, and the write of the run.
//! Writers are a compaction ([`crate::compact`]), the import of one that another tool made, and a repair. The
//! restore of an exported session writes back rows that one of these two made.

pub(crate) mod block_builder;
pub(crate) mod chain_snapshot;
mod coverage;
pub(crate) mod foreign;
pub(crate) mod imported;
mod pins;
mod ranges;
mod run;
pub(crate) mod sealed;
mod turns;

pub(crate) use block_builder::{BlockSpec, CompactedAs, whole_as};
pub(crate) use chain_snapshot::ChainSnapshot;
pub(crate) use coverage::{message_count, rolled_up};
pub(crate) use imported::{ImportedCompaction, Replacement, summary_of};
pub(crate) use pins::{ChainPins, PinnedMessage, quotes_of};
pub(crate) use ranges::{size_of, through, turn_seqs};
pub(crate) use run::{commit, next_round};
pub(crate) use sealed::{SealedRecord, has_originals};
pub(crate) use turns::{StoreTurns, first_prompt};
