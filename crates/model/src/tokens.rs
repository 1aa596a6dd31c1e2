//! Token counters.
//!
//! The default counts are those of phi-core: a token for four bytes of UTF-8 or 750 bytes of an image, and a small
//! surcharge for each message. A tokenizer implements [`TokenCounter`].

#[cfg(feature = "tiktoken")]
mod tiktoken;

use std::sync::Arc;

use crate::{AgentMessage, Content, Image, Int, Message, Usage};
#[cfg(feature = "tiktoken")]
pub use tiktoken::TiktokenCounter;

/// Counts the tokens of texts and messages.
///
/// Only [`TokenCounter::name`] and [`TokenCounter::text_tokens`] must be implemented; the other methods use the figures
/// of [`HeuristicTokenCounter`]. Counts are stored with each message, so a counter must always return the same number
/// for the same input.
///
/// ```
/// use loopstore_model::Message;
/// use loopstore_model::tokens::TokenCounter;
///
/// /// A token for each word.
/// struct Words;
///
/// impl TokenCounter for Words {
///     fn name(&self) -> &str {
///         "words"
///     }
///
///     fn text_tokens(&self, text: &str) -> u64 {
///         text.split_whitespace().count() as u64
///     }
/// }
///
/// assert_eq!(Words.text_tokens("Will it rain?"), 3);
/// assert_eq!(Words.message_tokens(&Message::user("Will it rain?").into()), 3 + 4);
/// ```
pub trait TokenCounter: Send + Sync {
    /// Returns the name of the counter, which is stored with the database: a database has counts of one counter only.
    fn name(&self) -> &str;

    /// Returns the tokens of a text.
    fn text_tokens(&self, text: &str) -> u64;

    /// Returns the tokens of an image with this number of decoded bytes.
    fn image_tokens(&self, bytes: u64) -> u64 {
        (bytes / 750).clamp(85, 16_000)
    }

    /// Returns the tokens of the blocks of a message.
    fn content_tokens(&self, content: &[Content]) -> u64 {
        content.iter().map(|block| self.block_tokens(block)).sum()
    }

    /// Returns the tokens of one block. A signature has none. A block of an unknown type has those of its JSON, in
    /// which base64 data (a document, a screenshot) counts as an image of its size.
    fn block_tokens(&self, block: &Content) -> u64 {
        match block {
            Content::Text(text) => self.text_tokens(&text.text),
            Content::Thinking(thinking) => self.text_tokens(&thinking.thinking),
            Content::Image(image) => self.image_tokens(image_bytes(image)),
            Content::ToolCall(call) => {
                self.text_tokens(&call.name) + self.text_tokens(call.arguments.as_str()) + 8
            }
            Content::Sealed(sealed) => self.text_tokens(sealed.item.as_str()),
            Content::Other(json) => match without_data(json.as_str()) {
                None => self.text_tokens(json.as_str()),
                Some((rest, sizes)) => {
                    let data: u64 = sizes.iter().map(|bytes| self.image_tokens(*bytes)).sum();
                    self.text_tokens(&rest) + data
                }
            },
        }
    }

    /// Returns the tokens of a message with its surcharge.
    fn message_tokens(&self, message: &AgentMessage) -> u64 {
        match message {
            AgentMessage::Extension(extension) => self.text_tokens(extension.data.as_str()) + 4,
            AgentMessage::Llm(llm) => match &llm.message {
                Message::User(m) => self.content_tokens(&m.content) + 4,
                Message::Assistant(m) => self.content_tokens(&m.content) + 4,
                Message::ToolResult(m) => {
                    self.content_tokens(&m.content) + self.text_tokens(&m.tool_name) + 8
                }
            },
        }
    }
}

/// The default counter: a token for each four bytes, rounded up.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeuristicTokenCounter;

impl TokenCounter for HeuristicTokenCounter {
    fn name(&self) -> &str {
        "heuristic"
    }

    fn text_tokens(&self, text: &str) -> u64 {
        estimate_tokens(text)
    }
}

