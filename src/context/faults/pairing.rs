//! Which result answers which call.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::model::{AgentMessage, Message};

/// A call: its message, and which of that message's calls, both counted from 0.
type CallPlace = (usize, usize);

/// The calls and results of a list of messages.
///
/// A result answers the first unanswered call of its id in the newest answer that made one; calls
/// of that id in answers before can no longer be answered.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    /// The message with the result of each call that has one.
    pub(crate) results: HashMap<CallPlace, usize>,
    /// The call of each result that has one.
    pub(crate) calls: HashMap<usize, CallPlace>,
    /// Results that do not follow their call: a prompt or another answer stands between.
    pub(crate) late: HashSet<usize>,
}

impl Pairing {
    /// Pairs the calls of `messages` with their results.
    pub(crate) fn of(messages: &[AgentMessage]) -> Self {
        let mut pairing = Self::default();
        let mut open: HashMap<&str, (usize, VecDeque<usize>)> = HashMap::new();
        let mut speaker = None;
        for (at, message) in messages.iter().enumerate() {
            match message.message() {
                None => {}
                Some(Message::User(_)) => speaker = Some(at),
                Some(message @ Message::Assistant(_)) => {
                    speaker = Some(at);
                    for (nth, call) in message.tool_calls().enumerate() {
                        let waiting = open.entry(&call.id).or_default();
                        if waiting.0 != at {
                            *waiting = (at, VecDeque::new());
                        }
                        waiting.1.push_back(nth);
                    }
                }
                Some(Message::ToolResult(result)) => {
                    let waiting = open.get_mut(&*result.tool_call_id);
                    let call = waiting.and_then(|(of, calls)| Some((*of, calls.pop_front()?)));
                    if let Some(call) = call {
                        pairing.pair(call, at, speaker);
                    }
                }
            }
        }
        pairing
    }

    fn pair(&mut self, call: CallPlace, result: usize, speaker: Option<usize>) {
        self.results.insert(call, result);
        self.calls.insert(result, call);
        if speaker != Some(call.0) {
            self.late.insert(result);
        }
    }
}
