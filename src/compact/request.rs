//! What a caller asks for.

use std::sync::Arc;

use super::events::Hooks;
use crate::compaction::{BlockCompactionStrategy, CancelFlag, CompactionConfig, ContextConfig};
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
#[derive(Clone, Debug)]
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
    /// The strategy that is used if [`config`](Self::config) names none, and in place of a strategy that fails: the
    /// digest, unless set.
    pub default_strategy: Arc<dyn BlockCompactionStrategy>,
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

impl CompactRequest {
    /// Returns the strategy that makes the blocks.
    pub(crate) fn strategy(&self) -> &Arc<dyn BlockCompactionStrategy> {
        let named = self.config.block_strategy.as_ref();
        named.unwrap_or(&self.default_strategy)
    }
}