/// The names of the counters that this build has: `heuristic`, and with the feature `tiktoken` also
/// `tiktoken:o200k_base` and `tiktoken:cl100k_base`.
pub const COUNTERS: &[&str] = &[
    "heuristic",
    #[cfg(feature = "tiktoken")]
    "tiktoken:o200k_base",
    #[cfg(feature = "tiktoken")]
    "tiktoken:cl100k_base",
];

/// Returns the counter of that name, if it is one of [`COUNTERS`].
///
/// ```
/// use loopstore_model::tokens::{COUNTERS, counter_named};
///
/// let counter = counter_named("heuristic");
/// assert_eq!(counter.map(|counter| counter.text_tokens("12345678")), Some(2));
/// assert!(COUNTERS.iter().all(|name| counter_named(name).is_some()));
/// ```
pub fn counter_named(name: &str) -> Option<Arc<dyn TokenCounter>> {
    match name {
        "heuristic" => Some(Arc::new(HeuristicTokenCounter)),
        #[cfg(feature = "tiktoken")]
        "tiktoken:o200k_base" => Some(Arc::new(TiktokenCounter::o200k_base())),
        #[cfg(feature = "tiktoken")]
        "tiktoken:cl100k_base" => Some(Arc::new(TiktokenCounter::cl100k_base())),
        _ => None,
    }
}

/// The least consecutive characters that are taken for base64 data: no word and no identifier is so long.
const LEAST_DATA: usize = 4_096;

/// Returns a text without its base64 data, and the bytes of each datum; `None` if there is none.
fn without_data(text: &str) -> Option<(String, Vec<u64>)> {
    if text.len() < LEAST_DATA {
        return None;
    }
    let is_data = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte);
    let (mut rest, mut sizes) = (String::new(), Vec::new());
    let (mut at, mut kept) = (0, 0);
    while at < text.len() {
        let run = text.as_bytes()[at..]
            .iter()
            .take_while(|byte| is_data(byte))
            .count();
        if run >= LEAST_DATA {
            rest.push_str(&text[kept..at]);
            sizes.push(base64_bytes(&text[at..at + run]));
            kept = at + run;
        }
        at += run.max(1);
    }
    rest.push_str(&text[kept..]);
    (!sizes.is_empty()).then_some((rest, sizes))
}

/// Returns the estimated tokens of a text: its bytes divided by four, rounded up.
pub fn estimate_tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// Returns the estimated tokens of the blocks of a message.
pub fn content_tokens(content: &[Content]) -> u64 {
    HeuristicTokenCounter.content_tokens(content)
}

/// Returns the estimated tokens of a message.
pub fn message_tokens(message: &AgentMessage) -> u64 {
    HeuristicTokenCounter.message_tokens(message)
}

/// Returns the estimated tokens of all messages together.
///
/// ```
/// use loopstore_model::tokens::{estimate_tokens, total_tokens};
/// use loopstore_model::{AgentMessage, Message};
///
/// assert_eq!(estimate_tokens("12345678"), 2);
/// // Each message has a surcharge of 4.
/// let messages = ["12345678", "1234"].map(|text| AgentMessage::from(Message::user(text)));
/// assert_eq!(total_tokens(&messages), (2 + 4) + (1 + 4));
/// ```
pub fn total_tokens(messages: &[AgentMessage]) -> u64 {
    messages.iter().map(message_tokens).sum()
}

/// Returns the size of an image in bytes, from the length and padding of its base64. For an image in a blob it is the
/// number that replaces the data.
#[doc(hidden)]
pub fn image_bytes(image: &Image) -> u64 {
    match image
        .extra
        .get("bytes")
        .and_then(|bytes| bytes.read::<u64>().ok())
    {
        Some(bytes) if image.data.is_empty() => bytes,
        _ => base64_bytes(&image.data),
    }
}

fn base64_bytes(data: &str) -> u64 {
    let digits = data.trim_end_matches('=').len() as u64;
    digits * 3 / 4
}

