//! When to compact, how much to keep, and what makes the text.

use std::borrow::Cow;
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

/// The window of the model, and what [`compact_messages`](super::compact_messages) keeps.
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
    /// Bytes of JSON that the messages may have; `None` if they do not matter. Providers limit a
    /// request's body, and images fill it sooner than the window.
    pub max_context_bytes: Option<u64>,
    /// Messages that `compact_messages` keeps from the start.
    pub keep_first: usize,
    /// Messages that `compact_messages` keeps from the end.
    pub keep_recent: usize,
    /// Lines that `compact_messages` leaves of a tool output.
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
    /// Counts a system prompt of the record: what was given for the system prompt and the tools is at least
    /// that.
    #[doc(hidden)]
    pub fn count_system_prompt(&mut self, tokens: u64) {
        self.system_prompt_tokens = self.system_prompt_tokens.max(tokens);
    }

    /// Returns what messages may have: the window without the system prompt.
    pub fn budget(&self) -> Budget {
        Budget {
            tokens: self
                .max_context_tokens
                .saturating_sub(self.system_prompt_tokens),
            bytes: self.max_context_bytes,
        }
    }
}

/// How many earlier loops of the chain a compaction takes in.
///
/// ```
/// use loopstore_model::compaction::CompactionScope;
///
/// assert_eq!("fixed:3".parse(), Ok(CompactionScope::FixedCount(3)));
/// assert_eq!("token-budget".parse(), Ok(CompactionScope::TokenBudget));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionScope {
    /// This many.
    FixedCount(usize),
    /// As many as fit the window once they are summarised.
    TokenBudget,
}

/// What becomes of the loops before the scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OlderLoops {
    /// They are not in the context (the original).
    Skip,
    /// They stay in the context: under the blocks that they have, else word for word.
    #[default]
    Rollup,
}

/// Where the turns that are kept at the end may lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecentWindow {
    /// In the current loop only (the original).
    CurrentLoop,
    /// What the current loop does not use reaches back into the loops before.
    #[default]
    Chain,
}

/// A word of an option that no value has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not one of {known}")]
pub struct UnknownWord {
    given: String,
    known: &'static str,
}

impl UnknownWord {
    /// `given` is none of the words listed in `known`.
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

/// When to compact, and how.
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
    /// When, and what to come down to.
    pub policy: CompactionPolicy,
    /// How many earlier loops are taken in.
    pub compaction_scope: CompactionScope,
    /// What becomes of the loops before these.
    pub older_loops: OlderLoops,
    /// Where the turns kept at the end may lie.
    pub recent_window: RecentWindow,
    /// Turns of the current loop kept word for word from its start.
    pub keep_first_turns: u32,
    /// How much is kept at the end.
    pub keep_recent: KeepRecent,
    /// Tokens that the summary of a loop may have. A `Policy` of the store sets it by the window.
    pub max_summary_tokens: u64,
    /// Tokens that the rollup of older loops may have. A `Policy` of the store sets it by the window.
    pub max_rollup_tokens: u64,
    /// Whether the first summary of the current loop may have more than
    /// [`max_summary_tokens`](Self::max_summary_tokens): what the turns kept word for word leave free of the
    /// policy's target.
    pub fills_window: bool,
    /// Lines left of each tool output in the turns kept at the end.
    pub tool_output_max_lines: usize,
    /// The strategy that makes the blocks of a session; the default of the store if `None`.
    pub block_strategy: Option<Arc<dyn BlockCompactionStrategy>>,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            policy: CompactionPolicy::default(),
            compaction_scope: CompactionScope::FixedCount(3),
            older_loops: OlderLoops::default(),
            recent_window: RecentWindow::default(),
            keep_first_turns: 2,
            keep_recent: KeepRecent::default(),
            max_summary_tokens: 2_000,
            max_rollup_tokens: 2_000,
            fills_window: false,
            tool_output_max_lines: 50,
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

    /// Returns the configuration that a policy was made for, with these parameters of it.
    pub fn of(policy: CompactionPolicy) -> Self {
        let usual = match policy {
            CompactionPolicy::Headroom { .. } => Self::default(),
            CompactionPolicy::Reserves { .. } => Self::reserves(),
            CompactionPolicy::Target { .. } => Self::target(),
        };
        Self { policy, ..usual }
    }

    /// Whether messages of this size are to be compacted.
    pub fn should_compact(&self, window: &ContextConfig, size: Size) -> bool {
        self.policy.should_compact(window, self.keep_recent, size)
    }

    /// Returns what shapes the text of a block, as it is stored with it.
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
    /// What shapes the text of its blocks.
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
    /// Turns that the recent window took.
    pub keep_recent_turns: u32,
    /// [`CompactionConfig::max_summary_tokens`].
    pub max_summary_tokens: u64,
    /// [`CompactionConfig::max_rollup_tokens`].
    pub max_rollup_tokens: u64,
    /// [`CompactionConfig::tool_output_max_lines`].
    pub tool_output_max_lines: usize,
    /// [`CompactionConfig::compaction_scope`] as text.
    pub scope: String,
    /// [`CompactionConfig::older_loops`] as text.
    pub older_loops: String,
    /// [`CompactionConfig::recent_window`] as text.
    pub recent_window: String,
    /// [`CompactionConfig::policy`]; one of a later version is read as the default.
    #[serde(deserialize_with = "known_policy")]
    pub policy: CompactionPolicy,
}

fn known_policy<'de, D: serde::Deserializer<'de>>(from: D) -> Result<CompactionPolicy, D::Error> {
    let json = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(json).unwrap_or_default())
}

/// What a build takes from the noted configuration of a run. It asks before each model call, so the
/// rest is skipped.
#[derive(Deserialize)]
#[serde(default)]
#[doc(hidden)]
pub struct Noted<'a> {
    #[doc(hidden)]
    pub max_context_tokens: u64,
    #[doc(hidden)]
    pub system_tokens: u64,
    #[doc(hidden)]
    pub keep_first_turns: u32,
    #[doc(hidden)]
    pub keep_recent_turns: u32,
    #[doc(hidden)]
    pub max_summary_tokens: u64,
    #[serde(borrow)]
    #[doc(hidden)]
    pub scope: Cow<'a, str>,
    #[serde(borrow)]
    #[doc(hidden)]
    pub recent_window: Cow<'a, str>,
}

impl Default for Noted<'_> {
    fn default() -> Self {
        let (config, window) = (CompactionConfig::default(), ContextConfig::default());
        Self {
            max_context_tokens: window.max_context_tokens,
            system_tokens: window.system_prompt_tokens,
            keep_first_turns: config.keep_first_turns,
            keep_recent_turns: config.keep_recent.count(),
            max_summary_tokens: config.max_summary_tokens,
            // Words that nobody knows are read as the defaults.
            scope: Cow::default(),
            recent_window: Cow::default(),
        }
    }
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

    /// Returns the stored form of a configuration, for a run of the strategy that the store takes by default.
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
            max_summary_tokens: config.max_summary_tokens,
            max_rollup_tokens: config.max_rollup_tokens,
            tool_output_max_lines: config.tool_output_max_lines,
            scope: config.compaction_scope.to_string(),
            older_loops: config.older_loops.to_string(),
            recent_window: config.recent_window.to_string(),
            policy: config.policy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
