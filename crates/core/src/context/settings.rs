//! The settings that a chain is read with, from options and the newest live run.

use super::BuildOptions;
use crate::compaction::{
    BuildSettings, CompactionConfig, CompactionScope, ContextConfig, KeepRecent, OlderLoops,
    RecentWindow,
};
use crate::store::active_blocks::{ActiveBlocks, View};
use crate::store::{LoopKey, RunKey, SessionKey, StoreRead, StoreResult};

/// The settings that a chain is read with: the policy and the window.
#[derive(Clone, Debug)]
pub struct ChainSettings {
    pub config: CompactionConfig,
    pub window: ContextConfig,
}

/// Returns the settings of a build: the given options, else those of the newest live run.
///
/// If older loops are rolled up, a build leaves no loop out and needs only that setting. Only
/// [`OlderLoops::Skip`] needs a scope, and so the run's configuration; otherwise the default is used.
pub fn settings(
    read: &dyn StoreRead,
    session: SessionKey,
    leaf: LoopKey,
    view: View,
    options: &BuildOptions,
) -> StoreResult<ChainSettings> {
    settings_on(
        &mut ActiveBlocks::new(read, leaf, view),
        read,
        session,
        options,
    )
}

/// Returns the settings of a build, as [`settings`] does, along a walk that may have begun.
pub(super) fn settings_on(
    walk: &mut ActiveBlocks<'_>,
    read: &dyn StoreRead,
    session: SessionKey,
    options: &BuildOptions,
) -> StoreResult<ChainSettings> {
    let newest = walk.newest_live(session, |run| (run.key, run.older_loops.parse().ok()))?;
    settings_of(read, newest, options)
}

/// Returns the settings of a build from the newest live run and its treatment of older loops.
pub(super) fn settings_of(
    read: &dyn StoreRead,
    newest: Option<(RunKey, Option<OlderLoops>)>,
    options: &BuildOptions,
) -> StoreResult<ChainSettings> {
    let of_run = newest.and_then(|(_, older_loops)| older_loops);
    let older_loops = options.older_loops.or(of_run).unwrap_or_default();
    if older_loops == OlderLoops::Rollup {
        let config = CompactionConfig {
            older_loops,
            ..CompactionConfig::default()
        };
        let window = ContextConfig::default();
        return Ok(ChainSettings { config, window });
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
    let stored: BuildSettings<'_> = json
        .as_deref()
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    let scope = options.scope.or_else(|| stored.scope.parse().ok());
    let config = CompactionConfig {
        keep_first_turns: stored.keep_first_turns,
        keep_recent: KeepRecent::Turns(stored.keep_recent_turns),
        compaction_scope: scope.unwrap_or(CompactionScope::FixedCount(3)),
        older_loops,
        recent_window: stored
            .recent_window
            .parse()
            .unwrap_or(RecentWindow::default()),
        max_summary_tokens: stored.max_summary_tokens,
        ..CompactionConfig::default()
    };
    let window = ContextConfig {
        max_context_tokens: options.budget.unwrap_or(stored.max_context_tokens),
        system_prompt_tokens: if options.budget.is_some() {
            0
        } else {
            stored.system_tokens
        },
        ..ContextConfig::default()
    };
    Ok(ChainSettings { config, window })
}
