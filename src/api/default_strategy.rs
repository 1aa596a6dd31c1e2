//! The strategy of requests that name none.

use std::sync::Arc;

use crate::compact::{CompactRequest, CompactTrigger, Policy};
use crate::compaction::{CancelFlag, CompactionConfig, ContextConfig, DigestCompaction};

impl Default for CompactRequest {
    fn default() -> Self {
        Self {
            leaf: None,
            policy: Policy::of(ContextConfig::default(), CompactionConfig::default()),
            default_strategy: Arc::new(DigestCompaction::default()),
            trigger: CompactTrigger::default(),
            dry_run: false,
            cancel: CancelFlag::default(),
        }
    }
}

impl Policy {
    /// Returns a request for one compaction under this policy; the caller can change its fields.
    pub fn request(&self) -> CompactRequest {
        CompactRequest {
            policy: self.clone(),
            ..CompactRequest::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::RunConfig;

    #[test]
    fn a_stored_configuration_without_a_strategy_is_read_as_the_default() {
        let request = CompactRequest::default();
        let strategy = &*request.default_strategy;
        let config = RunConfig::new(strategy, &request.policy.compaction, &request.policy.window);
        assert_eq!(config, RunConfig::default());
    }
}
