//! What a compaction does to messages: the plan and the strategies.
//!
//! All of it is pure: nothing here knows a store. What a strategy reads it gets through a
//! [`LoopSlice`].

pub(crate) mod activity;
pub(crate) mod config;
pub(crate) mod cut;
pub(crate) mod digest;
#[cfg(test)]
mod memory;
mod models;
mod notes;
pub(crate) mod one_liner;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod prune;
mod recent;
pub(crate) mod slice;
mod strategy;
pub mod summarize;
pub(crate) mod tiered;

pub use config::{
    CompactionConfig, CompactionScope, ContextConfig, OlderLoops, RecentWindow, UnknownWord,
};
pub(crate) use config::{Noted, RunConfig};
pub(crate) use cut::cut_tool_result;
pub(crate) use digest::DIGEST;
pub use digest::DigestCompaction;
pub use models::{ModelWindows, UnknownModel};
pub use notes::SummaryNotes;
pub use one_liner::DefaultBlockCompaction;
pub(crate) use one_liner::one_liner;
pub(crate) use policy::Budget;
pub use policy::CompactionPolicy;
pub(crate) use prune::{
    OutputSize, Pruned, Pruning, image_facts, image_reference, output_cap, says_nothing,
};
pub use recent::KeepRecent;
pub(crate) use slice::{EarlierBlock, ReadError, TurnReader};
pub use slice::{LoopSlice, Placed, RollupSlice, Shown};
pub(crate) use strategy::cut_recent;
pub use strategy::{BlockCompactionStrategy, Draft, Recent, StrategyError, Summary};
#[cfg(feature = "tokio")]
pub use summarize::FutureSummarizer;
pub use summarize::{
    CancelFlag, CommandSummarizer, SummarizeCompaction, SummarizeOptions, Summarizer,
    SummarizerError, SummaryAnswer, SummaryPrompt, SummaryRequest, SummaryRole,
};
