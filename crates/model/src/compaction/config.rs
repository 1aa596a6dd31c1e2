//! The configuration of a compaction: when to compact, how much to keep, and which strategy to use.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::policy::{Budget, CompactionPolicy};
use super::recent::KeepRecent;
use super::strategy::BlockCompactionStrategy;
use crate::Size;

/// The name of the strategy of runs whose stored configuration names none.
pub const DEFAULT_STRATEGY: &str = "digest";

/// The window of the model, and the options of [`compact_messages`](super::compact_messages).
///
/// ```
/// use loopstore_model::compaction::ContextConfig;
///
/// let window = ContextConfig {
///     max_context_tokens: 200_000,
///     system_prompt_tokens: 4_000,
///     ..ContextConfig::default()
/// };
/// assert_eq!(window.budget().tokens, 196_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextConfig {
    /// The window in tokens, system prompt included.
    pub max_context_tokens: u64,
    /// Tokens of the system prompt and the tools.
    pub system_prompt_tokens: u64,
    /// The most bytes of JSON of all messages; `None` for no limit. Providers limit the body of a request, and images
    /// reach that limit before the window is full.
    pub max_context_bytes: Option<u64>,
    /// Messages that `compact_messages` keeps from the start.
    pub keep_first: usize,
    /// Messages that `compact_messages` keeps from the end.
    pub keep_recent: usize,
    /// Lines of each tool output that `compact_messages` keeps.
    pub tool_output_max_lines: usize,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            max_context_tokens: 128_000,
            system_prompt_tokens: 0,
            max_context_bytes: None,
            keep_first: 2,
            keep_recent: 10,
            tool_output_max_lines: 50,
        }
    }
}

impl ContextConfig {
    /// Raises the tokens of the system prompt and the tools to those of a recorded system prompt.
    #[doc(hidden)]
    pub fn count_system_prompt(&mut self, tokens: u64) {
        self.system_prompt_tokens = self.system_prompt_tokens.max(tokens);
    }

    /// Returns the budget of the messages: the window without the system prompt.
    pub fn budget(&self) -> Budget {
        Budget {
            tokens: self
                .max_context_tokens
                .saturating_sub(self.system_prompt_tokens),
            bytes: self.max_context_bytes,
        }
    }
}

/// The number of earlier loops that a compaction includes.
///
/// ```
/// use loopstore_model::compaction::CompactionScope;
///
/// assert_eq!("fixed:3".parse(), Ok(CompactionScope::FixedCount(3)));
/// assert_eq!("token-budget".parse(), Ok(CompactionScope::TokenBudget));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionScope {
    /// A fixed number of earlier loops.
    FixedCount(usize),
    /// As many loops as fit the window in their compacted form.
    TokenBudget,
}

/// The treatment of the loops before the scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OlderLoops {
    /// The loops are dropped from the context, as in phi-core.
    Skip,
    /// The loops stay in the context: with their active blocks, else unchanged.
    #[default]
    Rollup,
}

/// The loops from which turns are kept at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecentWindow {
    /// The current loop only, as in phi-core.
    CurrentLoop,
    /// The current loop; if it has fewer turns than are kept, also the loops before it.
    #[default]
    Chain,
}

/// The error for an unknown value of an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not one of {known}")]
pub struct UnknownWord {
    given: String,
    known: &'static str,
}

impl UnknownWord {
    /// Returns the error for `given`, which is none of the words listed in `known`.
    pub fn new(given: impl Into<String>, known: &'static str) -> Self {
        Self {
            given: given.into(),
            known,
        }
    }
}

impl fmt::Display for CompactionScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FixedCount(count) => write!(f, "fixed:{count}"),
            Self::TokenBudget => f.write_str("token-budget"),
        }
    }
}

