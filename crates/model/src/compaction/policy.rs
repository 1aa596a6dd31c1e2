//! The trigger of a compaction, and its target size.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::config::{ContextConfig, UnknownWord};
use super::recent::KeepRecent;
use crate::Size;

/// The least tokens of a summary if none are configured.
const LEAST_SUMMARY: u64 = 2_000;

/// The policy of a compaction: its trigger, and its target size.
///
/// A byte budget ([`ContextConfig::max_context_bytes`]) triggers at the same share of its limit.
///
/// ```
/// use loopstore_model::compaction::{CompactionConfig, CompactionPolicy, ContextConfig};
///
/// // At three quarters of the window, down to a third of it.
/// let policy = CompactionPolicy::Target { trigger: 0.75, target: 0.33, max_attempts: 1 };
/// let window = ContextConfig { max_context_tokens: 100_000, ..ContextConfig::default() };
/// assert_eq!(policy.target_of(&window).tokens, 33_000);
/// let config = CompactionConfig { policy, ..CompactionConfig::default() };
/// assert_eq!(config.policy.name(), "target");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionPolicy {
    /// Triggers if `compact_at_pct − system/max − context/max < compact_budget_threshold_pct`.
    Headroom {
        /// Share of the window at which the headroom is measured.
        compact_at_pct: f64,
        /// Share of the window below which the headroom is too small.
        compact_budget_threshold_pct: f64,
    },
    /// Triggers when the messages reach a share of the window less the reserves. If the context has at most one
    /// message more than are kept, it triggers only if the messages do not fit the window.
    Reserves {
        /// Tokens reserved for the system prompt and the tools; if these have more tokens, that number is used.
        system: u64,
        /// Tokens reserved for the answer.
        output: u64,
        /// Tokens reserved for the error of estimated counts.
        safety: u64,
        /// The share of the window less the reserves at which the policy triggers.
        share: f64,
    },
    /// Triggers when the context reaches a share of the window, and compacts it to another share.
    Target {
        /// The share of the window at which it triggers.
        trigger: f64,
        /// The share of the window to compact to.
        target: f64,
        /// The most compactions of one call of `SessionHandle::prepare`.
        max_attempts: u32,
    },
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self::headroom()
    }
}

/// Parses the name of a policy, which has its default parameters.
impl FromStr for CompactionPolicy {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "headroom" => Ok(Self::headroom()),
            "reserves" => Ok(Self::reserves()),
            "target" => Ok(Self::target()),
            _ => Err(UnknownWord::new(text, "headroom, reserves, target")),
        }
    }
}

/// The most tokens and bytes of all messages together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Tokens.
    pub tokens: u64,
    /// Bytes of JSON; `None` for no limit.
    pub bytes: Option<u64>,
}

impl Budget {
    /// True if messages of this size are within the budget.
    pub fn fits(&self, size: Size) -> bool {
        size.tokens <= self.tokens && self.bytes.is_none_or(|most| size.bytes <= most)
    }
}

impl CompactionPolicy {
    /// Returns the default policy. It triggers when the system prompt and the messages together exceed 85 % of the
    /// window: less than 5 % of the window is then left below 90 %.
    pub const fn headroom() -> Self {
        Self::Headroom {
            compact_at_pct: 0.90,
            compact_budget_threshold_pct: 0.05,
        }
    }

    /// Returns a policy that triggers at 80 % of the window less 2,000 tokens for the system prompt, 4,000 for the
    /// answer and 5,000 for safety: at 93,600 of 128,000 tokens.
    pub const fn reserves() -> Self {
        Self::Reserves {
            system: 2_000,
            output: 4_000,
            safety: 5_000,
            share: 0.80,
        }
    }

    /// Returns a policy that triggers at 75 % of the window and compacts to 50 %, in at most two compactions.
    pub const fn target() -> Self {
        Self::Target {
            trigger: 0.75,
            target: 0.50,
            max_attempts: 2,
        }
    }

