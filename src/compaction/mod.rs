//! What a compaction does to messages: the plan and the strategies.

mod config;
mod cut;
mod one_liner;
mod tiered;

pub use config::ContextConfig;
pub use cut::{cut_tool_result, truncate_head_tail};
pub use one_liner::one_liner;
pub use tiered::{CompactionStrategy, DefaultCompaction, compact_messages, keep_within_budget};
