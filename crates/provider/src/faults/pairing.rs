//! Which result answers which call.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;

use loopstore_model::{AgentMessage, Message};

/// A call: its message, and which of that message's calls, both counted from 0.
type CallPlace = (usize, usize);

/// The calls and results of a list of messages.
///
/// A result answers the first unanswered call of its id in the newest answer that made one; calls
/// of that id in answers before can no longer be answered. A result whose call is answered already is a
/// later result of the same call, as tools report that run for long: the newest one before the conversation
/// goes on replaces the first.
#[derive(Debug, Default)]
pub struct Pairing {
    /// All calls in order.
    calls: Vec<CallPair>,
    /// Of each message: where its calls begin among all.
    first_calls: Vec<usize>,
    /// Of each message: the call that it answers.
    answers: Vec<Option<usize>>,
    /// Of each message: the call that it answers once more.
    repeats: Vec<Option<usize>>,
}

/// What a tool result is to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPlace {
    /// No call before it has its id.
    WithoutCall,
    /// It is the result that a request has behind the call.
    Behind,
    /// Another result, which came before the conversation went on, replaces it.
    Replaced,
    /// The call had its result before the conversation went on: the message with that.
    Later(usize),
}

#[derive(Debug)]
struct CallPair {
    /// The message that makes it.
    by: usize,
    /// The message with its first result.
    result: Option<usize>,
    /// The message with the newest result that came before the conversation went on.
    newest: Option<usize>,
    /// The last prompt or answer before the first result.
    speaker: Option<usize>,
    /// Whether a prompt or another answer stands between them.
    is_late: bool,
    /// Whether a call before has its id too.
    is_repeated: bool,
    /// The next call of its id that the same message makes.
    next: Option<usize>,
}

/// Who waits, by the id of the calls. Every build looks up each call and each result.
type OpenCalls<'m> = HashMap<&'m str, WaitingCalls, RandomState>;

/// The calls of one id that the newest answer with such made.
struct WaitingCalls {
    by: usize,
    /// The first without a result.
    first: Option<usize>,
    last: usize,
    /// True if there are several: a result more than they are answers none of them for certain.
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
        // More calls than half of the messages are seldom.
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

    /// Lets the message `at` answer the first of the calls that wait.
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

    /// Notes that the message `at` answers a call that has its result.
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

    /// Returns the message with the newest result of a call that came before the conversation went on.
    pub fn newest_result(&self, call: CallPlace) -> Option<usize> {
        self.call(call)?.newest
    }

    /// Returns what a tool result is to its call.
    pub fn place(&self, result: usize) -> ResultPlace {
        let of = |calls: &[Option<usize>]| calls.get(result).copied().flatten();
        let Some(call) = of(&self.answers).or_else(|| of(&self.repeats)) else {
            return ResultPlace::WithoutCall;
        };
        match self.calls.get(call).and_then(|call| call.newest) {
            Some(newest) if newest == result => ResultPlace::Behind,
            Some(newest) if newest > result => ResultPlace::Replaced,
            Some(newest) => ResultPlace::Later(newest),
            None => ResultPlace::WithoutCall,
        }
    }

    /// Whether a call before has the same id.
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
