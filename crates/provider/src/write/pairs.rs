//! Puts results directly after their calls, with ids and names that the provider accepts.

use std::collections::{HashMap, HashSet};

use super::{Mending, MendingKind, NO_RESULT, images};
use crate::faults::{Pairing, ResultPairing, answer_in_flight, continues_answer};
use crate::kept::hosted_item;
use loopstore_model::{
    AgentMessage, Author, Content, Json, Message, ToolCall, ToolResultMessage, UserMessage,
};

/// A message with its index in the context.
pub struct IndexedMessage {
    pub at: usize,
    pub message: Message,
    /// True if the next message is another part of this answer.
    pub continues_answer: bool,
    /// The unknown fields of an answer or a result.
    pub(super) source: Option<Json>,
}

/// The ids of calls and names of tools that a provider accepts.
pub struct Naming {
    /// True if an id may contain a character.
    pub is_plain: fn(char) -> bool,
    /// The most characters of an id.
    pub id: usize,
    /// The most characters of a name.
    pub name: usize,
}

/// True for an ASCII letter or digit, `_` or `-`.
pub fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns the messages with each result directly after its call, with ids and names as `naming` requires. Calls of the
/// answer that is `in_flight` need no result.
pub fn pair(
    messages: &[AgentMessage],
    in_flight: bool,
    naming: &Naming,
    mended: &mut Vec<Mending>,
) -> Vec<IndexedMessage> {
    let mut pairs = Pairs {
        messages,
        pairing: Pairing::of(messages),
        in_flight: answer_in_flight(messages, in_flight),
        open_at: None,
        naming,
        ids: HashSet::new(),
        numbers: HashMap::new(),
        mended,
        out: Vec::with_capacity(messages.len()),
    };
    for (at, message) in messages.iter().enumerate() {
        match message.message() {
            None => {}
            Some(Message::ToolResult(result)) => pairs.stray(at, result),
            Some(message @ Message::User(_)) => pairs.say(at, message.clone()),
            Some(message @ Message::Assistant(_)) => pairs.answer(at, message.clone()),
        }
    }
    pairs.out
}

struct Pairs<'a> {
    messages: &'a [AgentMessage],
    pairing: Pairing,
    /// The first message of the answer whose calls need no result.
    in_flight: Option<usize>,
    /// The index in `out` of the first message of that answer, if one of its calls has no result.
    open_at: Option<usize>,
    naming: &'a Naming,
    ids: HashSet<String>,
    /// The number of suffixes given to each id.
    numbers: HashMap<String, usize>,
    mended: &'a mut Vec<Mending>,
    out: Vec<IndexedMessage>,
}

