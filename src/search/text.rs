//! What a message says, as plain text in pieces.

use serde::de::IgnoredAny;

use super::words::{BREAK, each_word};
use crate::model::{AgentMessage, Content, Json, Message};
use crate::store::index::IndexEntry;

/// What a message says, and the tools that it calls or answers for.
#[derive(Debug, Default)]
pub(super) struct MessageText {
    pub(super) pieces: Vec<String>,
    pub(super) tools: Vec<String>,
}

/// The kind of the extensions of a log of events: copies of what is said elsewhere, again and again.
const LOGGED: &str = "phi-core-event";

/// Returns what is searched of a message: texts and thinking, names and arguments of tools, results,
/// and what stands in blocks and notes of other kinds. Images, signatures and logged events are left
/// out.
pub(super) fn message_text(message: AgentMessage) -> MessageText {
    let mut message_text = MessageText::default();
    match message {
        AgentMessage::Extension(extension) if extension.kind == LOGGED => {}
        AgentMessage::Extension(extension) => {
            message_text.pieces.push(extension.kind);
            message_text.pieces.push(plain(&extension.data));
        }
        AgentMessage::Llm(llm) => {
            let mut message = llm.message;
            if let Message::ToolResult(result) = &message {
                message_text.pieces.push(result.tool_name.clone());
                message_text.tools.push(result.tool_name.clone());
            }
            for block in message.content_mut().drain(..) {
                message_text.add(block);
            }
        }
    }
    message_text
}

impl MessageText {
    fn add(&mut self, block: Content) {
        match block {
            Content::Text(text) => self.pieces.push(text.text),
            Content::Thinking(thinking) => self.pieces.push(thinking.thinking),
            Content::ToolCall(call) => {
                self.pieces
                    .push(format!("{} {}", call.name, plain(&call.arguments)));
                self.tools.push(call.name);
            }
            Content::Image(_) => {}
            Content::Other(block) => self.pieces.push(plain(&block)),
        }
    }

    /// Returns the words for the index.
    pub(super) fn entry(self, seq: u32) -> IndexEntry {
        let mut words = String::new();
        for piece in &self.pieces {
            if !words.is_empty() && !words.ends_with(BREAK) {
                words.push(' ');
                words.push_str(BREAK);
            }
            each_word(piece, &mut |word, _| {
                if !words.is_empty() {
                    words.push(' ');
                }
                words.push_str(word);
            });
        }
        IndexEntry {
            seq,
            words,
            tools: self.tools,
        }
    }
}

/// Returns the names and values of JSON without its punctuation: `path: src/a.rs, line: 3`.
pub(super) fn plain(json: &Json) -> String {
    let text = json.as_str();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let length = match c {
            '"' => string(&text[at..], &mut out),
            _ => {
                match c {
                    '{' | '[' => {}
                    '}' | ']' => {}
                    ':' => out.push_str(": "),
                    ',' => out.push_str(", "),
                    c => out.push(c),
                }
                c.len_utf8()
            }
        };
        at += length;
    }
    out
}

/// Adds the string that `text` begins with, and returns its length in the text.
fn string(text: &str, out: &mut String) -> usize {
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    if let Some(Ok(string)) = strings.next() {
        out.push_str(&string);
        return strings.byte_offset();
    }
    // Half of a surrogate pair: no text, but JSON.
    let mut any = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let is_one = matches!(any.next(), Some(Ok(_)));
    let end = if is_one {
        any.byte_offset()
    } else {
        text.len()
    };
    out.push_str(&text[..end]);
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_names_and_values() {
        let json = r#"{"path":"src/\"a\".rs","lines":[1.50,2],"text":"a\nb","on":true,"no":{}}"#;
        let json = Json::parse(json).unwrap();
        let plain = plain(&json);
        assert_eq!(
            plain,
            "path: src/\"a\".rs, lines: 1.50, 2, text: a\nb, on: true, no: "
        );
    }

    #[test]
    fn what_is_no_string_ends_with_the_text() {
        for (text, length) in [("\"abc", 4), ("\"a\\ud800b\",1", 10), ("\"é\",1", 4)] {
            assert_eq!(string(text, &mut String::new()), length, "{text}");
        }
    }

    #[test]
    fn pieces_are_parted() {
        let message_text = MessageText {
            pieces: vec!["One two".into(), String::new(), "three".into()],
            tools: vec!["ls".into()],
        };
        assert_eq!(message_text.entry(3).words, "one two ¶ three");
    }
}
