//! Reads messages and earlier digests into a [`Ledger`].

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::fact::{FactSource, Ledger, NoteKind, Place};
use super::line::{self, DigestLine, OPENING};
use super::scan::{ScannedValue, scan, sentences};
use super::shape::is_value;
use crate::compaction::{Placed, image_facts};
use crate::model::{
    AssistantMessage, Content, Int, Message, ToolCall, ToolResultMessage, UserMessage,
};

/// Bytes of the task that are kept at most.
const LONGEST_TASK: usize = 16_384;
/// Sentences of a prompt that are kept at most; a pasted document is not an instruction.
const MOST_SENTENCES: usize = 40;
/// A text with more values than this is a document, not what the user says.
const MOST_TOLD: usize = 24;
/// Bytes of an error that are kept at each end.
const ERROR_END: usize = 100;
/// So many facts are held at most, some hundred bytes each: years of work must not fill the memory.
/// Then half of them, which no page would have room for, are forgotten.
const MOST_FACTS: usize = 1 << 18;

/// Collects what messages hold.
#[derive(Default)]
pub(super) struct Gatherer {
    pub(super) ledger: Ledger,
    calls: HashMap<String, CallNote>,
    /// Failures that nothing has mended yet.
    failures: Vec<FailedCall>,
    has_task: bool,
    last_answer: Option<(String, Place)>,
    /// The time of the last message.
    pub(super) timestamp: Option<Int>,
}

struct CallNote {
    tool: String,
    /// The values of its arguments.
    values: Vec<usize>,
    /// The longest of them.
    main: Option<usize>,
    place: Place,
    text: String,
}

struct FailedCall {
    note: usize,
    tool: String,
    values: Vec<usize>,
}

impl Gatherer {
    /// Reads messages of a loop.
    pub(super) fn messages(&mut self, of: Option<&Arc<str>>, messages: &[Placed]) {
        for placed in messages {
            let place = Place {
                of: of.cloned(),
                turn: placed.turn,
            };
            match placed.message.message() {
                Some(inner @ Message::User(message)) => self.user(inner, message, &place),
                Some(Message::Assistant(message)) => self.answer(message, &place),
                Some(Message::ToolResult(message)) => self.result(message, &place),
                None => {}
            }
            let content = placed.message.message().map_or(&[][..], Message::content);
            self.images(content, &place);
            self.forget_some();
        }
    }

    fn forget_some(&mut self) {
        if self.ledger.facts.len() <= MOST_FACTS {
            return;
        }
        let places = self.ledger.forget(MOST_FACTS / 2);
        let now = |at: usize| places.get(at).copied().flatten();
        for call in self.calls.values_mut() {
            call.values = call.values.iter().filter_map(|at| now(*at)).collect();
            call.main = call.main.and_then(now);
        }
        for failure in &mut self.failures {
            failure.values = failure.values.iter().filter_map(|at| now(*at)).collect();
        }
    }

    /// Notes images by what they are: the originals stay in the store.
    fn images(&mut self, content: &[Content], place: &Place) {
        for block in content {
            if let Content::Image(image) = block {
                let label = self.ledger.label("image");
                let facts = image_facts(image);
                self.ledger.add(&facts, label, FactSource::Field, place);
            }
        }
    }

    /// Reads a message in the user's name: a prompt, with what the harness put around it, or all the
    /// harness's.
    fn user(&mut self, inner: &Message, message: &UserMessage, place: &Place) {
        self.note_time(message.timestamp.as_ref());
        self.prompt(inner, place);
        let own: Vec<&str> = inner.prompt_texts().collect();
        let label = self.ledger.label("harness");
        for text in texts(&message.content) {
            let around = own.iter().find_map(|own| text.split_once(own));
            let (before, after) = around.unwrap_or((text, ""));
            self.mentions(before, label, place);
            self.mentions(after, label, place);
        }
    }

    fn prompt(&mut self, message: &Message, place: &Place) {
        let label = self.ledger.label("user");
        for text in message.prompt_texts() {
            // What is asked next answers what the model said last.
            self.last_answer = None;
            self.gather_text(text, place);
            let ledger = &mut self.ledger;
            let is_document = is_document(text);
            scan(text, &mut |found| {
                let source = match (is_document, found.quoted) {
                    (false, true) => FactSource::ToldQuoted,
                    (false, false) => FactSource::Told,
                    (true, true) => FactSource::Quoted,
                    (true, false) => FactSource::Mentioned,
                };
                add_found(ledger, found, label, source, place);
            });
        }
    }

