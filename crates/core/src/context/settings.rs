//! The configuration and the window that a chain is read with, from options and the newest live run.

use super::BuildOptions;
use crate::compaction::{CompactionConfig, ContextConfig, OlderLoops, RunConfig};
use crate::store::active_blocks::ActiveBlocks;
use crate::store::{RunKey, SessionKey, StoreRead, StoreResult};

/// Returns the configuration and the window of a build along a walk that may have begun: the given options, else those
/// of the newest live run.
///
/// If older loops are rolled up, a build leaves no loop out and needs only that setting. Only
/// [`OlderLoops::Skip`] needs a scope, and so the run's configuration; otherwise the default is used.
pub(super) fn settings_on(
    walk: &mut ActiveBlocks<'_>,
    read: &dyn StoreRead,
    session: SessionKey,
    options: &BuildOptions,
) -> StoreResult<(CompactionConfig, ContextConfig)> {
    let newest = walk.newest_live(session, |run| (run.key, run.older_loops.parse().ok()))?;
    settings_of(read, newest, options)
}

/// Returns the configuration and the window of a build from the newest live run and its treatment of older loops.
pub(super) fn settings_of(
    read: &dyn StoreRead,
    newest: Option<(RunKey, Option<OlderLoops>)>,
    options: &BuildOptions,
) -> StoreResult<(CompactionConfig, ContextConfig)> {
    let of_run = newest.and_then(|(_, older_loops)| older_loops);
    let older_loops = options.older_loops.or(of_run).unwrap_or_default();
    if older_loops == OlderLoops::Rollup {
        let config = CompactionConfig {
            older_loops,
            ..CompactionConfig::default()
        };
        return Ok((config, ContextConfig::default()));
    }
    let json = match newest {
        // Content that a fallback left out must stay out: the context was checked without it.
        Some((run, _)) => {
            let run = read.run_by_key(run)?;
            Some(run.reached.unwrap_or(run.config))
        }
        None => None,
    };
    // A run of another tool or a later version may have fewer or more fields: missing ones are defaults.
    let stored: RunConfig = json
        .and_then(|json| serde_json::from_str(&json).ok())
        .unwrap_or_default();
    let (mut config, mut window) = (stored.compaction(), stored.window());
    config.older_loops = older_loops;
    if let Some(scope) = options.scope {
        config.compaction_scope = scope;
    }
    if let Some(budget) = options.budget {
        window.max_context_tokens = budget;
        window.system_prompt_tokens = 0;
    }
    Ok((config, window))
}