    /// Returns the name, which is stored with runs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Headroom { .. } => "headroom",
            Self::Reserves { .. } => "reserves",
            Self::Target { .. } => "target",
        }
    }

    /// Returns the most compactions of one call of `SessionHandle::prepare`.
    pub const fn max_attempts(&self) -> u32 {
        match self {
            Self::Target { max_attempts, .. } => *max_attempts,
            Self::Headroom { .. } | Self::Reserves { .. } => 2,
        }
    }

    /// True if messages of this size must be compacted.
    pub fn should_compact(&self, window: &ContextConfig, keep: KeepRecent, size: Size) -> bool {
        let is_few = size.messages <= u64::from(keep.count()) + 1;
        if matches!(self, Self::Reserves { .. }) && is_few && window.budget().fits(size) {
            return false;
        }
        self.tokens_fire(window, size.tokens) || self.bytes_fire(window, size.bytes)
    }

    fn tokens_fire(&self, window: &ContextConfig, tokens: u64) -> bool {
        let share = |tokens: u64| tokens as f64 / window.max_context_tokens as f64;
        match *self {
            Self::Headroom {
                compact_at_pct,
                compact_budget_threshold_pct,
            } => {
                let left = compact_at_pct - share(window.system_prompt_tokens) - share(tokens);
                left < compact_budget_threshold_pct
            }
            Self::Reserves {
                system,
                output,
                safety,
                share,
            } => {
                let reserved = system.max(window.system_prompt_tokens);
                let reserved = reserved.saturating_add(output).saturating_add(safety);
                let left = window.max_context_tokens.saturating_sub(reserved);
                tokens >= share_of(left, share)
            }
            Self::Target { trigger, .. } => {
                let tokens = tokens.saturating_add(window.system_prompt_tokens);
                tokens >= share_of(window.max_context_tokens, trigger)
            }
        }
    }

    fn bytes_fire(&self, window: &ContextConfig, bytes: u64) -> bool {
        let share = match *self {
            Self::Headroom {
                compact_at_pct,
                compact_budget_threshold_pct,
            } => compact_at_pct - compact_budget_threshold_pct,
            Self::Reserves { share, .. } => share,
            Self::Target { trigger, .. } => trigger,
        };
        let most = window.max_context_bytes;
        most.is_some_and(|most| bytes > share_of(most, share))
    }

    /// Returns the most tokens of a summary if none are configured: a quarter of the target, at least 2,000.
    pub fn summary_tokens(&self, window: &ContextConfig) -> u64 {
        (self.target_of(window).tokens / 4).max(LEAST_SUMMARY)
    }

    /// Returns the largest size at which the policy does not trigger. If that size is less than a tenth of the budget,
    /// because the policy always triggers or the system prompt fills the window, the budget itself is returned.
    pub fn limit_of(&self, window: &ContextConfig) -> Budget {
        let hard = window.budget();
        let tokens = |tokens| !self.tokens_fire(window, tokens);
        let bytes = |bytes| !self.bytes_fire(window, bytes);
        let enough = |most, found| if found <= most / 10 { most } else { found };
        Budget {
            tokens: enough(hard.tokens, largest(hard.tokens, tokens)),
            bytes: hard.bytes.map(|most| enough(most, largest(most, bytes))),
        }
    }

    /// Returns the target size: the target of the policy, else the largest context at which the policy does not
    /// trigger ([`limit_of`](Self::limit_of)).
    pub fn target_of(&self, window: &ContextConfig) -> Budget {
        let hard = window.budget();
        let Self::Target { target, .. } = *self else {
            return self.limit_of(window);
        };
        let tokens = share_of(window.max_context_tokens, target);
        let tokens = tokens.saturating_sub(window.system_prompt_tokens);
        let bytes = hard.bytes.map(|most| share_of(most, target).min(most));
        Budget {
            tokens: tokens.min(hard.tokens),
            bytes,
        }
    }
}

fn share_of(whole: u64, share: f64) -> u64 {
    (whole as f64 * share) as u64
}

