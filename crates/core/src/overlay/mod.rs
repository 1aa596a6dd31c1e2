//! The one assembler of overlays.
//!
//! The writer of a block gives a [`BlockSpec`]: the sections with their texts, and the earlier loops that
//! the block covers. All else is derived from the stored rows by rules that are written here once: the
//! reach of a block, the ranges of its coverage, its sizes, and the write of the run. Writers are a
//! compaction, the import of a compaction that another tool made, and a repair. The restore of an exported
//! session writes back rows that were made here.

pub mod block_builder;
pub mod chain_snapshot;
mod coverage;
mod exceptions;
pub mod foreign;
pub mod imported;
mod pins;
mod prompts;
mod ranges;
mod run;
pub mod sealed;
mod turns;

pub use block_builder::{BlockSpec, CompactedAs, whole_as};
pub use chain_snapshot::ChainSnapshot;
pub use coverage::{message_count, rolled_up};
pub use imported::{ImportedCompaction, Replacement, summary_of};
pub use pins::{ChainPins, PinnedMessage, quotes_of};
pub use prompts::{PersonPrompt, prompts_of_people};
pub use ranges::{shown_size_of, size_of, through, turn_seqs};
pub use run::{begin_edits, commit, next_round};
pub use sealed::{SealedRecord, has_originals};
pub use turns::{StoreTurns, first_prompt};
