//! The parts of a turn as people read them: words, tool calls with their results, changes of files.

use std::collections::HashMap;

use loopstore::extend::compaction::CallEffects;
use loopstore::model::author::{is_injected, without_frames};
use loopstore::model::{AssistantMessage, Author, ToolResultMessage};
use loopstore::{AgentMessage, Content, LoopId, Message, Time};
use loopstore_admin::inspect::{ChangedFile, changed_files};
use loopstore_admin::replay::ReplayedTurn;
use serde::Serialize;

/// A turn, or the messages that were added to a turn.
#[derive(Debug, Serialize)]
pub struct ReadTurn {
    /// The loop.
    pub loop_id: LoopId,
    /// The turn.
    pub turn: u32,
    /// The first and the last sequence of its messages.
    pub seqs: [u32; 2],
    /// The time of the first message that has one.
    pub at: Option<String>,
    /// Its parts in order.
    pub entries: Vec<ReadEntry>,
}

/// A part of a turn.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReadEntry {
    /// A text of a person, an agent or the harness.
    Text {
        role: &'static str,
        author: &'static str,
        text: String,
    },
    /// The thinking of a model.
    Thinking { text: String },
    /// A tool call, with its result if the turn has it.
    Call(CallEntry),
    /// The result of a call of an earlier message.
    Result(ResultEntry),
    /// An image.
    Image { mime_type: String, bytes: u64 },
    /// Content that only its provider can read, or a block of an unknown kind.
    Opaque { label: String },
    /// An error in place of an answer.
    Error { text: String },
    /// An extension: it never enters a context.
    Note { name: String, text: String },
}

/// A tool call.
#[derive(Debug, Serialize)]
pub struct CallEntry {
    pub tool_call_id: String,
    pub tool: String,
    /// One line: the command, or the tool and its main argument.
    pub description: String,
    /// The arguments by name, as text.
    pub arguments: Vec<Argument>,
    /// The files that the call changes.
    pub changes: Vec<ChangedFile>,
    pub result: Option<ResultEntry>,
}

/// An argument of a call.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Argument {
    pub name: String,
    pub text: String,
}

/// The result of a call.
#[derive(Debug, Serialize)]
pub struct ResultEntry {
    pub tool_call_id: String,
    pub tool: String,
    pub failed: bool,
    pub bytes: u64,
    pub lines: u64,
    pub text: String,
}

/// Returns the parts of the messages of a turn from the message `start`.
pub fn turn_entry(turn: &ReplayedTurn, start: usize) -> ReadTurn {
    let mut reader = ReadTurns::default();
    let messages = turn.messages.iter().zip(&turn.times).skip(start);
    let mut at = None;
    for (message, time) in messages {
        at = at.or(*time);
        reader.add(message);
    }
    let last = turn.messages.len().max(1) - 1;
    ReadTurn {
        loop_id: turn.loop_id.clone(),
        turn: turn.turn,
        seqs: [start, last].map(|at| turn.first_seq.saturating_add(at as u32)),
        at: at
            .and_then(Time::from_millis)
            .map(|time| time.as_str().to_owned()),
        entries: reader.entries,
    }
}

#[derive(Default)]
struct ReadTurns {
    entries: Vec<ReadEntry>,
    /// The entries of calls without a result, by the id of the call.
    open: HashMap<String, usize>,
}

impl ReadTurns {
    fn add(&mut self, message: &AgentMessage) {
        match message {
            AgentMessage::Extension(note) => self.entries.push(ReadEntry::Note {
                name: note.kind.clone(),
                text: note.data.as_str().to_owned(),
            }),
            AgentMessage::Llm(llm) => match &llm.message {
                Message::User(_) => self.prompt(&llm.message),
                Message::Assistant(answer) => self.answer(&llm.message, answer),
                Message::ToolResult(result) => self.result(result),
            },
        }
    }

    fn text(&mut self, role: &'static str, author: Author, text: &str) {
        if !text.trim().is_empty() {
            self.entries.push(ReadEntry::Text {
                role,
                author: author.as_str(),
                text: text.to_owned(),
            });
        }
    }

    /// Adds a prompt: the words of its author, and the text that the harness put around them.
    fn prompt(&mut self, message: &Message) {
        let author = message.author();
        for block in message.content() {
            let Content::Text(text) = block else {
                self.block(block);
                continue;
            };
            if author == Author::Harness || is_injected(text) {
                self.text("user", Author::Harness, &text.text);
                continue;
            }
            let own = without_frames(&text.text);
            // A part of the text itself.
            let begin = own.as_ptr() as usize - text.text.as_ptr() as usize;
            self.text("user", Author::Harness, &text.text[..begin]);
            self.text("user", author, own);
            self.text("user", Author::Harness, &text.text[begin + own.len()..]);
        }
    }

    fn answer(&mut self, message: &Message, answer: &AssistantMessage) {
        let mut calls = 0;
        for block in message.content() {
            match block {
                Content::Text(text) => self.text("assistant", message.author(), &text.text),
                Content::ToolCall(call) => {
                    let changes = changed_files(message, calls);
                    calls += 1;
                    self.open.insert(call.id.clone(), self.entries.len());
                    self.entries.push(ReadEntry::Call(CallEntry {
                        tool_call_id: call.id.clone(),
                        tool: call.name.clone(),
                        description: CallEffects::of(call).description,
                        arguments: arguments(call.arguments.as_str()),
                        changes,
                        result: None,
                    }));
                }
                other => self.block(other),
            }
        }
        if let Some(error) = &answer.error_message {
            let text = error.clone();
            self.entries.push(ReadEntry::Error { text });
        }
    }