impl Pairs<'_> {
    /// Writes a result without a call, or a later result of a call, as text. A result that another one replaces is left
    /// out; any other is written with its answer.
    fn stray(&mut self, at: usize, result: &ToolResultMessage) {
        let id = &result.tool_call_id;
        let head = match self.pairing.place(at) {
            ResultPairing::Behind => return,
            ResultPairing::Replaced => return self.mend(MendingKind::ResultDropped, at, id),
            ResultPairing::Later(first) if self.is_same_result(first, result) => {
                return self.mend(MendingKind::ResultDropped, at, id);
            }
            ResultPairing::Later(_) => head_of(result, "which came later"),
            ResultPairing::WithoutCall => head_of(result, "which is not shown here"),
        };
        self.mend(MendingKind::ResultTold, at, id);
        self.say(at, Message::User(as_text(head, result)));
    }

    /// Adds a message in the user's name. Nothing may come between a call and its result.
    fn say(&mut self, at: usize, mut message: Message) {
        images::check(at, message.content_mut(), self.mended);
        let place = self.open_at.unwrap_or(self.out.len());
        let added = IndexedMessage {
            at,
            message,
            continues_answer: false,
            source: None,
        };
        self.out.insert(place, added);
        self.open_at = self.open_at.map(|place| place + 1);
    }

    fn is_same_result(&self, at: usize, result: &ToolResultMessage) -> bool {
        let other = self.messages.get(at).and_then(AgentMessage::message);
        matches!(other, Some(Message::ToolResult(other))
            if other.content == result.content && other.is_error == result.is_error)
    }

    /// Adds an answer and the results of its calls. A call that the provider executed has no result, and is an item of
    /// its own.
    fn answer(&mut self, at: usize, mut message: Message) {
        let (mut results, begin) = (Vec::new(), self.out.len());
        let mut nth = 0;
        for block in message.content_mut() {
            let Content::ToolCall(call) = block else {
                continue;
            };
            let of_answer = nth;
            nth += 1;
            if self.pairing.result((at, of_answer)).is_none()
                && let Some(item) = hosted_item(call)
            {
                *block = item;
                continue;
            }
            let recorded = call.id.clone();
            call.id = self.id_for(at, &recorded);
            self.name(at, call, &recorded);
            match self.result((at, of_answer), call, &recorded) {
                Some(result) => results.push(result),
                None => self.open_at = self.open_at.or(Some(begin)),
            }
        }
        self.out.push(IndexedMessage {
            at,
            message,
            continues_answer: continues_answer(self.messages, at),
            source: source_of(&self.messages[at]),
        });
        self.out.append(&mut results);
    }

    /// Returns the result of a call; `None` if the call needs none yet.
    fn result(
        &mut self,
        (at, nth): (usize, usize),
        call: &ToolCall,
        recorded: &str,
    ) -> Option<IndexedMessage> {
        let found = self.pairing.newest_result((at, nth));
        let stored = found.and_then(|place| match self.messages[place].message() {
            Some(Message::ToolResult(result)) => Some((place, result.clone())),
            _ => None,
        });
        if stored.is_none() && self.in_flight.is_some_and(|first| at >= first) {
            return None;
        }
        let source = found.and_then(|place| source_of(&self.messages[place]));
        let (place, mut result) = stored.unwrap_or_else(|| (at, no_result(call)));
        if found.is_none() {
            self.mend(MendingKind::ResultAdded, at, recorded);
        } else if self.pairing.is_answered_late((at, nth)) {
            self.mend(MendingKind::ResultMoved, place, recorded);
        }
        result.tool_call_id.clone_from(&call.id);
        images::check(place, &mut result.content, self.mended);
        Some(IndexedMessage {
            at: place,
            message: Message::ToolResult(result),
            continues_answer: false,
            source,
        })
    }

    fn mend(&mut self, kind: MendingKind, at: usize, id: &str) {
        self.mended.push(Mending::of_call(kind, at, id));
    }

    /// Returns an id that no earlier call has.
    fn id_for(&mut self, at: usize, recorded: &str) -> String {
        let wanted = plain(recorded, self.naming.is_plain, self.naming.id, "call");
        let mut id = wanted.clone();
        while !self.ids.insert(id.clone()) {
            let number = self.numbers.entry(wanted.clone()).or_insert(1);
            *number += 1;
            let end = format!("_{number}");
            let kept = self.naming.id.saturating_sub(end.len());
            id = wanted.chars().take(kept).chain(end.chars()).collect();
        }
        if id != recorded {
            self.mend(MendingKind::CallRenamed, at, recorded);
        }
        id
    }

    fn name(&mut self, at: usize, call: &mut ToolCall, recorded: &str) {
        let name = tool_name(&call.name, self.naming.name);
        if name != call.name {
            call.name = name;
            self.mend(MendingKind::ToolRenamed, at, recorded);
        }
    }
}

/// Returns at most `most` characters of `text`, with `_` for each that is not plain; `other` if `text` is empty.
fn plain(text: &str, is_plain: fn(char) -> bool, most: usize, other: &str) -> String {
    if text.is_empty() {
        return other.to_owned();
    }
    let plain = |c| if is_plain(c) { c } else { '_' };
    text.chars().take(most).map(plain).collect()
}

/// Returns the name of a tool with at most `most` characters that every provider accepts.
pub(super) fn tool_name(name: &str, most: usize) -> String {
    plain(name, is_word, most, "tool")
}

/// Returns the line before a result that is written as text, which names the call.
fn head_of(result: &ToolResultMessage, why: &str) -> String {
    let what = if result.is_error { "Error" } else { "Result" };
    let of = match result.tool_name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    let id = &result.tool_call_id;
    format!("{what} of tool call {id}{of}, {why}:")
}

/// Returns a result as a message that names its source, so that it is not taken for a person's words.
fn as_text(head: String, result: &ToolResultMessage) -> UserMessage {
    UserMessage {
        content: std::iter::once(Content::text(head))
            .chain(result.content.iter().cloned())
            .collect(),
        timestamp: result.timestamp.clone(),
        author: Some(Author::Harness),
    }
}

fn source_of(message: &AgentMessage) -> Option<Json> {
    match message {
        AgentMessage::Llm(message) => message.extra.get("source").cloned(),
        AgentMessage::Extension(_) => None,
    }
}

fn no_result(call: &ToolCall) -> ToolResultMessage {
    ToolResultMessage {
        tool_name: call.name.clone(),
        content: vec![Content::text(NO_RESULT)],
        is_error: true,
        ..ToolResultMessage::default()
    }
}
