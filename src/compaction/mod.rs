//! What a compaction does to messages: the plan and the strategies.

mod config;
mod cut;
mod one_liner;
pub mod plan;
mod strategy;
mod tiered;

pub use config::{
    CompactionConfig, CompactionScope, ContextConfig, OlderLoops, RecentWindow, RunConfig,
    UnknownWord,
};
pub use cut::{cut_tool_result, truncate_head_tail};
pub use one_liner::one_liner;
pub(crate) use strategy::seqs_of;
pub use strategy::{
    BlockCompactionStrategy, DefaultBlockCompaction, Draft, LoopSlice, Placed, Recent, RollupSlice,
    Shown, StrategyError, Summary,
};
pub use tiered::{CompactionStrategy, DefaultCompaction, compact_messages, keep_within_budget};
