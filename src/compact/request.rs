//! The request of a compaction.

use std::sync::Arc;

use super::policy::Policy;
use crate::compaction::{BlockCompactionStrategy, CancelFlag};
use crate::model::LoopId;

/// The trigger of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactTrigger {
    /// The policy, if it fires.
    #[default]
    Policy,
    /// The provider rejected a request, or cut an answer, for length. The policy is not evaluated.
    Length,
    /// A request of the user. The policy is not evaluated, the plan is made as if no block were active, and the gain
    /// is measured against the originals.
    Force,
}

/// The chain to compact, the policy, and the options of this one compaction.
#[derive(Clone, Debug)]
pub struct CompactRequest {
    /// The leaf; the session's current loop if `None`.
    pub leaf: Option<LoopId>,
    /// The policy: the window, the configuration, and the hooks. The trigger evaluates the size of the context with
    /// the own compaction of the policy's provider; the compaction still reads the originals.
    pub policy: Policy,
    /// The strategy that is used if the policy names none, or if the strategy fails. The default is the digest.
    pub default_strategy: Arc<dyn BlockCompactionStrategy>,
    /// The trigger.
    pub trigger: CompactTrigger,
    /// True to only report the plan: nothing is written, and no hook is called.
    pub dry_run: bool,
    /// The flag with which the caller cancels the compaction. A running summariser is cancelled, and the compaction
    /// is not committed unless the commit had begun.
    pub cancel: CancelFlag,
}

impl CompactRequest {
    /// Returns the strategy that makes the blocks.
    pub(crate) fn strategy(&self) -> &Arc<dyn BlockCompactionStrategy> {
        let named = self.policy.compaction.block_strategy.as_ref();
        named.unwrap_or(&self.default_strategy)
    }
}
