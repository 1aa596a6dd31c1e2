//! Pruning: the removal of parts of kept turns if the result of a compaction does not fit.

use super::policy::Budget;
use crate::tokens::{TokenCounter, image_bytes};
use crate::{AgentMessage, Content, Image, Message, blob_id};

/// The parts of a message that are pruned.
///
/// ```
/// use loopstore_model::compaction::{PrunedMessage, Pruning};
/// use loopstore_model::tokens::HeuristicTokenCounter;
/// use loopstore_model::{AssistantMessage, Content, Message};
///
/// let content = vec![Content::thinking("Hm.", None), Content::text("It rains.")];
/// let answer = Message::Assistant(AssistantMessage { content, ..AssistantMessage::default() });
/// let pruning = Pruning { thinking: true, images: false, output_tokens: None };
/// let PrunedMessage::Shorter(left) = pruning.prune(&answer.into(), &HeuristicTokenCounter) else {
///     panic!("the thinking goes");
/// };
/// assert_eq!(left.message().map(Message::content), Some(&[Content::text("It rains.")][..]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruning {
    /// Thinking is removed. Providers require it only after the last user message.
    pub thinking: bool,
    /// Images are replaced by references.
    pub images: bool,
    /// The most tokens of a tool result; `None` for no limit.
    pub output_tokens: Option<u64>,
}

/// The result of pruning a message.
#[derive(Clone, Debug, PartialEq)]
pub enum PrunedMessage {
    /// The message has nothing to prune.
    Whole,
    /// The message without the pruned parts.
    Shorter(Box<AgentMessage>),
    /// Nothing is left of the message.
    Gone,
}

impl Pruning {
    /// Prunes a message. A call or a tool result is never removed.
    pub fn prune(&self, message: &AgentMessage, counter: &dyn TokenCounter) -> PrunedMessage {
        let mut left = message.clone();
        let Some(inner) = left.message_mut() else {
            return PrunedMessage::Whole;
        };
        if self.thinking && matches!(inner, Message::Assistant(_)) {
            inner.content_mut().retain(|block| !block.is_thinking());
        }
        if self.images {
            for block in inner.content_mut() {
                if let Content::Image(image) = block {
                    *block = Content::text(image_reference(image));
                }
            }
        }
        let is_result = matches!(inner, Message::ToolResult(_));
        if !is_result && has_no_content(inner) {
            return PrunedMessage::Gone;
        }
        if let (true, Some(most)) = (is_result, self.output_tokens) {
            cut_output(&mut left, most, counter);
        }
        if left == *message {
            PrunedMessage::Whole
        } else {
            PrunedMessage::Shorter(left.into())
        }
    }
}

/// Cuts the texts of a tool result, the longest first, until it has at most `most` tokens.
fn cut_output(result: &mut AgentMessage, most: u64, counter: &dyn TokenCounter) {
    let length = |block: &Content| match block {
        Content::Text(text) => text.text.len(),
        _ => 0,
    };
    let blocks = result.message().map_or(&[][..], Message::content);
    let mut longest_first: Vec<usize> = (0..blocks.len()).collect();
    longest_first.sort_by_key(|at| std::cmp::Reverse(length(&blocks[*at])));
    for at in longest_first {
        let excess = counter.message_tokens(result).saturating_sub(most);
        let block = result.message_mut().map(|m| &mut m.content_mut()[at]);
        if let (1.., Some(Content::Text(text))) = (excess, block) {
            let tokens = counter.text_tokens(&text.text).max(1);
            let cut = cut_middle(&text.text, tokens.saturating_sub(excess), tokens);
            if cut.len() < text.text.len() {
                text.text = cut;
            }
        }
    }
}

/// True if a message has no content that a provider accepts.
#[doc(hidden)]
pub fn has_no_content(message: &Message) -> bool {
    message.content().iter().all(is_empty)
}

/// The size of a tool output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSize {
    /// Tokens.
    pub tokens: u64,
    /// Bytes of JSON.
    pub bytes: u64,
}

impl OutputSize {
    /// Returns the size with at most `cap` tokens; the bytes are reduced in proportion.
    pub fn capped(self, cap: Option<u64>) -> Self {
        let tokens = cap.map_or(self.tokens, |cap| self.tokens.min(cap));
        let bytes = u128::from(self.bytes) * u128::from(tokens) / u128::from(self.tokens.max(1));
        Self {
            tokens,
            bytes: bytes as u64,
        }
    }
}

