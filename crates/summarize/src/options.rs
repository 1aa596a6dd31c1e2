//! The options of summaries.

use std::str::FromStr;
use std::time::Duration;

use loopstore_model::compaction::UnknownWord;

/// The role of a summary's message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SummaryRole {
    /// The user, the safe choice: every provider accepts a user message as the first message.
    #[default]
    User,
    /// The model itself.
    Assistant,
}

impl std::fmt::Display for SummaryRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        })
    }
}

impl FromStr for SummaryRole {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "user" => Ok(Self::User),
            "assistant" => Ok(Self::Assistant),
            _ => Err(UnknownWord::new(text, "user, assistant")),
        }
    }
}

/// Options of [`SummarizeCompaction`](super::SummarizeCompaction).
#[derive(Clone, Debug, PartialEq)]
pub struct SummarizeOptions {
    /// The role of the summary's message.
    pub role: SummaryRole,
    /// The tokens that the prompt requests; if `None`, three quarters of the most tokens of the summary, since facts
    /// from the recorded messages use the rest.
    pub asked_tokens: Option<u64>,
    /// The tokens after which the answer may be cut; if `None`, the most tokens of the summary. Neither exceeds
    /// [`CompactionConfig::max_summary_tokens`](loopstore_model::compaction::CompactionConfig::max_summary_tokens).
    pub max_tokens: Option<u64>,
    /// The temperature; `None` for models without one.
    pub temperature: Option<f64>,
    /// The longest duration of one summary, retries included.
    pub timeout: Duration,
    /// The most characters of a message in the prompt, taken from its beginning and its end.
    pub message_chars: usize,
    /// The most characters of a tool result in the prompt.
    pub result_chars: usize,
    /// The most bytes of messages in the prompt. If the messages have more, all are shortened further, then the
    /// oldest are left out, and their turns count as dropped.
    pub prompt_bytes: usize,
}

impl Default for SummarizeOptions {
    fn default() -> Self {
        Self {
            role: SummaryRole::User,
            asked_tokens: None,
            max_tokens: None,
            temperature: Some(0.3),
            timeout: Duration::from_secs(120),
            message_chars: 16_000,
            result_chars: 4_000,
            prompt_bytes: 400_000,
        }
    }
}

impl SummarizeOptions {
    /// Returns the options that affect the text, as they are stored with a block.
    pub(super) fn shaping(&self) -> String {
        let tokens = |tokens: Option<u64>| match tokens {
            Some(tokens) => tokens.to_string(),
            None => "share".to_owned(),
        };
        format!(
            "role={} asked={} allowed={} temperature={:?} message={} result={} prompt={}",
            self.role,
            tokens(self.asked_tokens),
            tokens(self.max_tokens),
            self.temperature,
            self.message_chars,
            self.result_chars,
            self.prompt_bytes,
        )
    }

    /// Returns the tokens to request, and those after which the answer may be cut, for a summary of usually `usual` and
    /// at most `most` tokens.
    pub(super) fn tokens_of(&self, usual: u64, most: u64) -> (u64, u64) {
        let share = usual * 3 / 4;
        let requested = self
            .asked_tokens
            .map_or(share, |requested| requested.min(share));
        (requested, self.max_tokens.map_or(most, |max| max.min(most)))
    }
}