    fn gather_text(&mut self, text: &str, place: &Place) {
        if !self.has_task && !text.trim().is_empty() {
            self.has_task = true;
            let end = text.floor_char_boundary(LONGEST_TASK);
            self.ledger.note(NoteKind::Task, &text[..end], place);
            return;
        }
        let long_sentences = sentences(text).filter(|sentence| sentence.len() >= 8);
        for sentence in long_sentences.take(MOST_SENTENCES) {
            self.ledger.note(NoteKind::Said, sentence, place);
        }
    }

    fn answer(&mut self, message: &AssistantMessage, place: &Place) {
        self.note_time(message.timestamp.as_ref());
        let label = self.ledger.label("answer");
        for text in texts(&message.content) {
            self.mentions(text, label, place);
            if let Some(last) = text.trim().split("\n\n").last().filter(|t| !t.is_empty()) {
                self.last_answer = Some((last.to_owned(), place.clone()));
            }
        }
        for block in &message.content {
            if let Content::ToolCall(call) = block {
                self.call(call, place);
            }
        }
    }

    fn call(&mut self, call: &ToolCall, place: &Place) {
        let tool = self.ledger.label(&call.name);
        let mut values = Vec::new();
        if let Ok(arguments) = call.arguments.read::<Value>() {
            let ledger = &mut self.ledger;
            leaves(&arguments, &call.name, &mut |key, text, is_key| {
                let label = ledger.label(key);
                if let Some(at) = ledger.add(text, label, FactSource::Used, place) {
                    ledger.facts[at].tool = Some(tool);
                    values.push(at);
                } else if !is_key {
                    scan(text, &mut |found| {
                        add_found(ledger, found, label, FactSource::WithinArgument, place);
                    });
                }
            });
        }
        let length = |at: &usize| (self.ledger.facts[*at].value.len(), std::cmp::Reverse(*at));
        let main = values.iter().copied().max_by_key(length);
        let open = CallNote {
            tool: call.name.clone(),
            values,
            main,
            place: place.clone(),
            text: format!("{} {}", call.name, call.arguments.as_str()),
        };
        self.calls.insert(call.id.clone(), open);
    }

    fn result(&mut self, message: &ToolResultMessage, place: &Place) {
        self.note_time(message.timestamp.as_ref());
        let call = self.calls.remove(&message.tool_call_id);
        let tool = call.as_ref().map_or(&message.tool_name, |call| &call.tool);
        let tool = if tool.is_empty() { "result" } else { tool };
        let label = self.ledger.label(tool);
        for text in texts(&message.content) {
            match structured(text) {
                Some(value) => self.fields(&value, tool, place),
                None => self.mentions(text, label, place),
            }
        }
        let Some(call) = call else { return };
        if message.is_error {
            self.failed(call, message, place);
        } else {
            self.worked(&call, place);
        }
    }

    fn fields(&mut self, value: &Value, tool: &str, place: &Place) {
        let ledger = &mut self.ledger;
        leaves(value, tool, &mut |key, text, is_key| {
            let label = ledger.label(key);
            let added = ledger.add(text, label, FactSource::Field, place);
            if !is_key && (added.is_none() || text.contains(' ')) {
                scan(text, &mut |found| {
                    add_found(ledger, found, label, FactSource::Mentioned, place);
                });
            }
        });
    }

    fn mentions(&mut self, text: &str, label: usize, place: &Place) {
        let ledger = &mut self.ledger;
        scan(text, &mut |found| {
            let source = if found.quoted {
                FactSource::Quoted
            } else {
                FactSource::Mentioned
            };
            add_found(ledger, found, label, source, place);
        });
    }

    fn failed(&mut self, call: CallNote, message: &ToolResultMessage, place: &Place) {
        if let Some(main) = call.main
            && self.ledger.facts[main].place == call.place
        {
            self.ledger.facts[main].failed = true;
        }
        let text: Vec<&str> = texts(&message.content).collect();
        let text = ends_of(&text.join("\n"), ERROR_END);
        if let Some(note) = self.ledger.note(NoteKind::Wrong, &text, place) {
            self.failures.push(FailedCall {
                note,
                tool: call.tool,
                values: call.values,
            });
        }
    }

