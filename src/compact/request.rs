//! The request of a compaction.

use std::sync::Arc;

use super::events::Hooks;
use crate::compaction::{BlockCompactionStrategy, CancelFlag, CompactionConfig, ContextConfig};
use crate::model::{LoopId, SealingProvider};

/// The trigger of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactTrigger {
    /// The policy, if it fires.
    #[default]
    Policy,
    /// The provider stopped its answer for length: the policy is not evaluated.
    Length,
    /// The user: the policy is not evaluated, the plan is made as if no block were active, and the
    /// gain is measured against the originals.
    Force,
}

/// The chain to compact, and the policy, strategy and hooks to use.
#[derive(Clone, Debug)]
pub struct CompactRequest {
    /// The leaf; the session's current loop if not given.
    pub leaf: Option<LoopId>,
    /// The provider that the contexts go to: its own compaction counts when the trigger evaluates the size of the
    /// context. The originals are compacted all the same.
    pub provider: Option<SealingProvider>,
    /// The policy.
    pub config: CompactionConfig,
    /// The window.
    pub window: ContextConfig,
    /// The strategy that is used if [`config`](Self::config) names none, and in place of a strategy that fails: the
    /// digest, unless set.
    pub default_strategy: Arc<dyn BlockCompactionStrategy>,
    /// The trigger.
    pub trigger: CompactTrigger,
    /// Only report the plan; nothing is written and no hook is called.
    pub dry_run: bool,
    /// The hooks to call before and after.
    pub hooks: Hooks,
    /// Set by the caller to cancel the compaction: a running summariser is cancelled, and nothing is committed that had
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
