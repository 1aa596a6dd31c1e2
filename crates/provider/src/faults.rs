//! Faults of a list of messages, for which any provider may reject it.
//!
//! Rules of a single form (alternating roles, the characters of ids) are in the module of the form.

mod introduced;
mod pairing;
mod thinking;

use loopstore_model::{AgentMessage, Content, Message, Role, ToolCall};

pub use introduced::introduced;
#[doc(hidden)]
pub use pairing::{Pairing, ResultPairing};

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A tool result whose call is not before it, or has another result.
    ResultWithoutCall,
    /// A tool call without a result after it.
    CallWithoutResult,
    /// A call with the id of an earlier call.
    DuplicateCallId,
    /// A tool result with a prompt or another answer between it and its call.
    LateResult,
    /// An empty prompt or answer: no text but white space, no image, no call. Thinking alone counts as empty, unless
    /// the next message of its turn continues the answer. A tool result may be empty.
    EmptyContent,
    /// Signed thinking after the last prompt that is separated from its calls: an answer ends with the thinking, or
    /// calls have unsigned thinking while other thinking is signed. If the originals are known ([`introduced`]), also
    /// thinking that was removed or changed although calls of its answer are kept, or that was kept although calls
    /// are removed. Anthropic requires the thinking of the current tool-use cycle unchanged; before the last prompt
    /// it may be left out.
    ThinkingParted,
    /// In a context for a provider: a compaction of the provider in the wrong position. All providers require it in an
    /// answer, Anthropic also at the beginning of the conversation.
    MisplacedCompaction,
    /// In a context for a provider: a compaction of the provider besides the active one.
    SecondCompaction,
    /// In a context for a provider: the provider's compaction was changed.
    AlteredSealed,
    /// In a context for a provider: state of another provider, which is left out of requests.
    ForeignSealed,
    /// In a context for a provider: a compaction without its run, or a run without its compaction.
    OrphanedSealed,
    /// In a context for a provider: the messages that the provider's compaction replaces are not stored. No other model
    /// can continue, and the compaction cannot be undone.
    OriginalsMissing,
}

/// A fault of a message in a context. A fault never makes a build fail.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ContextFault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The index of the message, from 0.
    pub message: usize,
    /// The id of the call, if the fault concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// Returns the faults of `messages`, in their order. With `in_flight`, the answer after the last prompt or result is
/// incomplete: calls of it without a result, or an answer of thinking only, are no faults.
///
/// ```
/// use loopstore_provider::faults::{FaultKind, faults_of};
/// use loopstore_model::{AgentMessage, AssistantMessage, Content, Json, Message};
///
/// let content = vec![Content::tool_call("c1", "ls", Json::null())];
/// let answer = Message::Assistant(AssistantMessage { content, ..AssistantMessage::default() });
/// let messages = [AgentMessage::from(answer)];
/// assert_eq!(faults_of(&messages, false)[0].kind, FaultKind::CallWithoutResult);
/// // The result may still come.
/// assert!(faults_of(&messages, true).is_empty());
/// ```
pub fn faults_of(messages: &[AgentMessage], in_flight: bool) -> Vec<ContextFault> {
    let mut finder = Finder {
        messages,
        pairing: Pairing::of(messages),
        in_flight: answer_in_flight(messages, in_flight),
        faults: Vec::new(),
    };
    for (at, message) in messages.iter().enumerate() {
        if let Some(message) = message.message() {
            finder.check_message(at, message);
        }
    }
    let mut faults = finder.faults;
    faults.extend(thinking::parted(messages, in_flight));
    faults.sort_by_key(|fault| fault.message);
    faults
}

/// Returns the index of the first message of the incomplete answer: the last answer, if only results follow it and the
/// loop is `in_flight`. Some sources record the blocks of one answer as several messages.
#[doc(hidden)]
pub fn answer_in_flight(messages: &[AgentMessage], in_flight: bool) -> Option<usize> {
    let speaks = |message: &AgentMessage| matches!(message.role(), Role::User | Role::Assistant);
    let mut first = messages.iter().rposition(speaks).filter(|_| in_flight)?;
    if messages[first].role() != Role::Assistant {
        return None;
    }
    let turn = turn_of(&messages[first]);
    for (at, message) in messages[..first].iter().enumerate().rev() {
        match message.role() {
            Role::Assistant if turn.is_some() && turn_of(message) == turn => first = at,
            Role::User | Role::Assistant | Role::ToolResult => break,
            Role::Extension => {}
        }
    }
    Some(first)
}

