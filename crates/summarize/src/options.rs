//! What a caller can choose about summaries.

use std::str::FromStr;
use std::time::Duration;

use loopstore_model::compaction::UnknownWord;

/// Who seems to say a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SummaryRole {
    /// The user: the safe choice, since no provider minds it as the first message.
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
    /// Tokens that the prompt asks for; `None`: three quarters of what the summary may have, as the rest is for
    /// what the record adds.
    pub asked_tokens: Option<u64>,
    /// Tokens after which the answer may be cut; `None`: what the summary may have. Neither goes beyond
    /// [`CompactionConfig::max_summary_tokens`](loopstore_model::compaction::CompactionConfig::max_summary_tokens).
    pub max_tokens: Option<u64>,
    /// The temperature; `None` for models that take none.
    pub temperature: Option<f64>,
    /// How long one summary may take, retries included.
    pub timeout: Duration,
    /// Characters of a message that go into the prompt at most: its beginning and its end.
    pub message_chars: usize,
    /// Characters of a tool result that go into the prompt at most.
    pub result_chars: usize,
    /// Bytes of messages that go into the prompt. Beyond them all messages are shortened further, then
    /// the oldest are left out, and their turns counted as dropped.
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
    /// Returns what of this shapes a text.
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

    /// Returns the tokens to ask for, and those after which the answer may be cut, of a summary that usually has
    /// `usual` and may have `most`.
    pub(super) fn tokens_of(&self, usual: u64, most: u64) -> (u64, u64) {
        let share = usual * 3 / 4;
        let asked = self.asked_tokens.map_or(share, |asked| asked.min(share));
        (asked, self.max_tokens.map_or(most, |max| max.min(most)))
    }
}
