//! The plan of a compaction, its configuration, and the traits of strategies.
//!
//! Nothing in this module depends on a store. A strategy reads a loop through a [`LoopSlice`] and returns a [`Draft`].

mod cancel;
mod config;
mod cut;
#[doc(hidden)]
pub mod growth;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod memory;
mod models;
mod notes;
mod one_liner;
#[doc(hidden)]
pub mod plan;
mod policy;
mod prune;
mod recent;
mod slice;
mod strategy;
mod tiered;

pub use cancel::CancelFlag;
#[doc(hidden)]
pub use config::DEFAULT_STRATEGY;
pub use config::{
    CompactionConfig, CompactionScope, ContextConfig, OlderLoops, RecentWindow, RunConfig,
    UnknownWord,
};
pub use cut::{cut_tool_result, truncate_head_tail};
pub use models::{ModelWindows, UnknownModel};
pub use notes::SummaryNotes;
pub use one_liner::{DefaultBlockCompaction, one_liner};
pub use policy::{Budget, CompactionPolicy};
pub use prune::{OutputSize, PrunedMessage, Pruning, image_reference, output_cap};
#[doc(hidden)]
pub use prune::{has_no_content, image_facts};
pub use recent::KeepRecent;
pub use slice::{
    ContextMessage, EarlierBlock, LoopMessage, LoopSlice, ReadError, RollupSlice, TurnReader,
};
#[doc(hidden)]
pub use strategy::cut_recent;
pub use strategy::{BlockCompactionStrategy, Draft, Recent, StrategyError, Summary};
pub use tiered::{CompactionStrategy, DefaultCompaction, compact_messages, keep_within_budget};
