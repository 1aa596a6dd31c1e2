//! Reads user messages: the words of a person, the results of calls, and the texts of the harness.
//!
//! The program wraps a person's words in elements of its own, but the output of a tool may contain the same elements.
//! So words count as a person's only where no tool output can be: at the beginning of a block that is not a result.

use std::ops::Range;

use loopstore::model::{Author, Content, Json, Message, Text, ToolCall, ToolResultMessage};

use super::content::{TaskBlock, is_failure, result};
use super::words::{ASKING, END, HARNESS, WORDS};
use crate::authors::{mark_injected, split_around};

/// The maximum size of the beginning of a result, in bytes.
const MOST_HEAD: usize = 4_096;

/// A user message, taken apart.
#[derive(Default)]
pub(super) struct PromptText {
    pub(super) results: Vec<ToolResultMessage>,
    pub(super) content: Vec<Content>,
    /// True if the message contains words of a person.
    pub(super) is_prompt: bool,
}

/// A call that waits for its result.
pub(super) struct UnansweredCall {
    id: String,
    name: String,
    /// True if only words of a person can be the result.
    is_end: bool,
}

impl UnansweredCall {
    pub(super) fn of(call: &ToolCall) -> Self {
        let runs = call.arguments.read::<serde_json::Value>();
        let runs = runs.is_ok_and(|arguments| arguments.get("command").is_some());
        Self {
            id: call.id.clone(),
            name: call.name.clone(),
            is_end: call.name == END && !runs,
        }
    }
}

/// Takes a message apart; `open` are the calls of the last answer.
pub(super) fn read_prompt(
    blocks: Vec<TaskBlock<'_>>,
    open: &mut Vec<UnansweredCall>,
) -> Result<PromptText, String> {
    let mut prompt = PromptText::default();
    // The call whose result is in the following blocks.
    let mut bare: Option<UnansweredCall> = None;
    let mut takes_images = false;
    let has_results = blocks.iter().any(|block| match block {
        TaskBlock::Result(_) => true,
        TaskBlock::Text(text) => !open.is_empty() && result_head(text).is_some(),
        TaskBlock::Other(_) => false,
    });
    for block in blocks {
        match block {
            TaskBlock::Result(fields) => {
                prompt.end(bare.take());
                let result = result(&fields)?;
                let at = open.iter().position(|call| call.id == result.tool_call_id);
                let call = at.map(|at| open.remove(at));
                prompt.result(result, call.as_ref());
            }
            TaskBlock::Text(text) => match (bare.take(), result_of(&text, open)) {
                (unanswered, Some((call, rest))) => {
                    prompt.end(unanswered);
                    match rest.trim().is_empty() {
                        true => bare = Some(call),
                        false => prompt.give(call, rest.trim_start_matches(['\n', ' '])),
                    }
                    takes_images = true;
                }
                (Some(call), None) => prompt.give(call, &text),
                (None, None) => {
                    takes_images = false;
                    prompt.text(text, has_results);
                }
            },
            TaskBlock::Other(content) if takes_images => {
                if let Some(call) = bare.take() {
                    prompt.give(call, "");
                }
                if let Some(last) = prompt.results.last_mut() {
                    last.content.push(content);
                }
            }
            TaskBlock::Other(content) => prompt.other(content, has_results),
        }
    }
    prompt.end(bare);
    Ok(prompt)
}

impl PromptText {
    /// Adds a result without content.
    fn end(&mut self, call: Option<UnansweredCall>) {
        if let Some(call) = call {
            self.give(call, "");
        }
    }

    fn give(&mut self, call: UnansweredCall, text: &str) {
        let content = match text.is_empty() {
            true => Vec::new(),
            false => vec![Content::text(text)],
        };
        let result = ToolResultMessage {
            tool_call_id: call.id.clone(),
            is_error: is_failure(&content),
            content,
            ..ToolResultMessage::default()
        };
        self.result(result, Some(&call));
    }

