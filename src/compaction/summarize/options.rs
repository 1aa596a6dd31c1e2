//! What a caller can choose about summaries.

use std::str::FromStr;
use std::time::Duration;

use super::super::config::UnknownWord;

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
    /// The text that a summary begins with, such as `## Session Summary`, `[Summary]` or
    /// `[COMPACTED_CONTEXT]`; put before an answer that does not begin with it. It is for readers
    /// only: what is a summary is known from the block.
    pub marker: Option<String>,
    /// Tokens that the prompt asks for.
    pub asked_tokens: u64,
    /// Tokens after which the answer may be cut. Neither goes beyond
    /// [`CompactionConfig::max_summary_tokens`](super::super::CompactionConfig::max_summary_tokens).
    pub max_tokens: u64,
    /// The temperature; `None` for models that take none.
    pub temperature: Option<f64>,
    /// How long one summary may take, retries included.
    pub timeout: Duration,
    /// Characters of a message that go into the prompt.
    pub message_chars: usize,
    /// Characters of a tool result that go into the prompt.
    pub result_chars: usize,
    /// Bytes of messages that go into the prompt. Beyond them messages are shortened further, then
    /// the oldest are left out, and their turns counted as dropped.
    pub prompt_bytes: usize,
}

impl Default for SummarizeOptions {
    fn default() -> Self {
        Self {
            role: SummaryRole::User,
            marker: Some("## Session Summary".into()),
            asked_tokens: 800,
            max_tokens: 1_000,
            temperature: Some(0.3),
            timeout: Duration::from_secs(120),
            message_chars: 2_000,
            result_chars: 500,
            prompt_bytes: 400_000,
        }
    }
}

impl SummarizeOptions {
    /// Returns what of this shapes a text.
    pub(super) fn shaping(&self) -> String {
        format!(
            "role={} marker={:?} asked={} allowed={} temperature={:?} message={} result={} prompt={}",
            self.role,
            self.marker.as_deref().unwrap_or_default(),
            self.asked_tokens,
            self.max_tokens,
            self.temperature,
            self.message_chars,
            self.result_chars,
            self.prompt_bytes,
        )
    }
}