    fn worked(&mut self, call: &CallNote, place: &Place) {
        let Self {
            ledger, failures, ..
        } = self;
        failures.retain(|failure| {
            let is_specific = |at: &&usize| ledger.facts[**at].shape.names_one_thing();
            let same = failure.tool == call.tool
                && failure
                    .values
                    .iter()
                    .filter(is_specific)
                    .any(|at| call.values.contains(at));
            if same {
                ledger.notes[failure.note].ok_at = Some(place.clone());
            }
            !same
        });
    }

    fn note_time(&mut self, timestamp: Option<&Int>) {
        if let Some(timestamp) = timestamp {
            self.timestamp = Some(timestamp.clone());
        }
    }

    /// Reads an earlier summary; one that is no digest is text that the model wrote at `turn`.
    pub(super) fn summary(&mut self, of: Option<&Arc<str>>, turn: u32, text: &str) {
        if text.starts_with(OPENING) {
            return self.digest(of, text);
        }
        let place = Place {
            of: of.cloned(),
            turn,
        };
        let label = self.ledger.label("summary");
        self.gather_text(text, &place);
        self.mentions(text, label, &place);
        self.forget_some();
    }

    fn digest(&mut self, of: Option<&Arc<str>>, text: &str) {
        let mut lines = line::read(text);
        let mut places: Vec<Place> = Vec::new();
        for line in &mut lines {
            let of_line: Vec<&mut Place> = match line {
                DigestLine::Values { entries, .. } => {
                    entries.iter_mut().map(|e| &mut e.place).collect()
                }
                DigestLine::Note { place, ok_at, .. } => {
                    std::iter::once(place).chain(ok_at.as_mut()).collect()
                }
            };
            for place in of_line {
                place.of = place.of.take().or_else(|| of.cloned());
                places.push(place.clone());
            }
        }
        // `L2` is before `L10`.
        let order = |place: &Place| {
            let name = place.of.clone();
            (name.as_ref().map_or(0, |name| name.len()), name, place.turn)
        };
        places.sort_by_key(order);
        for place in &places {
            self.ledger.position(place);
        }
        lines.into_iter().for_each(|line| self.kept(line));
        self.forget_some();
    }

    fn kept(&mut self, line: DigestLine) {
        let (tool, label, entries) = match line {
            DigestLine::Values {
                tool,
                label,
                entries,
            } => (tool, label, entries),
            DigestLine::Note {
                kind,
                text,
                place,
                ok_at,
            } => return self.kept_note(kind, &text, &place, ok_at),
        };
        let tool = tool.map(|tool| self.ledger.label(&tool));
        let label = self.ledger.label(&label);
        for entry in entries {
            let source = if entry.used {
                FactSource::KeptUsed
            } else {
                FactSource::KeptSeen
            };
            if let Some(at) = self.ledger.add(&entry.value, label, source, &entry.place) {
                let fact = &mut self.ledger.facts[at];
                fact.tool = fact.tool.or(tool);
                fact.failed |= entry.failed;
            }
        }
    }

    fn kept_note(&mut self, kind: NoteKind, text: &str, place: &Place, ok_at: Option<Place>) {
        let kind = match kind {
            NoteKind::Task if self.has_task => NoteKind::Said,
            NoteKind::Task => {
                self.has_task = true;
                kind
            }
            // What was last then is not last now.
            NoteKind::Answer => {
                self.last_answer = Some((text.to_owned(), place.clone()));
                return;
            }
            _ => kind,
        };
        if let Some(at) = self.ledger.note(kind, text, place) {
            self.ledger.notes[at].ok_at = ok_at;
        }
    }

    /// Notes what is unfinished, and returns everything.
    pub(super) fn finish(mut self) -> (Ledger, Option<Int>) {
        let mut open: Vec<CallNote> = self.calls.into_values().collect();
        open.sort_by(|a, b| (&a.place, &a.text).cmp(&(&b.place, &b.text)));
        for call in open {
            self.ledger.note(NoteKind::Waiting, &call.text, &call.place);
        }
        if let Some((text, place)) = self.last_answer {
            self.ledger.note(NoteKind::Answer, &text, &place);
        }
        (self.ledger, self.timestamp)
    }
}

