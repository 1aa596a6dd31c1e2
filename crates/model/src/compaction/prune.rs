//! Pruning: what goes from the turns kept at the end when a compaction does not fit.

use super::policy::Budget;
use crate::tokens::{TokenCounter, image_bytes};
use crate::{AgentMessage, Content, Image, Message, blob_id};

/// What is pruned of a message.
///
/// ```
/// use loopstore_model::compaction::{Pruned, Pruning};
/// use loopstore_model::tokens::HeuristicTokenCounter;
/// use loopstore_model::{AssistantMessage, Content, Message};
///
/// let content = vec![Content::thinking("Hm.", None), Content::text("It rains.")];
/// let answer = Message::Assistant(AssistantMessage { content, ..AssistantMessage::default() });
/// let pruning = Pruning { thinking: true, images: false, output_tokens: None };
/// let Pruned::Shorter(left) = pruning.prune(&answer.into(), &HeuristicTokenCounter) else {
///     panic!("the thinking goes");
/// };
/// assert_eq!(left.message().map(Message::content), Some(&[Content::text("It rains.")][..]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruning {
    /// Thinking goes. Providers demand it back only after the last user message.
    pub thinking: bool,
    /// Images become references.
    pub images: bool,
    /// Tokens that a tool result may have; `None`: any number.
    pub output_tokens: Option<u64>,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Pruned {
    /// It stays as it is.
    Whole,
    /// This is left of it.
    Shorter(Box<AgentMessage>),
    /// Nothing is left of it.
    Gone,
}

impl Pruning {
    /// Prunes a message. A call and its result never go.
    pub fn prune(&self, message: &AgentMessage, counter: &dyn TokenCounter) -> Pruned {
        let mut left = message.clone();
        let Some(inner) = left.message_mut() else {
            return Pruned::Whole;
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
        if !is_result && says_nothing(inner) {
            return Pruned::Gone;
        }
        if let (true, Some(most)) = (is_result, self.output_tokens) {
            cut_output(&mut left, most, counter);
        }
        if left == *message {
            Pruned::Whole
        } else {
            Pruned::Shorter(left.into())
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

/// Whether a message has nothing that a provider would take.
#[doc(hidden)]
pub fn says_nothing(message: &Message) -> bool {
    message.content().iter().all(is_empty)
}

/// A tool output: its tokens, and its bytes of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSize {
    /// Tokens.
    pub tokens: u64,
    /// Bytes.
    pub bytes: u64,
}

impl OutputSize {
    /// Returns what is left of it with at most `cap` tokens; its bytes shrink as its tokens do.
    pub fn capped(self, cap: Option<u64>) -> Self {
        let tokens = cap.map_or(self.tokens, |cap| self.tokens.min(cap));
        let bytes = u128::from(self.bytes) * u128::from(tokens) / u128::from(self.tokens.max(1));
        Self {
            tokens,
            bytes: bytes as u64,
        }
    }
}

/// Returns how many tokens each of some outputs may have so that all of them together fit `room`,
/// but not less than `least`: the longest are cut first, all to the same size. `None` if none has
/// to be cut.
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

/// Cuts the middle out of a text, so that about `part` of `whole` are left with the mark.
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

/// Returns what stands in place of an image: its media type, its size, and the blob that holds it,
/// for `loopstore expand --blob`.
pub fn image_reference(image: &Image) -> String {
    format!("[image: {}]", image_facts(image))
}

/// Returns an image's media type, size and blob.
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

    fn prune(message: &AgentMessage) -> Pruned {
        ALL.prune(message, &HeuristicTokenCounter)
    }

    #[test]
    fn thinking_goes_and_calls_stay() {
        let thinking = Content::thinking("hm", Some("signed".into()));
        let call = Content::tool_call("c", "ls", Json::null());
        let both = answer(vec![thinking.clone(), call.clone()]);
        assert_eq!(prune(&both), Pruned::Shorter(answer(vec![call]).into()));
        assert_eq!(prune(&answer(vec![thinking])), Pruned::Gone);
        let kept = Pruning {
            thinking: false,
            ..ALL
        };
        assert_eq!(kept.prune(&both, &HeuristicTokenCounter), Pruned::Whole);
    }

    #[test]
    fn empty_messages_go_but_never_a_result() {
        assert_eq!(prune(&Message::user(" \n").into()), Pruned::Gone);
        assert_eq!(prune(&answer(vec![])), Pruned::Gone);
        assert_eq!(prune(&result(vec![])), Pruned::Whole);
        assert_eq!(prune(&Message::user("x").into()), Pruned::Whole);
    }

    #[test]
    fn images_become_references() {
        let image = answer(vec![Content::image("aGVsbG8=", "image/png")]);
        let Pruned::Shorter(left) = prune(&image) else {
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
            let Pruned::Shorter(left) = prune(&long) else {
                panic!("not shortened");
            };
            assert!(HeuristicTokenCounter.message_tokens(&left) <= 40);
            let cut = left.message().unwrap().texts().next().unwrap().to_owned();
            assert!(cut.contains("bytes pruned"), "{cut}");
            assert!(text.starts_with(cut.split('\n').next().unwrap()));
        }
        assert_eq!(prune(&result(vec![Content::text("ok")])), Pruned::Whole);
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