/// Returns the most tokens of each output with which all outputs together fit `room`, but at least `least`. Outputs
/// with more tokens are cut to this size. `None` if all outputs fit uncut.
pub fn output_cap(outputs: &[OutputSize], room: Budget, least: u64) -> Option<u64> {
    let fits = |cap: Option<u64>| {
        let all = outputs.iter().map(|output| output.capped(cap));
        let (tokens, bytes) = all.fold((0u64, 0u64), |(tokens, bytes), output| {
            (
                tokens.saturating_add(output.tokens),
                bytes.saturating_add(output.bytes),
            )
        });
        tokens <= room.tokens && room.bytes.is_none_or(|most| bytes <= most)
    };
    if fits(None) {
        return None;
    }
    let longest = outputs.iter().map(|output| output.tokens).max();
    let (mut low, mut high) = (least, longest.unwrap_or(least).max(least));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(Some(middle)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(low)
}

/// Returns a text without its middle, so that about `part` of `whole` tokens are left with the mark.
fn cut_middle(text: &str, part: u64, whole: u64) -> String {
    const MARK_BYTES: usize = 40;
    let keep = (text.len() as u128 * u128::from(part) / u128::from(whole)) as usize;
    let keep = keep.saturating_sub(MARK_BYTES);
    let head = text.floor_char_boundary(keep / 2);
    let tail = text.ceil_char_boundary(text.len() - (keep - keep / 2).min(text.len() - head));
    let gone = tail - head;
    let (head, tail) = (&text[..head], &text[tail..]);
    format!("{head}\n[... {gone} bytes pruned ...]\n{tail}")
}

fn is_empty(block: &Content) -> bool {
    match block {
        Content::Text(text) => text.text.trim().is_empty(),
        Content::Thinking(thinking) => {
            thinking.thinking.trim().is_empty() && thinking.signature.is_none()
        }
        Content::Image(_) | Content::ToolCall(_) | Content::Sealed(_) | Content::Other(_) => false,
    }
}

/// Returns the text that replaces an image: its media type, its size, and the id of its blob for
/// `loopstore expand --blob`.
pub fn image_reference(image: &Image) -> String {
    format!("[image: {}]", image_facts(image))
}

/// Returns the media type, size and blob id of an image.
#[doc(hidden)]
pub fn image_facts(image: &Image) -> String {
    let blob = blob_id(image).map_or(String::new(), |blob| format!(", blob {blob}"));
    format!("{}, {} bytes{blob}", image.mime_type, image_bytes(image))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::HeuristicTokenCounter;
    use crate::{AssistantMessage, Json, ToolResultMessage};

    const ALL: Pruning = Pruning {
        thinking: true,
        images: true,
        output_tokens: Some(40),
    };

    fn answer(content: Vec<Content>) -> AgentMessage {
        Message::Assistant(AssistantMessage {
            content,
            ..Default::default()
        })
        .into()
    }

    fn result(content: Vec<Content>) -> AgentMessage {
        Message::ToolResult(ToolResultMessage {
            tool_call_id: "c".into(),
            content,
            ..Default::default()
        })
        .into()
    }

    fn prune(message: &AgentMessage) -> PrunedMessage {
        ALL.prune(message, &HeuristicTokenCounter)
    }

    #[test]
    fn thinking_goes_and_calls_stay() {
        let thinking = Content::thinking("hm", Some("signed".into()));
        let call = Content::tool_call("c", "ls", Json::null());
        let both = answer(vec![thinking.clone(), call.clone()]);
        assert_eq!(
            prune(&both),
            PrunedMessage::Shorter(answer(vec![call]).into())
        );
        assert_eq!(prune(&answer(vec![thinking])), PrunedMessage::Gone);
        let kept = Pruning {
            thinking: false,
            ..ALL
        };
        assert_eq!(
            kept.prune(&both, &HeuristicTokenCounter),
            PrunedMessage::Whole
        );
    }

    #[test]
    fn empty_messages_go_but_never_a_result() {
        assert_eq!(prune(&Message::user(" \n").into()), PrunedMessage::Gone);
        assert_eq!(prune(&answer(vec![])), PrunedMessage::Gone);
        assert_eq!(prune(&result(vec![])), PrunedMessage::Whole);
        assert_eq!(prune(&Message::user("x").into()), PrunedMessage::Whole);
    }

    #[test]
    fn images_become_references() {
        let image = answer(vec![Content::image("aGVsbG8=", "image/png")]);
        let PrunedMessage::Shorter(left) = prune(&image) else {
            panic!("not shortened");
        };
        let text: String = left.message().unwrap().texts().collect();
        assert_eq!(
            text,
            "[image: image/png, 5 bytes, blob \
             2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824]"
        );
    }

    #[test]
    fn outputs_fit_whatever_their_letters() {
        for text in ["x".repeat(4000), "退款".repeat(900), "🦀".repeat(999)] {
            let long = result(vec![Content::text(&text), Content::text("short")]);
            let PrunedMessage::Shorter(left) = prune(&long) else {
                panic!("not shortened");
            };
            assert!(HeuristicTokenCounter.message_tokens(&left) <= 40);
            let cut = left.message().unwrap().texts().next().unwrap().to_owned();
            assert!(cut.contains("bytes pruned"), "{cut}");
            assert!(text.starts_with(cut.split('\n').next().unwrap()));
        }
        assert_eq!(
            prune(&result(vec![Content::text("ok")])),
            PrunedMessage::Whole
        );
    }

    #[test]
    fn the_longest_outputs_are_cut_first() {
        let outputs = |sizes: &[u64]| -> Vec<OutputSize> {
            let output = |tokens: &u64| OutputSize {
                tokens: *tokens,
                bytes: tokens * 4,
            };
            sizes.iter().map(output).collect()
        };
        let cap = |sizes: &[u64], tokens, bytes| {
            output_cap(&outputs(sizes), Budget { tokens, bytes }, 10)
        };
        assert_eq!(cap(&[100, 500, 900], 1100, None), Some(500));
        assert_eq!(cap(&[100, 500, 900], 900, None), Some(400));
        assert_eq!(cap(&[100, 500, 900], 0, None), Some(10));
        assert_eq!(cap(&[100], 100, None), None);
        assert_eq!(cap(&[], 0, Some(0)), None);
        assert_eq!(cap(&[100, 500, 900], 9999, Some(3600)), Some(400));
        assert_eq!(cap(&[100, 500, 900], 1100, Some(3600)), Some(400));
    }
}