fn texts(content: &[Content]) -> impl Iterator<Item = &str> {
    content.iter().filter_map(|block| match block {
        Content::Text(text) => Some(text.text.as_str()),
        _ => None,
    })
}

fn is_document(text: &str) -> bool {
    let mut values = 0;
    scan(text, &mut |_| values += 1);
    values > MOST_TOLD
}

fn add_found(
    ledger: &mut Ledger,
    found: ScannedValue<'_>,
    label: usize,
    source: FactSource,
    place: &Place,
) {
    let label = match found.label {
        Some(name) => ledger.label(name),
        None => label,
    };
    ledger.add(found.value, label, source, place);
}

fn structured(text: &str) -> Option<Value> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Calls `each` with the key and text of each leaf. A key that names a thing (letters and digits
/// mixed) is a value of the key above it.
fn leaves(value: &Value, key: &str, each: &mut dyn FnMut(&str, &str, bool)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if names_a_thing(name) {
                    each(key, name, true);
                }
                leaves(value, name, each);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(item, key, each)),
        Value::String(text) => each(key, text, false),
        Value::Number(number) => each(key, &number.to_string(), false),
        Value::Bool(_) | Value::Null => {}
    }
}

fn names_a_thing(key: &str) -> bool {
    is_value(key) && key.contains(|c: char| c.is_ascii_digit()) && key.contains(char::is_alphabetic)
}

/// Returns both ends of a text, joined by an ellipsis if it is longer than they are.
fn ends_of(text: &str, each: usize) -> String {
    let text = text.trim();
    if text.len() <= 2 * each {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(each)];
    let tail = &text[text.ceil_char_boundary(text.len() - each)..];
    format!("{} … {}", head.trim_end(), tail.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AgentMessage, Json};

    fn placed(turn: u32, message: impl Into<AgentMessage>) -> Placed {
        Placed {
            turn,
            seq: turn,
            message: message.into(),
        }
    }

    fn call(turn: u32, id: &str, path: &str) -> Placed {
        let arguments = Json::of(&serde_json::json!({ "path": path })).unwrap();
        let content = vec![Content::tool_call(id, "read", arguments)];
        let answer = AssistantMessage {
            content,
            ..AssistantMessage::default()
        };
        placed(turn, Message::Assistant(answer))
    }

    fn result(turn: u32, id: &str, text: &str, is_error: bool) -> Placed {
        let result = ToolResultMessage {
            tool_call_id: id.into(),
            tool_name: "read".into(),
            content: vec![Content::text(text)],
            is_error,
            ..ToolResultMessage::default()
        };
        placed(turn, Message::ToolResult(result))
    }

    #[test]
    fn of_more_facts_than_are_held_the_worst_are_forgotten() {
        let mut gatherer = Gatherer::default();
        gatherer.messages(
            None,
            &[
                call(0, "a", "src/first_one.rs"),
                result(0, "a", "no such file", true),
                call(0, "open", "src/second_one.rs"),
            ],
        );
        let mut most = 0;
        for turn in 1..60 {
            let lines = (0..6_000).map(|line| format!("src/seen_{turn}_{line}.rs\n"));
            let text: String = lines.collect();
            gatherer.messages(None, &[result(turn, "b", &text, false)]);
            most = most.max(gatherer.ledger.facts.len());
        }
        assert!((200_000..=MOST_FACTS).contains(&most), "{most}");
        // What was noted of calls still means the same values.
        gatherer.messages(
            None,
            &[
                call(60, "c", "src/first_one.rs"),
                result(60, "c", "fn main", false),
            ],
        );
        let open = gatherer.calls["open"].main.unwrap();
        assert_eq!(gatherer.ledger.facts[open].value, "src/second_one.rs");
        let (ledger, _) = gatherer.finish();
        assert!(ledger.notes[0].ok_at.is_some());
        let has = |value: &str| ledger.facts.iter().any(|fact| fact.value == value);
        assert!(has("src/first_one.rs") && has("src/seen_59_5999.rs"));
        assert!(!has("src/seen_1_0.rs"));
    }
}