impl FromStr for CompactionScope {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let count = text
            .strip_prefix("fixed:")
            .and_then(|count| count.parse().ok());
        match (text, count) {
            ("token-budget", _) => Ok(Self::TokenBudget),
            (_, Some(count)) => Ok(Self::FixedCount(count)),
            _ => Err(UnknownWord {
                given: text.into(),
                known: "fixed:N, token-budget",
            }),
        }
    }
}

impl fmt::Display for OlderLoops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skip => "skip",
            Self::Rollup => "rollup",
        })
    }
}

impl FromStr for OlderLoops {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "skip" => Ok(Self::Skip),
            "rollup" => Ok(Self::Rollup),
            _ => Err(UnknownWord {
                given: text.into(),
                known: "skip, rollup",
            }),
        }
    }
}

impl fmt::Display for RecentWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CurrentLoop => "loop",
            Self::Chain => "chain",
        })
    }
}

impl FromStr for RecentWindow {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "loop" => Ok(Self::CurrentLoop),
            "chain" => Ok(Self::Chain),
            _ => Err(UnknownWord {
                given: text.into(),
                known: "loop, chain",
            }),
        }
    }
}

/// The configuration of a compaction.
///
/// ```
/// use loopstore_model::Size;
/// use loopstore_model::compaction::{CompactionConfig, ContextConfig, KeepRecent};
///
/// let config = CompactionConfig {
///     keep_first_turns: 1,
///     keep_recent: KeepRecent::UserTurns(3),
///     max_summary_tokens: 500,
///     ..CompactionConfig::default()
/// };
/// let window = ContextConfig { max_context_tokens: 1_000, ..ContextConfig::default() };
/// let size = |tokens| Size { tokens, ..Size::default() };
/// assert!(!config.should_compact(&window, size(800)));
/// assert!(config.should_compact(&window, size(900)));
/// ```
#[derive(Clone)]
pub struct CompactionConfig {
    /// The trigger, and the target size.
    pub policy: CompactionPolicy,
    /// The number of typical turns that a compaction leaves room for; 0 to use the target whole. A compaction that
    /// leaves room for less than two is not made while the window fits the context.
    pub room_turns: u32,
    /// The number of earlier loops that are included.
    pub compaction_scope: CompactionScope,
    /// The treatment of the loops before these.
    pub older_loops: OlderLoops,
    /// The loops from which turns are kept at the end.
    pub recent_window: RecentWindow,
    /// The number of turns at the start of the current loop that are kept unchanged.
    pub keep_first_turns: u32,
    /// The amount that is kept at the end of the chain.
    pub keep_recent: KeepRecent,
    /// The most tokens of the prompts of people that are kept word for word wherever they are, the newest first.
    pub keep_prompts_tokens: u64,
    /// The most tokens of the summary of a loop. A `Policy` of the store derives this number from the window.
    pub max_summary_tokens: u64,
    /// The most tokens of the rollup of older loops. A `Policy` of the store derives this number from the window.
    pub max_rollup_tokens: u64,
    /// True if the first summary of the current loop may exceed [`max_summary_tokens`](Self::max_summary_tokens) up to
    /// the part of the policy's target that the kept turns leave free.
    pub fills_window: bool,
    /// The most lines of each tool output in the turns kept at the end.
    pub tool_output_max_lines: usize,
    /// Own instructions to a summariser, after its usual ones.
    pub summary_prompt: Option<String>,
    /// The strategy of the blocks; the store's default if `None`.
    pub block_strategy: Option<Arc<dyn BlockCompactionStrategy>>,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            policy: CompactionPolicy::default(),
            room_turns: 6,
            compaction_scope: CompactionScope::FixedCount(3),
            older_loops: OlderLoops::default(),
            recent_window: RecentWindow::default(),
            keep_first_turns: 2,
            keep_recent: KeepRecent::default(),
            keep_prompts_tokens: 0,
            max_summary_tokens: 2_000,
            max_rollup_tokens: 2_000,
            fills_window: false,
            tool_output_max_lines: 50,
            summary_prompt: None,
            block_strategy: None,
        }
    }
}