/// Returns the largest number up to `most` for which `holds` is true; 0 if there is none. `holds` must be true up to
/// some number and false beyond.
fn largest(most: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(tokens: u64, system: u64) -> ContextConfig {
        ContextConfig {
            max_context_tokens: tokens,
            system_prompt_tokens: system,
            ..ContextConfig::default()
        }
    }

    fn size(tokens: u64) -> Size {
        Size {
            tokens,
            bytes: tokens * 4,
            messages: 100,
        }
    }

    fn should_compact(policy: CompactionPolicy, window: &ContextConfig, tokens: u64) -> bool {
        policy.should_compact(window, KeepRecent::default(), size(tokens))
    }

    #[test]
    fn the_default_fires_above_85_percent_of_the_window() {
        let policy = CompactionPolicy::default();
        assert!(!should_compact(policy, &window(1000, 0), 849));
        assert!(should_compact(policy, &window(1000, 0), 851));
        assert!(!should_compact(policy, &window(1000, 100), 749));
        assert!(should_compact(policy, &window(1000, 100), 751));
    }

    #[test]
    fn reserves_fire_at_93600_of_128000() {
        let policy = CompactionPolicy::reserves();
        assert!(!should_compact(policy, &window(128_000, 0), 93_599));
        assert!(should_compact(policy, &window(128_000, 2_000), 93_600));
        assert!(should_compact(policy, &window(128_000, 12_000), 85_600));
        let few = Size {
            messages: 11,
            ..size(100_000)
        };
        assert!(!policy.should_compact(&window(128_000, 0), KeepRecent::Messages(10), few));
        assert!(policy.should_compact(&window(128_000, 0), KeepRecent::Messages(9), few));
        // Few messages that the window does not hold are too many.
        assert!(policy.should_compact(&window(99_999, 0), KeepRecent::Messages(10), few));
    }

    #[test]
    fn a_target_fires_at_three_quarters_and_goes_down_to_a_half() {
        let policy = CompactionPolicy::target();
        assert!(!should_compact(policy, &window(64_000, 0), 47_999));
        assert!(should_compact(policy, &window(64_000, 0), 48_000));
        assert!(should_compact(policy, &window(64_000, 8_000), 40_000));
        assert_eq!(policy.target_of(&window(64_000, 8_000)).tokens, 24_000);
    }

    #[test]
    fn the_target_is_the_largest_context_at_which_nothing_fires() {
        for policy in [CompactionPolicy::headroom(), CompactionPolicy::reserves()] {
            for (tokens, system) in [(1, 0), (999, 3), (128_000, 0), (64_000, 11_000)] {
                let mut window = window(tokens, system);
                window.max_context_bytes = Some(10 * tokens);
                let target = policy.target_of(&window);
                let all = target.tokens == window.budget().tokens;
                assert!(all || !policy.tokens_fire(&window, target.tokens));
                assert!(all || policy.tokens_fire(&window, target.tokens + 1));
                let bytes = target.bytes.unwrap();
                assert!(!policy.bytes_fire(&window, bytes));
                assert!(policy.bytes_fire(&window, bytes + 1));
            }
        }
    }

    #[test]
    fn a_summary_may_have_a_quarter_of_the_target() {
        let policy = CompactionPolicy::default();
        assert_eq!(policy.summary_tokens(&window(40_000, 0)), 8_500);
        assert_eq!(policy.summary_tokens(&window(40_000, 4_000)), 7_500);
        assert_eq!(policy.summary_tokens(&window(9_000, 0)), 2_000);
    }

    #[test]
    fn a_target_is_never_more_than_fits_and_never_next_to_nothing() {
        let always = CompactionPolicy::Headroom {
            compact_at_pct: 0.0,
            compact_budget_threshold_pct: 0.05,
        };
        let wide = CompactionPolicy::Target {
            trigger: f64::NAN,
            target: 1.2,
            max_attempts: 2,
        };
        let mut window = window(1_000, 100);
        window.max_context_bytes = Some(5_000);
        for policy in [always, wide] {
            assert_eq!(policy.target_of(&window), window.budget());
        }
        window.system_prompt_tokens = 840;
        let nearly_full = CompactionPolicy::default().target_of(&window);
        assert_eq!(nearly_full.tokens, 160);
        window.system_prompt_tokens = u64::MAX;
        for policy in [CompactionPolicy::reserves(), CompactionPolicy::target()] {
            assert!(should_compact(policy, &window, u64::MAX / 4));
            assert_eq!(policy.target_of(&window).tokens, 0);
        }
    }

    #[test]
    fn bytes_trigger_like_tokens() {
        let mut window = window(1_000_000, 0);
        window.max_context_bytes = Some(1000);
        assert!(!should_compact(CompactionPolicy::default(), &window, 212));
        assert!(should_compact(CompactionPolicy::default(), &window, 213));
    }
}
