//! OpenAI's tokenizers as token counters (feature `tiktoken`).
//!
//! The vocabularies are part of the crate `bpe-openai`, which returns tiktoken's figures in time linear in the length
//! of the text. The reference implementation needs quadratic time for a long run of letters, such as base64, and fails
//! on a long run of spaces; transcripts have both.

use bpe_openai::Tokenizer;

use super::TokenCounter;

/// A counter with one of OpenAI's vocabularies.
///
/// ```
/// use loopstore_model::tokens::{TiktokenCounter, TokenCounter};
///
/// let counter = TiktokenCounter::o200k_base();
/// assert_eq!(counter.text_tokens("hello world"), 2);
/// ```
#[derive(Clone, Copy)]
pub struct TiktokenCounter {
    name: &'static str,
    tokenizer: &'static Tokenizer,
}

impl TiktokenCounter {
    /// Returns the counter of GPT-4o and later: `tiktoken:o200k_base`.
    pub fn o200k_base() -> Self {
        Self {
            name: "tiktoken:o200k_base",
            tokenizer: bpe_openai::o200k_base(),
        }
    }

    /// Returns the counter of GPT-4: `tiktoken:cl100k_base`.
    pub fn cl100k_base() -> Self {
        Self {
            name: "tiktoken:cl100k_base",
            tokenizer: bpe_openai::cl100k_base(),
        }
    }
}

impl std::fmt::Debug for TiktokenCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TiktokenCounter").field(&self.name).finish()
    }
}

impl TokenCounter for TiktokenCounter {
    fn name(&self) -> &str {
        self.name
    }

    fn text_tokens(&self, text: &str) -> u64 {
        self.tokenizer.count(text) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_tiktoken() {
        let (o200k, cl100k) = (
            TiktokenCounter::o200k_base(),
            TiktokenCounter::cl100k_base(),
        );
        assert_eq!(o200k.text_tokens(""), 0);
        assert_eq!(o200k.text_tokens("hello world"), 2);
        assert_eq!(cl100k.text_tokens("tiktoken is great!"), 6);
        assert_eq!(cl100k.text_tokens("お誕生日おめでとう"), 9);
    }

    /// In steps that grow with the square of their length they would take hours.
    #[test]
    fn long_runs_come_to_an_end() {
        let counter = TiktokenCounter::o200k_base();
        for piece in ["a", " ", "\n", "日", "🦀", "=+/", "ab1"] {
            assert!(counter.text_tokens(&piece.repeat(500_000)) > 0, "{piece:?}");
        }
    }
}