impl fmt::Debug for CompactionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = ContextConfig::default();
        let config = match &self.block_strategy {
            Some(strategy) => RunConfig::new(&**strategy, self, &window),
            None => RunConfig::of_default(self, &window),
        };
        fmt::Debug::fmt(&config, f)
    }
}

impl CompactionConfig {
    /// Returns the configuration for [`CompactionPolicy::reserves`]: the last 10 messages are
    /// kept, and nothing at the start.
    pub fn reserves() -> Self {
        Self {
            policy: CompactionPolicy::reserves(),
            keep_first_turns: 0,
            keep_recent: KeepRecent::Messages(10),
            ..Self::default()
        }
    }

    /// Returns the configuration for [`CompactionPolicy::target`]: the last 6 user turns are kept,
    /// and nothing at the start. It was made for a window of 64,000 tokens.
    pub fn target() -> Self {
        Self {
            policy: CompactionPolicy::target(),
            keep_first_turns: 0,
            keep_recent: KeepRecent::UserTurns(6),
            ..Self::default()
        }
    }

    /// Returns the configuration that is meant for a policy, with this policy.
    pub fn of(policy: CompactionPolicy) -> Self {
        let usual = match policy {
            CompactionPolicy::Headroom { .. } => Self::default(),
            CompactionPolicy::Reserves { .. } => Self::reserves(),
            CompactionPolicy::Target { .. } => Self::target(),
        };
        Self { policy, ..usual }
    }

    /// True if messages of this size must be compacted.
    pub fn should_compact(&self, window: &ContextConfig, size: Size) -> bool {
        self.policy.should_compact(window, self.keep_recent, size)
    }

    /// Returns the settings that affect the text of a block, as they are stored with it.
    pub fn shaping(&self) -> String {
        format!(
            "summary={} lines={}",
            self.max_summary_tokens, self.tool_output_max_lines
        )
    }
}

/// The configuration of a run, as it is stored with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunConfig {
    /// The strategy's name.
    pub strategy: String,
    /// The settings that affect the text of its blocks ([`CompactionConfig::shaping`]).
    pub shaping: String,
    /// The window in tokens.
    pub max_context_tokens: u64,
    /// Tokens of the system prompt.
    pub system_tokens: u64,
    /// [`ContextConfig::max_context_bytes`].
    pub max_context_bytes: Option<u64>,
    /// [`CompactionConfig::keep_first_turns`].
    pub keep_first_turns: u32,
    /// [`CompactionConfig::keep_recent`] as text.
    pub keep_recent: String,
    /// The number of turns in the recent window.
    pub keep_recent_turns: u32,
    /// [`CompactionConfig::keep_prompts_tokens`].
    #[serde(skip_serializing_if = "is_zero")]
    pub keep_prompts_tokens: u64,
    /// [`CompactionConfig::max_summary_tokens`].
    pub max_summary_tokens: u64,
    /// [`CompactionConfig::max_rollup_tokens`].
    pub max_rollup_tokens: u64,
    /// [`CompactionConfig::tool_output_max_lines`].
    pub tool_output_max_lines: usize,
    /// [`CompactionConfig::summary_prompt`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_prompt: Option<String>,
    /// [`CompactionConfig::compaction_scope`] as text.
    pub scope: String,
    /// [`CompactionConfig::older_loops`] as text.
    pub older_loops: String,
    /// [`CompactionConfig::recent_window`] as text.
    pub recent_window: String,
    /// [`CompactionConfig::policy`]; an unknown policy is read as the default.
    #[serde(deserialize_with = "known_policy")]
    pub policy: CompactionPolicy,
}

// The signature that serde calls.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

fn known_policy<'de, D: serde::Deserializer<'de>>(from: D) -> Result<CompactionPolicy, D::Error> {
    let json = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(json).unwrap_or_default())
}

impl Default for RunConfig {
    fn default() -> Self {
        Self::of_default(&CompactionConfig::default(), &ContextConfig::default())
    }
}