    fn result(&mut self, mut result: ToolResultMessage, call: Option<&UnansweredCall>) {
        let Some(call) = call else {
            self.results.push(result);
            return;
        };
        result.tool_name.clone_from(&call.name);
        let asks = ASKING.iter().find(|(tool, _)| *tool == call.name);
        if let (Some((_, element)), [Content::Text(text)]) = (asks, result.content.as_slice()) {
            let begins = text.text.trim_start().starts_with(&format!("<{element}>"));
            if let Some(own) = begins.then(|| within(&text.text, element)).flatten() {
                result.content = split_around(text, own);
                result.author = Some(Author::Human);
            }
        }
        if let (true, [Content::Text(text)]) = (call.is_end, result.content.as_slice())
            && let Some(own) = own_words(&text.text)
        {
            // The reply of a person to the end of a task is the next prompt.
            let content = std::mem::take(&mut result.content);
            self.is_prompt = true;
            for block in content {
                if let Content::Text(text) = block {
                    self.content.extend(split_around(&text, own.clone()));
                }
            }
        }
        self.results.push(result);
    }

    fn text(&mut self, text: String, has_results: bool) {
        let mut block = Text {
            text,
            extra: Default::default(),
        };
        if let Some(own) = own_words(&block.text) {
            self.is_prompt = true;
            self.content.extend(split_around(&block, own));
            return;
        }
        let begin = block.text.trim_start();
        let is_harness = has_results || HARNESS.iter().any(|words| begin.starts_with(words));
        let is_blank = begin.is_empty();
        self.is_prompt |= !is_harness && !is_blank;
        if block.text.is_empty() {
            block.text.push('\n');
        }
        let mut content = Content::Text(block);
        if is_harness {
            mark_injected(&mut content);
        }
        self.content.push(content);
    }

    fn other(&mut self, mut content: Content, has_results: bool) {
        match &mut content {
            // A file that belongs to a prompt.
            Content::Text(_) => mark_injected(&mut content),
            Content::Image(_) => self.is_prompt |= !has_results,
            _ => {}
        }
        self.content.push(content);
    }
}

/// Returns the range of a person's words in a block that may begin with them.
fn own_words(text: &str) -> Option<Range<usize>> {
    let begin = text.trim_start();
    let (_, element) = WORDS.iter().find(|(words, _)| begin.starts_with(words))?;
    within(text, element)
}

/// Returns the range of the text in the first element of this name. The text after its first closing tag may be by
/// anyone.
fn within(text: &str, element: &str) -> Option<Range<usize>> {
    let open = text.find(&format!("<{element}"))?;
    let begin = open + text[open..].find('>')? + 1;
    let end = text[begin..].find(&format!("</{element}>"));
    let end = end.map_or(text.len(), |end| begin + end);
    let words = text[begin..end].trim();
    let start = begin + text[begin..end].len() - text[begin..end].trim_start().len();
    (!words.is_empty()).then(|| start..start + words.len())
}

/// Splits the beginning of a result, `[tool for 'what'] Result:`, into the name of the tool and the rest.
fn result_head(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let rest = text.strip_prefix('[')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = &rest[..rest.find(|c| !is_name(c))?];
    let end = rest.find("] Result:").filter(|end| *end < MOST_HEAD)?;
    (!name.is_empty() && name != "ERROR").then(|| (name, &rest[end + "] Result:".len()..]))
}

/// Returns the call that a text is the result of, and the result. If no open call has the tool's name, it is the next
/// open call: tools of MCP servers are called by other names.
fn result_of<'t>(
    text: &'t str,
    open: &mut Vec<UnansweredCall>,
) -> Option<(UnansweredCall, &'t str)> {
    let (name, rest) = result_head(text)?;
    let named = open.iter().position(|call| call.name == name);
    let at = named.or((!open.is_empty()).then_some(0))?;
    Some((open.remove(at), rest))
}

/// Returns the replacement of hidden messages as messages of the harness.
pub(super) fn summary_of(messages: &Json) -> Vec<Message> {
    let listed: Vec<serde_json::Value> = messages.read().unwrap_or_default();
    let text = |message: &serde_json::Value| {
        let content = &message["content"];
        let blocks = content.as_array().into_iter().flatten();
        let texts = blocks.filter_map(|block| block["text"].as_str());
        let text = content
            .as_str()
            .into_iter()
            .chain(texts)
            .collect::<Vec<_>>();
        let text = text.join("\n");
        let is_answer = message["role"] == "assistant";
        (!text.trim().is_empty()).then(|| match is_answer {
            true => Message::assistant(text),
            false => Message::user(text).with_author(Author::Harness),
        })
    };
    listed.iter().filter_map(text).collect()
}
