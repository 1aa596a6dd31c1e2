//! Compaction for callers without a session: messages in, fewer messages out.
//!
//! There are three levels, each applied only if the one before is not enough: long tool outputs are cut, old answers
//! are replaced by one line each, the middle is dropped. A call and its result are kept or dropped together.

mod selection;

use self::selection::TieredSelection;
use super::{ContextConfig, cut_tool_result};
use crate::AgentMessage;
use crate::tokens::{HeuristicTokenCounter, TokenCounter};

/// A strategy for messages without a session.
///
/// ```
/// use loopstore_model::compaction::{CompactionStrategy, ContextConfig};
/// use loopstore_model::{AgentMessage, Message, Role};
///
/// /// Keeps only the last prompt.
/// struct LastPrompt;
///
/// impl CompactionStrategy for LastPrompt {
///     fn compact(&self, messages: Vec<AgentMessage>, _: &ContextConfig) -> Vec<AgentMessage> {
///         let last = messages.into_iter().rfind(|message| message.role() == Role::User);
///         last.into_iter().collect()
///     }
/// }
///
/// let messages = ["one", "two"].map(|text| AgentMessage::from(Message::user(text)));
/// let left = LastPrompt.compact(messages.to_vec(), &ContextConfig::default());
/// assert_eq!(left, messages[1..]);
/// ```
pub trait CompactionStrategy: Send + Sync {
    /// Returns the messages that replace `messages`. They must fit the window of `config` without the system prompt,
    /// and no tool call may be separated from its result.
    fn compact(&self, messages: Vec<AgentMessage>, config: &ContextConfig) -> Vec<AgentMessage>;
}

/// The strategy of [`compact_messages`] with the default token counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultCompaction;

impl CompactionStrategy for DefaultCompaction {
    fn compact(&self, messages: Vec<AgentMessage>, config: &ContextConfig) -> Vec<AgentMessage> {
        compact_messages(messages, config, &HeuristicTokenCounter)
    }
}

/// Returns `messages` if they fit the window of `config` without the system prompt, else a shorter history that fits.
///
/// First, tool outputs are cut. Then all but the last `keep_recent` answers are replaced by a line each, and their
/// results are dropped. Then only the first `keep_first` and last `keep_recent` messages are kept, with a marker
/// between them; finally only the newest messages that fit, after a marker. The markers count towards the budget. If a
/// level would separate a call from its result, both are kept if they fit, else both are dropped. The result is empty
/// if not even a marker fits.
///
/// ```
/// use loopstore_model::compaction::{ContextConfig, compact_messages};
/// use loopstore_model::tokens::{HeuristicTokenCounter, total_tokens};
/// use loopstore_model::{AgentMessage, Message};
///
/// let hour = |n| Message::user(format!("Hour {n}: {}", "rain, ".repeat(200)));
/// let messages: Vec<AgentMessage> = (0..40).map(|n| hour(n).into()).collect();
/// let window = ContextConfig { max_context_tokens: 5_000, ..ContextConfig::default() };
/// let shorter = compact_messages(messages.clone(), &window, &HeuristicTokenCounter);
/// assert!(total_tokens(&shorter) <= 5_000);
/// assert_eq!(shorter.last(), messages.last());
/// ```
pub fn compact_messages(
    messages: Vec<AgentMessage>,
    config: &ContextConfig,
    counter: &dyn TokenCounter,
) -> Vec<AgentMessage> {
    let budget = config
        .max_context_tokens
        .saturating_sub(config.system_prompt_tokens);
    let tokens: u64 = messages
        .iter()
        .map(|message| counter.message_tokens(message))
        .sum();
    if tokens <= budget {
        return messages;
    }
    let mut selection = TieredSelection::new(cut_tool_outputs(messages, config), counter);
    if selection.tokens() > budget {
        selection.summarise_all_but(config.keep_recent);
    }
    if selection.tokens() > budget {
        selection.drop_middle(config.keep_first, config.keep_recent);
    }
    if selection.tokens() > budget {
        selection.keep_newest(budget);
    }
    selection.join_pairs(budget);
    selection.into_messages()
}

/// Returns the newest of `messages` with at most `budget` tokens, after a marker with the number of missing messages.
/// The marker counts towards the budget, and no call is separated from its result. The result is empty if not even a
/// marker fits.
///
/// ```
/// use loopstore_model::compaction::keep_within_budget;
/// use loopstore_model::tokens::HeuristicTokenCounter;
/// use loopstore_model::{AgentMessage, Message};
///
/// let messages = [Message::user("old ".repeat(500)), Message::user("new")];
/// let messages: Vec<AgentMessage> = messages.map(AgentMessage::from).into();
/// let kept = keep_within_budget(messages.clone(), 50, &HeuristicTokenCounter);
/// // The marker, and what fits.
/// assert_eq!(kept.len(), 2);
/// assert_eq!(kept[1], messages[1]);
/// ```
pub fn keep_within_budget(
    messages: Vec<AgentMessage>,
    budget: u64,
    counter: &dyn TokenCounter,
) -> Vec<AgentMessage> {
    let mut selection = TieredSelection::new(messages, counter);
    if selection.tokens() > budget {
        selection.keep_newest(budget);
    }
    selection.join_pairs(budget);
    selection.into_messages()
}

fn cut_tool_outputs(messages: Vec<AgentMessage>, config: &ContextConfig) -> Vec<AgentMessage> {
    let cut = |message| match cut_tool_result(&message, config.tool_output_max_lines) {
        Some(shorter) => shorter,
        None => message,
    };
    messages.into_iter().map(cut).collect()
}