impl RunConfig {
    /// Returns the stored form of a configuration, for a run of `strategy`.
    pub fn new(
        strategy: &dyn BlockCompactionStrategy,
        config: &CompactionConfig,
        window: &ContextConfig,
    ) -> Self {
        let shaping = strategy.shaping(config);
        Self::of(strategy.name(), shaping, config, window)
    }

    /// Returns the stored form of a configuration, for a run of the store's default strategy.
    fn of_default(config: &CompactionConfig, window: &ContextConfig) -> Self {
        Self::of(DEFAULT_STRATEGY, config.shaping(), config, window)
    }

    fn of(
        strategy: &str,
        shaping: String,
        config: &CompactionConfig,
        window: &ContextConfig,
    ) -> Self {
        Self {
            strategy: strategy.to_owned(),
            shaping,
            max_context_tokens: window.max_context_tokens,
            system_tokens: window.system_prompt_tokens,
            keep_first_turns: config.keep_first_turns,
            max_context_bytes: window.max_context_bytes,
            keep_recent: config.keep_recent.to_string(),
            keep_recent_turns: config.keep_recent.count(),
            keep_prompts_tokens: config.keep_prompts_tokens,
            max_summary_tokens: config.max_summary_tokens,
            max_rollup_tokens: config.max_rollup_tokens,
            tool_output_max_lines: config.tool_output_max_lines,
            summary_prompt: config.summary_prompt.clone(),
            scope: config.compaction_scope.to_string(),
            older_loops: config.older_loops.to_string(),
            recent_window: config.recent_window.to_string(),
            policy: config.policy,
        }
    }

    /// Returns the configuration of the run without its strategy. The turns kept at the end are those that the recent
    /// window took, and an unknown word is read as the default.
    pub fn compaction(&self) -> CompactionConfig {
        let usual = CompactionConfig::default();
        CompactionConfig {
            policy: self.policy,
            compaction_scope: self.scope.parse().unwrap_or(usual.compaction_scope),
            older_loops: self.older_loops.parse().unwrap_or(usual.older_loops),
            recent_window: self.recent_window.parse().unwrap_or(usual.recent_window),
            keep_first_turns: self.keep_first_turns,
            keep_recent: KeepRecent::Turns(self.keep_recent_turns),
            keep_prompts_tokens: self.keep_prompts_tokens,
            max_summary_tokens: self.max_summary_tokens,
            max_rollup_tokens: self.max_rollup_tokens,
            tool_output_max_lines: self.tool_output_max_lines,
            summary_prompt: self.summary_prompt.clone(),
            ..usual
        }
    }

    /// Returns the window of the run.
    pub fn window(&self) -> ContextConfig {
        ContextConfig {
            max_context_tokens: self.max_context_tokens,
            system_prompt_tokens: self.system_tokens,
            max_context_bytes: self.max_context_bytes,
            ..ContextConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_configuration_is_read_as_it_was_written() {
        let (target, window) = (CompactionConfig::target(), ContextConfig::default());
        let stored = RunConfig::of_default(&target, &window);
        let read = stored.compaction();
        assert_eq!(read.keep_recent, KeepRecent::Turns(6));
        let again = RunConfig {
            keep_recent: stored.keep_recent.clone(),
            ..RunConfig::of_default(&read, &stored.window())
        };
        assert_eq!(again, stored);
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for scope in [CompactionScope::FixedCount(0), CompactionScope::TokenBudget] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        for older in [OlderLoops::Skip, OlderLoops::Rollup] {
            assert_eq!(older.to_string().parse(), Ok(older));
        }
        for window in [RecentWindow::CurrentLoop, RecentWindow::Chain] {
            assert_eq!(window.to_string().parse(), Ok(window));
        }
        assert!("fixed:-1".parse::<CompactionScope>().is_err());
        assert!("fixed".parse::<CompactionScope>().is_err());
        assert!("".parse::<OlderLoops>().is_err());
    }
}
