//! Calls and their results, next to each other and with ids of their own.

use std::collections::{HashMap, HashSet};

use super::{Mending, MendingKind, NO_RESULT};
use crate::model::{AgentMessage, Content, Message, ToolCall, ToolResultMessage};

/// A message, and which of the context it was.
pub(super) struct Placed {
    pub(super) at: usize,
    pub(super) message: Message,
}

/// The call of a message, by their positions.
type CallPlace = (usize, usize);

/// Returns the messages with each result right behind its call; ids hold only plain characters.
pub(super) fn pair(
    messages: &[AgentMessage],
    is_plain: fn(char) -> bool,
    mended: &mut Vec<Mending>,
) -> Vec<Placed> {
    let mut pairs = Pairs {
        messages,
        results: results_of(messages, mended),
        is_plain,
        ids: HashSet::new(),
        mended,
        out: Vec::with_capacity(messages.len()),
    };
    for (at, message) in messages.iter().enumerate() {
        match message.message() {
            None | Some(Message::ToolResult(_)) => {}
            Some(message @ Message::User(_)) => pairs.out.push(Placed {
                at,
                message: message.clone(),
            }),
            Some(message @ Message::Assistant(_)) => pairs.answer(at, message.clone()),
        }
    }
    pairs.out
}

/// Finds the result of each call; results without one are reported.
fn results_of(messages: &[AgentMessage], mended: &mut Vec<Mending>) -> HashMap<CallPlace, usize> {
    let mut open: HashMap<&str, CallPlace> = HashMap::new();
    let mut results = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        match message.message() {
            Some(message @ Message::Assistant(_)) => {
                for (nth, call) in message.tool_calls().enumerate() {
                    open.insert(&call.id, (at, nth));
                }
            }
            Some(Message::ToolResult(result)) => match open.remove(&*result.tool_call_id) {
                Some(call) => {
                    results.insert(call, at);
                }
                None => mended.push(Mending::of_call(
                    MendingKind::ResultDropped,
                    at,
                    &result.tool_call_id,
                )),
            },
            _ => {}
        }
    }
    results
}

struct Pairs<'a> {
    messages: &'a [AgentMessage],
    results: HashMap<CallPlace, usize>,
    is_plain: fn(char) -> bool,
    ids: HashSet<String>,
    mended: &'a mut Vec<Mending>,
    out: Vec<Placed>,
}

impl Pairs<'_> {
    /// Adds an answer and the results of its calls.
    fn answer(&mut self, at: usize, mut message: Message) {
        let mut results = Vec::new();
        let calls = message.content_mut().iter_mut().filter_map(call_of);
        for (nth, call) in calls.enumerate() {
            let recorded = call.id.clone();
            call.id = self.id_for(at, &recorded);
            results.push(self.result(at, nth, call, &recorded));
        }
        self.out.push(Placed { at, message });
        self.out.append(&mut results);
    }

    fn result(&mut self, at: usize, nth: usize, call: &ToolCall, recorded: &str) -> Placed {
        let found = self.results.get(&(at, nth)).copied();
        let stored = found.and_then(|place| match self.messages[place].message() {
            Some(Message::ToolResult(result)) => Some((place, result.clone())),
            _ => None,
        });
        let (place, mut result) = stored.unwrap_or_else(|| (at, no_result(call)));
        if found.is_none() {
            self.mend(MendingKind::ResultAdded, at, recorded);
        } else if !self.follows(at, place) {
            self.mend(MendingKind::ResultMoved, place, recorded);
        }
        result.tool_call_id.clone_from(&call.id);
        Placed {
            at: place,
            message: Message::ToolResult(result),
        }
    }

    fn mend(&mut self, kind: MendingKind, at: usize, id: &str) {
        self.mended.push(Mending::of_call(kind, at, id));
    }

    /// Whether nothing but results stands between an answer and a result.
    fn follows(&self, answer: usize, result: usize) -> bool {
        let between = &self.messages[answer + 1..result];
        between
            .iter()
            .all(|message| matches!(message.message(), None | Some(Message::ToolResult(_))))
    }

    /// Returns an id that no call before has.
    fn id_for(&mut self, at: usize, recorded: &str) -> String {
        let plain = |c| if (self.is_plain)(c) { c } else { '_' };
        let mut wanted: String = recorded.chars().map(plain).collect();
        if wanted.is_empty() {
            wanted.push_str("call");
        }
        let mut id = wanted.clone();
        let mut number = 1;
        while !self.ids.insert(id.clone()) {
            number += 1;
            id = format!("{wanted}_{number}");
        }
        if id != recorded {
            self.mend(MendingKind::CallRenamed, at, recorded);
        }
        id
    }
}

fn call_of(block: &mut Content) -> Option<&mut ToolCall> {
    match block {
        Content::ToolCall(call) => Some(call),
        _ => None,
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
