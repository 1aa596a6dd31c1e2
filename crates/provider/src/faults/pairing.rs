//! Pairs tool results with their calls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;

use loopstore_model::{AgentMessage, Message};

/// A call: its message, and which of that message's calls, both counted from 0.
type CallPlace = (usize, usize);

/// The calls and results of a list of messages.
///
/// A result belongs to the first call with its id that has no result, in the newest answer with such calls. Calls
/// with this id in earlier answers can no longer get a result. If the call already has a result, the result is a
/// later one, as long-running tools report. The newest result before the conversation continues replaces the first.
#[derive(Debug, Default)]
pub struct Pairing {
    /// All calls in order.
    calls: Vec<CallPair>,
    /// For each message, the index of its first call among all.
    first_calls: Vec<usize>,
    /// For each message, the call that it is the first result of.
    answers: Vec<Option<usize>>,
    /// For each message, the call that it is a later result of.
    repeats: Vec<Option<usize>>,
}

/// The relation of a tool result to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPairing {
    /// No earlier call has the id.
    WithoutCall,
    /// A request contains this result, directly after the call.
    Behind,
    /// Another result replaces this one; it was received before the conversation continued.
    Replaced,
    /// The call had a result before the conversation continued. The value is the message with that result.
    Later(usize),
}

#[derive(Debug)]
struct CallPair {
    /// The message with the call.
    by: usize,
    /// The message with the first result.
    result: Option<usize>,
    /// The message with the newest result before the conversation continued.
    newest: Option<usize>,
    /// The last prompt or answer before the first result.
    speaker: Option<usize>,
    /// True if a prompt or another answer is between the call and its first result.
    is_late: bool,
    /// True if an earlier call has the same id.
    is_repeated: bool,
    /// The next call of the same id in the same message.
    next: Option<usize>,
}

/// The calls without a result, by id. Every build looks up each call and each result.
type OpenCalls<'m> = HashMap<&'m str, WaitingCalls, RandomState>;

/// The calls of one id in the newest answer that has any.
struct WaitingCalls {
    by: usize,
    /// The first call without a result.
    first: Option<usize>,
    last: usize,
    /// True if there are several calls: an additional result cannot be assigned to one of them.
    are_many: bool,
}

impl Pairing {
    /// Pairs the calls of `messages` with their results.
    pub fn of<'m>(messages: &'m [AgentMessage]) -> Self {
        let mut pairing = Self {
            calls: Vec::with_capacity(messages.len()),
            first_calls: Vec::with_capacity(messages.len()),
            answers: Vec::with_capacity(messages.len()),
            repeats: vec![None; messages.len()],
        };
        // There are rarely more calls than half of the messages.
        let mut open =
            OpenCalls::<'m>::with_capacity_and_hasher(messages.len() / 2, <_>::default());
        let mut speaker = None;
        for (at, message) in messages.iter().enumerate() {
            pairing.first_calls.push(pairing.calls.len());
            let mut answers = None;
            match message.message() {
                None => {}
                Some(Message::User(_)) => speaker = Some(at),
                Some(message @ Message::Assistant(_)) => {
                    speaker = Some(at);
                    for call in message.tool_calls() {
                        pairing.add(at, &call.id, &mut open);
                    }
                }
                Some(Message::ToolResult(result)) => {
                    if let Some(waiting) = open.get_mut(&*result.tool_call_id) {
                        answers = pairing.answer(at, waiting, speaker);
                        if answers.is_none() && !waiting.are_many {
                            pairing.repeat(at, waiting.last, speaker);
                        }
                    }
                }
            }
            pairing.answers.push(answers);
        }
        pairing
    }

    fn add<'m>(&mut self, by: usize, id: &'m str, open: &mut OpenCalls<'m>) {
        let call = self.calls.len();
        let fresh = WaitingCalls {
            by,
            first: Some(call),
            last: call,
            are_many: false,
        };
        let is_repeated = match open.entry(id) {
            Entry::Vacant(place) => {
                place.insert(fresh);
                false
            }
            Entry::Occupied(mut place) => {
                let waiting = place.get_mut();
                if waiting.by == by {
                    self.calls[waiting.last].next = Some(call);
                    waiting.last = call;
                    waiting.are_many = true;
                } else {
                    *waiting = fresh;
                }
                true
            }
        };
        self.calls.push(CallPair {
            by,
            result: None,
            newest: None,
            speaker: None,
            is_late: false,
            is_repeated,
            next: None,
        });
    }

    /// Assigns the message `at` to the first call without a result.
    fn answer(
        &mut self,
        at: usize,
        waiting: &mut WaitingCalls,
        speaker: Option<usize>,
    ) -> Option<usize> {
        let first = waiting.first?;
        let call = &mut self.calls[first];
        waiting.first = call.next;
        (call.result, call.newest, call.speaker) = (Some(at), Some(at), speaker);
        call.is_late = speaker != Some(call.by);
        Some(first)
    }

    /// Records the message `at` as a later result of a call.
    fn repeat(&mut self, at: usize, call: usize, speaker: Option<usize>) {
        self.repeats[at] = Some(call);
        let call = &mut self.calls[call];
        if call.speaker == speaker {
            call.newest = Some(at);
        }
    }

    fn call(&self, (message, nth): CallPlace) -> Option<&CallPair> {
        let first = self.first_calls.get(message)?;
        let call = self.calls.get(first + nth)?;
        (call.by == message).then_some(call)
    }

    /// Returns the message with the first result of a call.
    pub fn result(&self, call: CallPlace) -> Option<usize> {
        self.call(call)?.result
    }

    /// Returns the message with the newest result of a call before the conversation continued.
    pub fn newest_result(&self, call: CallPlace) -> Option<usize> {
        self.call(call)?.newest
    }

    /// Returns the relation of a tool result to its call.
    pub fn place(&self, result: usize) -> ResultPairing {
        let of = |calls: &[Option<usize>]| calls.get(result).copied().flatten();
        let Some(call) = of(&self.answers).or_else(|| of(&self.repeats)) else {
            return ResultPairing::WithoutCall;
        };
        match self.calls.get(call).and_then(|call| call.newest) {
            Some(newest) if newest == result => ResultPairing::Behind,
            Some(newest) if newest > result => ResultPairing::Replaced,
            Some(newest) => ResultPairing::Later(newest),
            None => ResultPairing::WithoutCall,
        }
    }

    /// True if an earlier call has the same id.
    pub fn is_repeated(&self, call: CallPlace) -> bool {
        self.call(call).is_some_and(|call| call.is_repeated)
    }

    /// True if a prompt or another answer is between a result and its call.
    pub fn is_late(&self, message: usize) -> bool {
        self.answered_by(message).is_some_and(|call| call.is_late)
    }

    /// True if a prompt or another answer is between a call and its first result.
    pub fn is_answered_late(&self, call: CallPlace) -> bool {
        self.call(call).is_some_and(|call| call.is_late)
    }

    fn answered_by(&self, message: usize) -> Option<&CallPair> {
        let call = *self.answers.get(message)?;
        self.calls.get(call?)
    }
}