/// Returns the calls that can still get a result: the calls of the answer in flight without a result.
#[doc(hidden)]
pub fn open_calls(messages: &[AgentMessage], in_flight: bool) -> Vec<&ToolCall> {
    let Some(first) = answer_in_flight(messages, in_flight) else {
        return Vec::new();
    };
    let pairing = Pairing::of(&messages[first..]);
    let calls = messages[first..]
        .iter()
        .enumerate()
        .flat_map(|(at, message)| {
            let calls = message.message().into_iter().flat_map(Message::tool_calls);
            calls.enumerate().map(move |(nth, call)| ((at, nth), call))
        });
    calls
        .filter(|(place, _)| pairing.result(*place).is_none())
        .map(|(_, call)| call)
        .collect()
}

struct Finder<'a> {
    messages: &'a [AgentMessage],
    pairing: Pairing,
    /// The index of the first message of the incomplete answer.
    in_flight: Option<usize>,
    faults: Vec<ContextFault>,
}

impl<'a> Finder<'a> {
    fn check_message(&mut self, at: usize, message: &'a Message) {
        if self.is_empty(at, message) {
            self.fault(FaultKind::EmptyContent, at, None);
        }
        match message {
            Message::User(_) => {}
            Message::Assistant(_) => self.calls(at, message),
            Message::ToolResult(result) => {
                let id = Some(&*result.tool_call_id);
                if self.pairing.place(at) != ResultPairing::Behind {
                    self.fault(FaultKind::ResultWithoutCall, at, id);
                } else if self.pairing.is_late(at) {
                    self.fault(FaultKind::LateResult, at, id);
                }
            }
        }
    }

    fn calls(&mut self, at: usize, message: &'a Message) {
        for (nth, call) in message.tool_calls().enumerate() {
            if self.pairing.is_repeated((at, nth)) {
                self.fault(FaultKind::DuplicateCallId, at, Some(&call.id));
            }
            if self.pairing.result((at, nth)).is_none() && !self.is_in_flight(at) {
                self.fault(FaultKind::CallWithoutResult, at, Some(&call.id));
            }
        }
    }

    /// True if an answer is the incomplete one, or a part of it.
    fn is_in_flight(&self, at: usize) -> bool {
        self.in_flight.is_some_and(|first| at >= first)
    }

    fn is_empty(&self, at: usize, message: &Message) -> bool {
        let is_answer = matches!(message, Message::Assistant(_));
        let thinks = is_answer && message.content().iter().any(Content::is_thinking);
        let may_go_on = self.is_in_flight(at) || continues_answer(self.messages, at);
        is_silent(message) && !(thinks && may_go_on)
    }

    fn fault(&mut self, kind: FaultKind, message: usize, id: Option<&str>) {
        self.faults.push(ContextFault {
            kind,
            message,
            tool_call_id: id.map(str::to_owned),
        });
    }
}

/// True if the message after an answer is an answer of the same turn: some sources record the blocks of one answer as
/// several messages.
#[doc(hidden)]
pub fn continues_answer(messages: &[AgentMessage], at: usize) -> bool {
    let is_shown = |message: &&AgentMessage| message.role() != Role::Extension;
    let after = messages[at + 1..].iter().find(is_shown);
    after.is_some_and(|after| {
        after.role() == Role::Assistant && turn_of(after) == turn_of(&messages[at])
    })
}

/// True if a prompt or an answer is empty.
fn is_silent(message: &Message) -> bool {
    let is_user = match message {
        Message::User(_) => true,
        Message::Assistant(_) => false,
        Message::ToolResult(_) => return false,
    };
    !message.content().iter().any(|block| says(block, is_user))
}

/// True if a block has content for a model other than the one that wrote it.
fn says(block: &Content, is_user: bool) -> bool {
    match block {
        Content::Text(text) => !text.text.trim().is_empty(),
        Content::Image(image) => is_user && !image.data.is_empty(),
        Content::ToolCall(_) => !is_user,
        Content::Thinking(_) => false,
        Content::Sealed(_) => !block.is_signed_thinking(),
        Content::Other(_) => true,
    }
}

