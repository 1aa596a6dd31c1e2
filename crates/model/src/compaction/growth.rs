//! The room that a compaction leaves for the turns after it.
//!
//! A context that only just fits is compacted again after the next turn: each compaction has its price, and each
//! breaks the provider's cache of everything behind it. So the goal of a compaction leaves room for some typical
//! turns, and a compaction that cannot leave room is not made while the window still holds the context.

use super::config::{CompactionConfig, ContextConfig};
use super::policy::{Budget, CompactionPolicy};
use crate::Size;

/// The number of typical turns without room for which a compaction is not made.
const LEAST_TURNS: u64 = 2;

/// The least room as a share of the limit, in percent: turns differ.
const LEAST_SHARE: u64 = 8;

/// The least room in tokens, if a quarter of the limit has so many: in a small window a few percent are no turn.
const LEAST_ROOM: u64 = 1_000;

/// Tokens below which a window is a size to hand a conversation over in, and no window that it goes on in.
const LEAST_WINDOW: u64 = 500;

/// The size of a typical turn, and the size that leaves room for several turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Tokens of a typical turn; 0 if no turn is complete.
    pub turn: u64,
    /// The number of typical turns without room for which a compaction is not made.
    least_turns: u64,
    /// Tokens up to which the policy does not fire.
    limit: u64,
    /// The size that a compaction comes down to.
    pub goal: Budget,
}

impl Growth {
    /// Returns the growth of a chain whose newest turns have these sizes in tokens.
    pub fn new(config: &CompactionConfig, window: &ContextConfig, turns: Vec<u64>) -> Self {
        let turn = mean(&turns);
        let (target, limit) = (target(config, window), limit(config, window).tokens);
        let wanted = match is_handed_over(config, window) {
            true => 0,
            false => u64::from(config.room_turns),
        };
        let least = (limit / 4).min(LEAST_ROOM).max(limit / 100 * LEAST_SHARE);
        let room = match wanted.saturating_mul(turn) {
            _ if wanted == 0 => 0,
            several => several.clamp(least, (limit / 2).max(least)),
        };
        Self {
            turn,
            least_turns: wanted.min(LEAST_TURNS),
            limit,
            goal: Budget {
                tokens: target.tokens.min(limit.saturating_sub(room)),
                ..target
            },
        }
    }

    /// Returns the tokens by which a context may grow before the policy fires.
    pub fn room(&self, after: Size) -> u64 {
        self.limit.saturating_sub(after.tokens)
    }

    /// True if a context leaves less room than a compaction is worth. A quarter of the limit is room enough,
    /// however large the turns are.
    pub fn is_too_full(&self, after: Size) -> bool {
        let several = self.least_turns.saturating_mul(self.turn);
        self.room(after) < several.min(self.limit / 4)
    }
}

/// True if a window is a size to hand a conversation over in. It is used whole: the share that the default policy
/// keeps free is less than an answer. A policy that wants no room for turns keeps to its shares in every window.
pub fn is_handed_over(config: &CompactionConfig, window: &ContextConfig) -> bool {
    window.max_context_tokens < LEAST_WINDOW
        && config.policy == CompactionPolicy::headroom()
        && config.room_turns > 0
}

/// Returns the most that a context has after a compaction.
pub fn target(config: &CompactionConfig, window: &ContextConfig) -> Budget {
    match is_handed_over(config, window) {
        true => window.budget(),
        false => config.policy.target_of(window),
    }
}

/// Returns the largest size at which no compaction is necessary.
fn limit(config: &CompactionConfig, window: &ContextConfig) -> Budget {
    match is_handed_over(config, window) {
        true => window.budget(),
        false => config.policy.limit_of(window),
    }
}

/// Returns the mean, which decides how often a window is filled: a few turns with long outputs are most of it.
fn mean(sizes: &[u64]) -> u64 {
    let sum = sizes
        .iter()
        .fold(0, |sum: u64, size| sum.saturating_add(*size));
    sum / (sizes.len() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(policy: CompactionPolicy, window: u64, turn: u64) -> Growth {
        let window = ContextConfig {
            max_context_tokens: window,
            ..ContextConfig::default()
        };
        let config = CompactionConfig {
            policy,
            ..CompactionConfig::default()
        };
        Growth::new(&config, &window, vec![turn])
    }

    fn goal(window: u64, turn: u64) -> u64 {
        growth(CompactionPolicy::headroom(), window, turn)
            .goal
            .tokens
    }

    fn size(tokens: u64) -> Size {
        Size {
            tokens,
            ..Size::default()
        }
    }

    #[test]
    fn the_goal_leaves_room_for_several_turns() {
        // 85 % of the window, less the room.
        assert_eq!(goal(3_000, 0), 2_550 - 637);
        assert_eq!(goal(3_000, 150), 2_550 - 900);
        assert_eq!(goal(3_000, 900), 2_550 - 1_275);
        assert_eq!(goal(200_000, 100), 170_000 - 13_600);
        assert_eq!(goal(200_000, 4_000), 170_000 - 24_000);
    }

    #[test]
    fn a_typical_turn_is_the_mean_since_long_outputs_fill_a_window() {
        let (config, window) = (CompactionConfig::default(), ContextConfig::default());
        let turn = |turns| Growth::new(&config, &window, turns).turn;
        assert_eq!(turn(vec![100, 100, 100, 3_700]), 1_000);
        assert_eq!(turn(Vec::new()), 0);
    }

    #[test]
    fn without_turns_to_leave_room_for_the_target_is_used_whole() {
        let config = CompactionConfig {
            room_turns: 0,
            ..CompactionConfig::default()
        };
        let window = ContextConfig {
            max_context_tokens: 3_000,
            ..ContextConfig::default()
        };
        let growth = Growth::new(&config, &window, vec![200]);
        assert_eq!(growth.goal.tokens, 2_550);
        assert!(!growth.is_too_full(size(2_550)));
    }

    #[test]
    fn a_policy_that_leaves_more_room_keeps_its_target() {
        let target = CompactionPolicy::target();
        assert_eq!(growth(target, 64_000, 1_000).goal.tokens, 32_000);
        assert_eq!(growth(target, 64_000, 4_000).goal.tokens, 47_999 - 23_999);
    }

    #[test]
    fn a_size_to_hand_over_is_used_whole() {
        assert_eq!(goal(499, 40), 499);
        assert_eq!(goal(500, 40), 425 - 212);
        assert!(growth(CompactionPolicy::target(), 400, 40).goal.tokens <= 200);
    }

    #[test]
    fn two_turns_of_room_are_the_least_unless_turns_are_huge() {
        let small = growth(CompactionPolicy::headroom(), 3_000, 100);
        assert!(small.is_too_full(size(2_503)) && !small.is_too_full(size(2_350)));
        let huge = growth(CompactionPolicy::headroom(), 3_000, 2_000);
        assert!(huge.is_too_full(size(2_000)) && !huge.is_too_full(size(1_900)));
        assert_eq!(huge.room(size(1_900)), 650);
    }
}
