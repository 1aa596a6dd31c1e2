//! The text of a message, as plain text in pieces.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use crate::model::{AgentMessage, Author, Content, Message, Role, author};
use crate::store::index::IndexEntry;
use crate::words::stems::{Stems, each_part};
use crate::words::{BREAK, each_word};

/// The kind of a piece of a message, which decides the weight of a word in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextField {
    /// The title of a session.
    Title,
    /// The prompt of a person.
    Prompt,
    /// Text of the program around the agent.
    Harness,
    /// Text of the agent.
    Statement,
    /// Thinking of the agent.
    Thinking,
    /// The name of a tool and its arguments.
    Call,
    /// The name of the tool that a result is of.
    Name,
    /// The output of a tool.
    Output,
    /// Notes that are no messages.
    Note,
}

impl TextField {
    /// Returns the kind of the texts of a message.
    pub(super) fn of(role: Role, author: Author) -> Self {
        match (role, author) {
            (Role::User, Author::Human) => Self::Prompt,
            (Role::User, _) => Self::Harness,
            (Role::Assistant, _) => Self::Statement,
            (Role::ToolResult, _) => Self::Output,
            (Role::Extension, _) => Self::Note,
        }
    }

    /// Returns the weight of a word in it. Searches are mostly for prompts and answers; bulk
    /// output contains every word some time.
    pub(super) fn weight(self) -> f64 {
        match self {
            Self::Title => 5.0,
            Self::Prompt => 4.0,
            Self::Statement | Self::Name => 3.0,
            Self::Call => 1.0,
            Self::Thinking | Self::Harness | Self::Output => 0.5,
            Self::Note => 0.25,
        }
    }
}

/// A piece of a message; no phrase reaches from one into the next.
#[derive(Debug)]
pub(super) struct TextPiece {
    pub(super) field: TextField,
    pub(super) text: String,
}

/// The text of a message, and the names of the tools that it calls or has results of.
#[derive(Debug, Default)]
pub(super) struct MessageText {
    pub(super) pieces: Vec<TextPiece>,
    pub(super) tools: Vec<String>,
}

/// The kinds of extensions without text of their own: a log of events, and the
/// state of an agent's framework.
const UNSEARCHED: [&str; 4] = [
    "phi-core-event",
    "langgraph.checkpoint",
    "langgraph.writes",
    "langgraph.deleted",
];

/// Returns the searched text of a message: texts and thinking, names and arguments of tools, results,
/// and the content of other blocks and extensions. Images, signatures and logged events are left
/// out.
pub(super) fn message_text(message: AgentMessage, author: Author) -> MessageText {
    let mut message_text = MessageText::default();
    match message {
        AgentMessage::Extension(extension) if UNSEARCHED.contains(&&*extension.kind) => {}
        AgentMessage::Extension(extension) => {
            message_text.push(TextField::Note, extension.kind);
            message_text.push(TextField::Note, extension.data.plain_text());
        }
        AgentMessage::Llm(llm) => {
            let mut message = llm.message;
            let field = TextField::of(message.role(), author);
            if let Message::ToolResult(result) = &message {
                message_text.push(TextField::Name, result.tool_name.clone());
                message_text.tools.push(result.tool_name.clone());
            }
            for block in message.content_mut().drain(..) {
                message_text.add(field, block);
            }
        }
    }
    message_text
}

impl MessageText {
    pub(super) fn push(&mut self, field: TextField, text: String) {
        self.pieces.push(TextPiece { field, text });
    }

    fn add(&mut self, field: TextField, block: Content) {
        match block {
            Content::Text(text) if author::is_injected(&text) => {
                self.push(TextField::Harness, text.text);
            }
            Content::Text(text) => self.push(field, text.text),
            Content::Thinking(thinking) => self.push(TextField::Thinking, thinking.thinking),
            Content::ToolCall(call) => {
                let text = format!("{} {}", call.name, call.arguments.plain_text());
                self.push(TextField::Call, text);
                self.tools.push(call.name);
            }
            Content::Image(_) => {}
            Content::Sealed(sealed) => {
                if let Some(text) = sealed.readable() {
                    self.push(TextField::Thinking, text);
                }
            }
            Content::Other(block) => self.push(TextField::Note, block.plain_text()),
        }
    }

    /// Returns the words for the index, and after them their stems and parts, unless these are among the words.
    /// Before the words they would move every word to a larger position, which takes more bytes in the index. Stems
    /// of extensions are left out: they would be a third of all stems in recorded sessions, and are rarely searched.
    pub(super) fn entry(self, seq: u32, stems: &Stems) -> IndexEntry {
        let mut words = String::new();
        let mut known: HashSet<String> = HashSet::new();
        let mut forms: BTreeSet<String> = BTreeSet::new();
        for TextPiece { field, text } in &self.pieces {
            part(&mut words);
            each_word(text, &mut |word, place| {
                push(&mut words, word);
                if *field == TextField::Note {
                    return;
                }
                each_part(&text[place], &mut |part| {
                    forms.insert(stems.of(part).into_owned());
                });
                if known.contains(word) {
                    return;
                }
                known.insert(word.to_owned());
                if let Cow::Owned(stem) = stems.of(word) {
                    forms.insert(stem);
                }
            });
        }
        // In order, so that the same message always makes the same entry.
        forms.retain(|form| !known.contains(form));
        if !forms.is_empty() {
            part(&mut words);
        }
        forms.iter().for_each(|form| push(&mut words, form));
        IndexEntry {
            seq,
            words,
            tools: self.tools,
        }
    }
}

/// Adds words, a space before them.
fn push(to: &mut String, words: &str) {
    if !to.is_empty() && !words.is_empty() {
        to.push(' ');
    }
    to.push_str(words);
}

/// Separates words before and after.
fn part(words: &mut String) {
    if !words.is_empty() && !words.ends_with(BREAK) {
        push(words, BREAK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_parted_and_forms_stand_behind() {
        let piece = |text: &str| TextPiece {
            field: TextField::Statement,
            text: text.into(),
        };
        let message_text = MessageText {
            pieces: vec![piece("One two"), piece(""), piece("runs getUserName name")],
            tools: vec!["ls".into()],
        };
        let entry = message_text.entry(3, &Stems::default());
        assert_eq!(
            entry.words,
            "one two ¶ runs getusername name ¶ get getusernam run user"
        );
    }
}
