//! What a compaction does to messages: the plan and the strategies.
//!
//! All of it is pure: nothing here knows a store. What a strategy reads it gets through a
//! [`LoopSlice`].

mod config;
mod cut;
mod digest;
#[cfg(test)]
mod memory;
mod notes;
mod one_liner;
pub mod plan;
mod policy;
mod prune;
mod recent;
mod slice;
mod strategy;
pub mod summarize;
mod tiered;

pub(crate) use config::Noted;
pub use config::{
    CompactionConfig, CompactionScope, ContextConfig, OlderLoops, RecentWindow, RunConfig,
    UnknownWord,
};
pub use cut::{cut_tool_result, truncate_head_tail};
pub use digest::{DIGEST, Digest, DigestCompaction, DigestInput, Digester, Place, digest_of};
pub use notes::SummaryNotes;
pub use one_liner::{DefaultBlockCompaction, one_liner};
pub use policy::{Budget, CompactionPolicy, ModelWindows};
pub use prune::{OutputSize, Pruned, Pruning, image_reference, output_cap};
pub(crate) use prune::{image_facts, says_nothing};
pub use recent::KeepRecent;
pub use slice::{EarlierBlock, LoopSlice, Placed, ReadError, RollupSlice, Shown, TurnReader};
pub(crate) use strategy::cut_recent;
pub use strategy::{BlockCompactionStrategy, Draft, Recent, StrategyError, Summary};
#[cfg(feature = "tokio")]
pub use summarize::FutureSummarizer;
pub use summarize::{
    CancelFlag, SummarizeCompaction, SummarizeOptions, Summarizer, SummarizerError, SummaryAnswer,
    SummaryRequest, SummaryRole,
};
pub use tiered::{CompactionStrategy, DefaultCompaction, compact_messages, keep_within_budget};
