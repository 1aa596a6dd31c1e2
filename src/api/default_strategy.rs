//! The strategy of requests that name none.

use std::sync::Arc;

use crate::compact::{CompactRequest, CompactTrigger, Hooks};
use crate::compaction::{CancelFlag, CompactionConfig, ContextConfig, DigestCompaction};

impl Default for CompactRequest {
    fn default() -> Self {
        Self {
            leaf: None,
            provider: None,
            config: CompactionConfig::default(),
            window: ContextConfig::default(),
            default_strategy: Arc::new(DigestCompaction::default()),
            trigger: CompactTrigger::default(),
            dry_run: false,
            hooks: Hooks::default(),
            cancel: CancelFlag::default(),
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
        let config = RunConfig::new(strategy, &request.config, &request.window);
        assert_eq!(config, RunConfig::default());
    }
}
