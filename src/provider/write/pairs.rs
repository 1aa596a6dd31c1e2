//! Calls and their results, next to each other, with ids and names that the provider takes.

use std::collections::{HashMap, HashSet};

use super::{Mending, MendingKind, NO_RESULT};
use crate::context::{Pairing, goes_on};
use crate::model::{
    AgentMessage, Author, Content, Json, Message, ToolCall, ToolResultMessage, UserMessage,
};
use crate::provider::kept::hosted_item;

/// A message, and which of the context it was.
pub(crate) struct IndexedMessage {
    pub(crate) at: usize,
    pub(crate) message: Message,
    /// Whether the next message is another piece of this answer.
    pub(crate) goes_on: bool,
    /// What the source of a result said of it besides.
    pub(super) source: Option<Json>,
}

/// What a provider takes as the id of a call and the name of a tool.
pub(crate) struct Naming {
    /// Whether an id may hold a character.
    pub(crate) is_plain: fn(char) -> bool,
    /// Characters that an id may have.
    pub(crate) id: usize,
    /// Characters that a name may have.
    pub(crate) name: usize,
}

/// Whether an ASCII letter or digit, `_` or `-`.
pub(crate) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns the messages with each result right behind its call, its ids and names as `naming`
/// wants them.
pub(crate) fn pair(
    messages: &[AgentMessage],
    naming: &Naming,
    mended: &mut Vec<Mending>,
) -> Vec<IndexedMessage> {
    let mut pairs = Pairs {
        messages,
        pairing: Pairing::of(messages),
        calls: HashSet::new(),
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
            Some(message @ Message::User(_)) => pairs.out.push(IndexedMessage {
                at,
                message: message.clone(),
                goes_on: false,
                source: None,
            }),
            Some(message @ Message::Assistant(_)) => pairs.answer(at, message.clone()),
        }
    }
    pairs.out
}

struct Pairs<'a> {
    messages: &'a [AgentMessage],
    pairing: Pairing,
    /// The recorded ids of the calls so far.
    calls: HashSet<String>,
    naming: &'a Naming,
    ids: HashSet<String>,
    /// How often each id was numbered.
    numbers: HashMap<String, usize>,
    mended: &'a mut Vec<Mending>,
    out: Vec<IndexedMessage>,
}

impl Pairs<'_> {
    /// Tells a result without its call as text, and leaves out a second one of a call; others come with their
    /// answer.
    fn stray(&mut self, at: usize, result: &ToolResultMessage) {
        if self.pairing.answers(at) {
            return;
        }
        let id = &result.tool_call_id;
        if self.calls.contains(id) {
            return self.mend(MendingKind::ResultDropped, at, id);
        }
        self.mend(MendingKind::ResultTold, at, id);
        self.out.push(IndexedMessage {
            at,
            message: Message::User(told(result)),
            goes_on: false,
            source: None,
        });
    }

    /// Adds an answer and the results of its calls. What the provider carried out itself has none, and is
    /// an item of its own.
    fn answer(&mut self, at: usize, mut message: Message) {
        let mut results = Vec::new();
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
            self.calls.insert(recorded.clone());
            call.id = self.id_for(at, &recorded);
            self.name(at, call, &recorded);
            results.push(self.result((at, of_answer), call, &recorded));
        }
        self.out.push(IndexedMessage {
            at,
            message,
            goes_on: goes_on(self.messages, at),
            source: None,
        });
        self.out.append(&mut results);
    }

    fn result(
        &mut self,
        (at, nth): (usize, usize),
        call: &ToolCall,
        recorded: &str,
    ) -> IndexedMessage {
        let found = self.pairing.result((at, nth));
        let stored = found.and_then(|place| match self.messages[place].message() {
            Some(Message::ToolResult(result)) => Some((place, result.clone())),
            _ => None,
        });
        let source = found.and_then(|place| source_of(&self.messages[place]));
        let (place, mut result) = stored.unwrap_or_else(|| (at, no_result(call)));
        if found.is_none() {
            self.mend(MendingKind::ResultAdded, at, recorded);
        } else if self.pairing.is_late(place) {
            self.mend(MendingKind::ResultMoved, place, recorded);
        }
        result.tool_call_id.clone_from(&call.id);
        IndexedMessage {
            at: place,
            message: Message::ToolResult(result),
            goes_on: false,
            source,
        }
    }

    fn mend(&mut self, kind: MendingKind, at: usize, id: &str) {
        self.mended.push(Mending::of_call(kind, at, id));
    }

    /// Returns an id that no call before has.
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
        let name = plain(&call.name, is_word, self.naming.name, "tool");
        if name != call.name {
            call.name = name;
            self.mend(MendingKind::ToolRenamed, at, recorded);
        }
    }
}

/// Returns at most `most` characters of `text`, `_` for each that is not plain; `other` for none.
fn plain(text: &str, is_plain: fn(char) -> bool, most: usize, other: &str) -> String {
    if text.is_empty() {
        return other.to_owned();
    }
    let plain = |c| if is_plain(c) { c } else { '_' };
    text.chars().take(most).map(plain).collect()
}

/// Returns a result as a message that says whose it is: nobody may take it for the words of a person.
fn told(result: &ToolResultMessage) -> UserMessage {
    let what = if result.is_error { "Error" } else { "Result" };
    let of = match result.tool_name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    let id = &result.tool_call_id;
    let head = format!("{what} of tool call {id}{of}, which is not shown here:");
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