fn turn_of(message: &AgentMessage) -> Option<(&str, i64)> {
    match message {
        AgentMessage::Llm(message) => {
            let turn = message.turn_id.as_ref()?;
            Some((&turn.loop_id, turn.turn_index.get()))
        }
        AgentMessage::Extension(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore_model::{AssistantMessage, Json, ToolResultMessage, TurnId};

    pub(super) fn answer(content: Vec<Content>) -> AgentMessage {
        Message::Assistant(AssistantMessage {
            content,
            ..Default::default()
        })
        .into()
    }

    fn calls(ids: &[&str]) -> AgentMessage {
        let call = |id: &&str| Content::tool_call(*id, "ls", Json::null());
        answer(ids.iter().map(call).collect())
    }

    fn call(id: &str) -> AgentMessage {
        calls(&[id])
    }

    pub(super) fn result(id: &str) -> AgentMessage {
        let tool_call_id = id.to_owned();
        Message::ToolResult(ToolResultMessage {
            tool_call_id,
            ..Default::default()
        })
        .into()
    }

    fn user(text: &str) -> AgentMessage {
        Message::user(text).into()
    }

    fn kinds(messages: &[AgentMessage], in_flight: bool) -> Vec<(FaultKind, usize)> {
        faults_of(messages, in_flight)
            .into_iter()
            .map(|f| (f.kind, f.message))
            .collect()
    }

    #[test]
    fn pairs_are_no_fault_and_halves_are() {
        assert_eq!(kinds(&[call("a"), result("a")], false), []);
        assert_eq!(
            kinds(&[result("a")], false),
            [(FaultKind::ResultWithoutCall, 0)]
        );
        assert_eq!(
            kinds(&[call("a")], false),
            [(FaultKind::CallWithoutResult, 0)]
        );
        assert_eq!(
            kinds(&[call("a"), result("a"), call("a"), result("a")], false),
            [(FaultKind::DuplicateCallId, 2)]
        );
    }

    #[test]
    fn calls_of_one_answer_may_share_an_id() {
        let messages = [calls(&["", ""]), result(""), result(""), result("")];
        assert_eq!(
            kinds(&messages, false),
            [
                (FaultKind::DuplicateCallId, 0),
                (FaultKind::ResultWithoutCall, 3)
            ]
        );
    }

    #[test]
    fn a_call_made_again_leaves_the_first_without_a_result() {
        let messages = [call("a"), call("a"), result("a")];
        assert_eq!(
            kinds(&messages, false),
            [
                (FaultKind::CallWithoutResult, 0),
                (FaultKind::DuplicateCallId, 1)
            ]
        );
    }

    #[test]
    fn the_last_calls_of_a_running_loop_are_in_flight() {
        assert_eq!(kinds(&[call("a")], true), []);
        let aborted = [call("a"), user("go on"), call("b")];
        assert_eq!(kinds(&aborted, true), [(FaultKind::CallWithoutResult, 0)]);
    }

    #[test]
    fn a_result_behind_the_next_prompt_is_late() {
        let messages = [calls(&["a", "b"]), result("b"), user("wait"), result("a")];
        assert_eq!(kinds(&messages, false), [(FaultKind::LateResult, 3)]);
    }

    #[test]
    fn messages_that_say_nothing_are_told() {
        let unsigned = || answer(vec![Content::thinking("hm", None)]);
        let empty = [
            user(" \n\u{3000}"),
            answer(Vec::new()),
            Message::User(Default::default()).into(),
            unsigned(),
            user("go on"),
        ];
        let all = [0, 1, 2, 3].map(|at| (FaultKind::EmptyContent, at));
        assert_eq!(kinds(&empty, false), all);
        let pieces = [user("go"), unsigned(), answer(vec![Content::text("so")])];
        assert_eq!(kinds(&pieces, false), []);
        assert_eq!(kinds(&[user("go"), unsigned()], true), []);
        let image = Content::image("aGVsbG8=", "image/png");
        let mut prompt = Message::user("");
        prompt.content_mut().push(image);
        assert_eq!(kinds(&[prompt.into(), call("a"), result("a")], false), []);
    }

    #[test]
    fn only_what_the_originals_do_not_have_is_introduced() {
        let originals = [user("go"), call("a"), user("again"), call("b"), result("b")];
        let parted = [user("go"), call("a"), user("[Summary]"), result("b")];
        let new = introduced(&originals, &parted, false);
        assert_eq!(new.len(), 1, "{new:?}");
        assert_eq!(new[0].kind, FaultKind::ResultWithoutCall);
        assert_eq!(
            (new[0].message, new[0].tool_call_id.as_deref()),
            (3, Some("b"))
        );
        assert_eq!(introduced(&originals, &originals[2..], false), []);
    }

    #[test]
    fn an_empty_summary_is_no_empty_original() {
        let empty = user("").in_turn(TurnId::new("l", 3));
        let originals = [user("go"), empty.clone(), call("a"), result("a")];
        assert_eq!(introduced(&originals, &[user("go"), empty], false), []);
        let new = introduced(&originals, &[user("go"), user(" ")], false);
        assert_eq!(new[0].kind, FaultKind::EmptyContent);
        assert_eq!(
            introduced(&[], &[user("a"), result("a"), result("a")], false).len(),
            2
        );
    }
}