/// The largest amount (tokens, bytes, messages) of a row: the sum of 65,536 such amounts fits 64 bits.
#[doc(hidden)]
pub const MAX_AMOUNT: u64 = 1 << 48;

/// Returns the tokens of a call: the input, cached or not, and the output; `None` if the report is empty or exceeds
/// [`MAX_AMOUNT`].
///
/// Some sources include cached tokens in the input; the reported total shows which do.
#[doc(hidden)]
pub fn reported_tokens(usage: &Usage) -> Option<u64> {
    let count = |int: &Option<Int>| int.as_ref().map_or(0, Int::get);
    let (input, read) = (usage.input.get(), count(&usage.cache_read));
    let plain = input.saturating_add(usage.output.get());
    let all = plain
        .saturating_add(read)
        .saturating_add(count(&usage.cache_write));
    if input <= 0 && read <= 0 && count(&usage.cache_write) <= 0 {
        // Without the input, the size of the context is unknown.
        return None;
    }
    let is_within = usage.total_tokens.as_ref().is_some_and(|total| {
        let total = total.get();
        total != all
            && read <= input
            && (plain..=plain.saturating_add(count(&usage.reasoning))).contains(&total)
    });
    let tokens = if is_within { plain } else { all };
    let tokens = u64::try_from(tokens).ok()?;
    (1..=MAX_AMOUNT).contains(&tokens).then_some(tokens)
}

/// Tracks the size of a context: the provider's last report, and estimates for the messages after it.
///
/// ```
/// use loopstore_model::tokens::{ContextTracker, HeuristicTokenCounter};
/// use loopstore_model::{AgentMessage, Message};
///
/// let prompt = |text| AgentMessage::from(Message::user(text));
/// let messages = ["Will it rain?", "And tomorrow?"].map(prompt);
/// let mut tracker = ContextTracker::new();
/// // The provider counted 500 tokens for the system prompt and the first message.
/// tracker.record(&serde_json::from_str(r#"{"input": 480, "output": 20}"#)?, 1);
/// assert_eq!(tracker.tokens(&messages, &HeuristicTokenCounter), 500 + 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextTracker {
    reported: Option<ReportedUsage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReportedUsage {
    tokens: u64,
    messages: usize,
}

impl ContextTracker {
    /// Returns a tracker without a report, which estimates everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the provider's report of a call whose answer is the last of `messages` messages.
    ///
    /// The size of the context is then the input of the call, cached or not, and its output. An empty report is
    /// ignored.
    pub fn record(&mut self, usage: &Usage, messages: usize) {
        if let Some(tokens) = reported_tokens(usage) {
            self.reported = Some(ReportedUsage { tokens, messages });
        }
    }

    /// Drops the report, after the context has been rebuilt.
    pub fn reset(&mut self) {
        self.reported = None;
    }