    fn result(&mut self, message: &ToolResultMessage) {
        let texts = message.content.iter().filter_map(|block| match block {
            Content::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        let result = ResultEntry {
            tool_call_id: message.tool_call_id.clone(),
            tool: message.tool_name.clone(),
            failed: message.is_error,
            bytes: text.len() as u64,
            lines: text.lines().count() as u64,
            text,
        };
        let call = self.open.remove(&message.tool_call_id);
        match call.and_then(|at| self.entries.get_mut(at)) {
            Some(ReadEntry::Call(call)) => call.result = Some(result),
            _ => self.entries.push(ReadEntry::Result(result)),
        }
        for words in message.texts_of_person() {
            self.text("user", Author::Human, without_frames(words));
        }
        for block in &message.content {
            if !matches!(block, Content::Text(_)) {
                self.block(block);
            }
        }
    }

    /// Adds content other than text and calls.
    fn block(&mut self, block: &Content) {
        self.entries.push(match block {
            Content::Thinking(thinking) if thinking.thinking.trim().is_empty() => return,
            Content::Thinking(thinking) => ReadEntry::Thinking {
                text: thinking.thinking.clone(),
            },
            Content::Image(image) => ReadEntry::Image {
                mime_type: image.mime_type.clone(),
                bytes: image.data.len() as u64 / 4 * 3,
            },
            Content::Sealed(sealed) => ReadEntry::Opaque {
                label: sealed.to_string(),
            },
            Content::Other(json) => ReadEntry::Opaque {
                label: json.type_name().unwrap_or_else(|| "block".into()),
            },
            // These have entries of their own.
            Content::Text(_) | Content::ToolCall(_) => return,
        });
    }
}

/// Returns the arguments of a call by name: texts as they are, other values as JSON.
fn arguments(json: &str) -> Vec<Argument> {
    use serde_json::Value;
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Object(_) | Value::Array(_) => serde_json::to_string_pretty(&value)
            // A parsed value can be written.
            .unwrap_or_default(),
        other => other.to_string(),
    };
    let argument = |name: String, text: String| Argument { name, text };
    match serde_json::from_str(json) {
        Ok(Value::Object(fields)) => fields
            .into_iter()
            .map(|(name, value)| argument(name, text(value)))
            .collect(),
        Ok(Value::Null) => Vec::new(),
        Ok(value) => vec![argument(String::new(), text(value))],
        Err(_) => vec![argument(String::new(), json.to_owned())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(messages: Vec<AgentMessage>) -> ReplayedTurn {
        ReplayedTurn {
            loop_id: LoopId::of("ask"),
            turn: 1,
            first_seq: 4,
            times: messages.iter().map(|_| Some(0)).collect(),
            messages,
            answer_seq: None,
            context: None,
        }
    }

    fn call(id: &str) -> AgentMessage {
        let arguments = serde_json::json!({"command": "ls", "timeout": 5});
        Message::assistant("")
            .with_tool_call(id, "Bash", arguments)
            .into()
    }

    #[test]
    fn the_words_of_a_person_are_parted_from_those_of_the_harness() {
        let text = "<system-reminder>Be brief.</system-reminder>\nWill it rain?";
        let entry = turn_entry(&turn(vec![Message::user(text).into()]), 0);
        let authors = entry.entries.iter().map(|entry| match entry {
            ReadEntry::Text { author, text, .. } => (*author, text.as_str()),
            other => panic!("{other:?}"),
        });
        let authors: Vec<_> = authors.collect();
        assert_eq!(authors[0].0, "harness");
        assert_eq!(authors[1], ("human", "Will it rain?"));
        assert_eq!(entry.at.as_deref(), Some("1970-01-01T00:00:00Z"));
    }

    #[test]
    fn a_result_belongs_to_its_call_and_a_late_one_stands_alone() {
        let messages = vec![call("c1"), Message::tool_result("c1", "a\nb").into()];
        let entry = turn_entry(&turn(messages.clone()), 0);
        let [ReadEntry::Call(one)] = entry.entries.as_slice() else {
            panic!("{entry:?}");
        };
        let result = one.result.as_ref().unwrap();
        assert_eq!((result.bytes, result.lines), (3, 2));
        let names: Vec<_> = one.arguments.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["command", "timeout"]);
        assert_eq!(entry.seqs, [4, 5]);
        // Only what was added.
        let entry = turn_entry(&turn(messages), 1);
        assert_eq!(entry.seqs, [5, 5]);
        assert!(matches!(entry.entries.as_slice(), [ReadEntry::Result(_)]));
    }

    #[test]
    fn a_call_id_that_is_used_again_pairs_with_the_last_call() {
        let result = || Message::tool_result("c1", "x").into();
        let messages = vec![call("c1"), result(), call("c1"), result(), result()];
        let entry = turn_entry(&turn(messages), 0);
        let results = entry.entries.iter().map(|entry| match entry {
            ReadEntry::Call(call) => call.result.is_some(),
            _ => false,
        });
        assert_eq!(results.collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn arguments_that_are_no_object_are_shown_as_they_are() {
        let texts = |json| arguments(json).into_iter().map(|one| one.text);
        for (json, text) in [
            ("\"a\\nb\"", "a\nb"),
            ("[1]", "[\n  1\n]"),
            ("{", "{"),
            ("3", "3"),
        ] {
            assert_eq!(texts(json).collect::<Vec<_>>(), [text]);
        }
        assert_eq!(texts("null").count(), 0);
    }
}
