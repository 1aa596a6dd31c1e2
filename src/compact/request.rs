//! What a caller asks for.

use super::events::Hooks;
use crate::compaction::{CancelFlag, CompactionConfig, ContextConfig};
use crate::model::{LoopId, SealingProvider};

/// What asks for a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactTrigger {
    /// The policy, if it fires.
    #[default]
    Policy,
    /// The provider stopped its answer for length: the policy is not asked.
    Length,
    /// The user: the policy is not asked, the plan is made as if no block were active, and the
    /// gain is measured against the originals.
    Force,
}

/// What to compact, and how.
#[derive(Clone, Debug, Default)]
pub struct CompactRequest {
    /// The leaf; the session's current loop if not given.
    pub leaf: Option<LoopId>,
    /// The provider that the contexts go to: its own compaction counts when the trigger asks how large the
    /// context is. What is compacted are the originals all the same.
    pub provider: Option<SealingProvider>,
    /// The policy.
    pub config: CompactionConfig,
    /// The window.
    pub window: ContextConfig,
    /// What asks for it.
    pub trigger: CompactTrigger,
    /// Only say what would be done; no hook is called.
    pub dry_run: bool,
    /// What is called before and after.
    pub hooks: Hooks,
    /// Set by the caller who no longer wants it: a summariser is told, and nothing is committed that had
    /// not begun to commit.
    pub cancel: CancelFlag,
}