    /// Returns the size of a context of `messages` in tokens.
    pub fn tokens(&self, messages: &[AgentMessage], counter: &dyn TokenCounter) -> u64 {
        let estimate = |messages: &[AgentMessage]| -> u64 {
            messages
                .iter()
                .map(|message| counter.message_tokens(message))
                .sum()
        };
        match self.reported {
            Some(ReportedUsage {
                tokens,
                messages: known,
            }) if known <= messages.len() => tokens + estimate(&messages[known..]),
            _ => estimate(messages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Json, TurnId};

    fn parse(json: &str) -> AgentMessage {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn each_counter_is_found_by_its_name() {
        for name in COUNTERS {
            assert_eq!(counter_named(name).unwrap().name(), *name);
        }
        assert!(counter_named("").is_none());
    }

    #[test]
    fn text_is_a_quarter_of_its_bytes_rounded_up() {
        assert_eq!(estimate_tokens(""), 0);
        assert_eq!(estimate_tokens("abcd"), 1);
        assert_eq!(estimate_tokens("abcde"), 2);
        assert_eq!(estimate_tokens("éé"), 1);
        assert_eq!(estimate_tokens("日本"), 2);
    }

    #[test]
    fn messages_cost_what_the_design_says() {
        let user = AgentMessage::from(Message::user("abcd")).in_turn(TurnId::new("l", 0));
        assert_eq!(message_tokens(&user), 5);
        let assistant = parse(
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"abcd","signature":"long signature"},
            {"type":"toolCall","id":"c","name":"ls","arguments":{"path": "/tmp"}}]}"#,
        );
        assert_eq!(message_tokens(&assistant), 1 + (1 + 4 + 8) + 4);
        let result = parse(
            r#"{"role":"toolResult","toolCallId":"c","toolName":"ls","content":[{"type":"text","text":"12345"}],"isError":false}"#,
        );
        assert_eq!(message_tokens(&result), 2 + 1 + 8);
        let note = AgentMessage::extension("note", Json::parse("[1, 2]").unwrap());
        assert_eq!(message_tokens(&note), 2 + 4);
        assert_eq!(
            total_tokens(&[user, assistant, result, note]),
            5 + 18 + 11 + 6
        );
    }

    #[test]
    fn an_image_costs_its_decoded_size_within_bounds() {
        let image = |data: String| content_tokens(&[Content::image(data, "image/png")]);
        assert_eq!(image("AAAA".into()), 85);
        // 75,750 bytes are 101 tokens, two padding characters included.
        assert_eq!(image("A".repeat(101_000)), 101);
        assert_eq!(base64_bytes("AAA="), 2);
        assert_eq!(base64_bytes("AA=="), 1);
        assert_eq!(image("A".repeat(40_000_000)), 16_000);
    }

    #[test]
    fn data_within_an_item_of_a_provider_costs_what_an_image_does() {
        let item = |data: String| {
            let json = format!(r#"{{"type":"document","é":1,"source":{{"data":"{data}"}}}}"#);
            content_tokens(&[Content::Other(Json::parse(&json).unwrap())])
        };
        let around = item(String::new());
        assert_eq!(item("A".repeat(101_000)), around + 101);
        // A shorter run is text.
        assert_eq!(item("A".repeat(4_000)), around + 1_000);
        assert_eq!(item("a b ".repeat(4_000)), around + 4_000);
    }

    #[test]
    fn a_total_that_has_the_cache_beside_the_input_counts_it() {
        let usage = |total: i64| -> Usage {
            let json = format!(
                r#"{{"input":30000,"output":22000,"cache_read":20000,"reasoning":20000,"total_tokens":{total}}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        assert_eq!(reported_tokens(&usage(72_000)), Some(72_000));
        assert_eq!(reported_tokens(&usage(52_000)), Some(52_000));
        let only_answered = r#"{"input":0,"output":500}"#;
        let only_answered: Usage = serde_json::from_str(only_answered).unwrap();
        assert_eq!(reported_tokens(&only_answered), None);
    }

    #[test]
    fn the_tracker_adds_estimates_to_the_last_report() {
        let messages = [
            AgentMessage::from(Message::user("abcd")),
            AgentMessage::from(Message::user("abcdefgh")),
        ];
        let mut tracker = ContextTracker::new();
        assert_eq!(tracker.tokens(&messages, &HeuristicTokenCounter), 11);
        let usage: Usage =
            serde_json::from_str(r#"{"input":100,"output":20,"cache_read":3}"#).unwrap();
        tracker.record(&usage, 1);
        assert_eq!(tracker.tokens(&messages, &HeuristicTokenCounter), 123 + 6);
        tracker.record(
            &Usage {
                input: 0.into(),
                output: 0.into(),
                cache_read: None,
                ..usage
            },
            2,
        );
        assert_eq!(tracker.tokens(&messages, &HeuristicTokenCounter), 123 + 6);
        tracker.reset();
        assert_eq!(tracker.tokens(&messages, &HeuristicTokenCounter), 11);
    }
}
