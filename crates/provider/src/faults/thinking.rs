//! Signed thinking and the calls that it belongs to.
//!
//! A provider that signs thinking requires the thinking of the current tool-use cycle unchanged: that of all answers
//! after the last prompt. Earlier thinking may be left out, so only answers after the last prompt are checked. An
//! answer here is a message with content other than thinking, together with the messages of thinking only before it in
//! its turn.

use std::collections::HashMap;

use super::{ContextFault, FaultKind, continues_answer};
use loopstore_model::{AgentMessage, Content, Message, Role};

/// An answer of the model.
struct ThinkingAnswer<'a> {
    /// The index of its last message.
    at: usize,
    blocks: Vec<&'a Content>,
    /// True if no message with content follows the answer.
    is_last: bool,
}

impl<'a> ThinkingAnswer<'a> {
    fn first_call(&self) -> Option<&'a str> {
        let mut calls = self.blocks.iter().filter_map(|block| match block {
            Content::ToolCall(call) => Some(&*call.id),
            _ => None,
        });
        calls.next()
    }

    fn is_signed(&self) -> bool {
        self.blocks.iter().any(|block| block.is_signed_thinking())
    }

    /// The blocks that must be kept together: signed thinking and calls, in their order.
    fn marks(&self) -> Vec<ThinkingMark<'a>> {
        self.blocks.iter().filter_map(|block| mark(block)).collect()
    }

    fn fault(&self) -> ContextFault {
        ContextFault {
            kind: FaultKind::ThinkingParted,
            message: self.at,
            tool_call_id: self.first_call().map(str::to_owned),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ThinkingMark<'a> {
    Signed(&'a str, &'a str),
    Sealed(&'a str),
    Call(&'a str),
}

fn mark(block: &Content) -> Option<ThinkingMark<'_>> {
    match block {
        Content::ToolCall(call) => Some(ThinkingMark::Call(&call.id)),
        Content::Thinking(thinking) => {
            let signature = thinking.signature.as_deref().filter(|s| !s.is_empty())?;
            Some(ThinkingMark::Signed(&thinking.thinking, signature))
        }
        Content::Sealed(sealed) if block.is_signed_thinking() => {
            Some(ThinkingMark::Sealed(sealed.item.as_str()))
        }
        _ => None,
    }
}

/// Returns the answers of `messages`; `from` is the index of the first message in the whole list.
fn answers(messages: &[AgentMessage], from: usize) -> Vec<ThinkingAnswer<'_>> {
    let mut answers: Vec<ThinkingAnswer<'_>> = Vec::new();
    let mut is_open = false;
    for (at, message) in messages.iter().enumerate() {
        let Some(message) = message.message() else {
            continue;
        };
        let Message::Assistant(answer) = message else {
            is_open = false;
            continue;
        };
        if !is_open {
            answers.push(ThinkingAnswer {
                at: from + at,
                blocks: Vec::new(),
                is_last: false,
            });
        }
        if let Some(open) = answers.last_mut() {
            open.at = from + at;
            open.blocks.extend(&answer.content);
        }
        let is_thinking = answer.content.iter().all(Content::is_thinking);
        is_open = is_thinking && continues_answer(messages, at);
        let speaks = |message: &AgentMessage| message.role() != Role::Extension;
        if let Some(last) = answers.last_mut() {
            last.is_last = is_thinking && !messages[at + 1..].iter().any(speaks);
        }
    }
    answers
}

/// Returns the answers after the last prompt.
fn cycle(messages: &[AgentMessage]) -> Vec<ThinkingAnswer<'_>> {
    let is_prompt = |message: &AgentMessage| matches!(message.message(), Some(Message::User(_)));
    let start = messages.iter().rposition(is_prompt).map_or(0, |at| at + 1);
    answers(&messages[start..], start)
}

/// Returns the faults that `messages` alone show: after the last prompt, an answer that ends with signed thinking (the
/// rest of it is missing), or one with calls and unsigned thinking while other thinking is signed (the signature is
/// missing). With `in_flight`, the last answer may be incomplete.
pub(super) fn parted(messages: &[AgentMessage], in_flight: bool) -> Vec<ContextFault> {
    let answers = cycle(messages);
    if !answers.iter().any(ThinkingAnswer::is_signed) {
        return Vec::new();
    }
    let lacks_end = |answer: &ThinkingAnswer<'_>| {
        let last = answer
            .blocks
            .iter()
            .rfind(|block| says(block) || block.is_thinking());
        let ends = last.is_some_and(|block| block.is_signed_thinking());
        ends && !(in_flight && answer.is_last)
    };
    // OpenAI seals some of its reasoning and returns the rest as readable text, which has no signature.
    let signs = |block: &&Content| match block {
        Content::Sealed(sealed) => sealed.provider != "openai" && block.is_signed_thinking(),
        block => block.is_signed_thinking(),
    };
    let mut blocks = answers.iter().flat_map(|answer| &answer.blocks);
    let is_signed = blocks.any(signs);
    let is_unsigned = |block: &&Content| block.is_thinking() && !block.is_signed_thinking();
    let lacks_signature = |answer: &ThinkingAnswer<'_>| {
        is_signed && answer.first_call().is_some() && answer.blocks.iter().any(is_unsigned)
    };
    let mut faulty = answers;
    faulty.retain(|answer| lacks_end(answer) || lacks_signature(answer));
    faulty.iter().map(ThinkingAnswer::fault).collect()
}

fn says(block: &Content) -> bool {
    match block {
        Content::Text(text) => !text.text.trim().is_empty(),
        Content::ToolCall(_) => true,
        _ => false,
    }
}

/// Returns the answers after the last prompt of `shown` whose signed thinking and calls differ from those of
/// `originals`: thinking removed or changed while calls are kept, or kept while calls are removed. Answers that the
/// originals do not have are no fault.
pub(super) fn parted_from(originals: &[AgentMessage], shown: &[AgentMessage]) -> Vec<ContextFault> {
    let shown = cycle(shown);
    let originals = answers(originals, 0);
    let mut having: HashMap<ThinkingMark<'_>, Vec<usize>> = HashMap::new();
    for mark in shown.iter().flat_map(ThinkingAnswer::marks) {
        having.insert(mark, Vec::new());
    }
    for (at, original) in originals.iter().enumerate() {
        for mark in original.marks() {
            if let Some(places) = having.get_mut(&mark) {
                places.push(at);
            }
        }
    }
    let is_parted = |answer: &&ThinkingAnswer<'_>| {
        let marks = answer.marks();
        let mut same = marks.iter().filter_map(|mark| having.get(mark)).flatten();
        let is_signed = |at: &usize| originals[*at].is_signed() || answer.is_signed();
        let mut any = false;
        let is_whole = same.any(|at| {
            any |= is_signed(at);
            originals[*at].marks() == marks
        });
        any && !is_whole
    };
    shown
        .iter()
        .filter(is_parted)
        .map(ThinkingAnswer::fault)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{introduced, tests::*};
    use super::*;
    use loopstore_model::Json;

    fn thought(text: &str) -> Content {
        Content::thinking(text, Some("c2ln".into()))
    }

    fn of_call(id: &str) -> Content {
        Content::tool_call(id, "ls", Json::null())
    }

    fn parts(shown: &[AgentMessage], in_flight: bool) -> Vec<usize> {
        parted(shown, in_flight)
            .iter()
            .map(|fault| fault.message)
            .collect()
    }

    fn lost(originals: &[AgentMessage], shown: &[AgentMessage]) -> Vec<(usize, Option<String>)> {
        let faults = introduced(originals, shown, false).into_iter();
        faults
            .filter(|fault| fault.kind == FaultKind::ThinkingParted)
            .map(|fault| (fault.message, fault.tool_call_id))
            .collect()
    }

    fn cycle_of(first: Vec<Content>) -> Vec<AgentMessage> {
        vec![
            Message::user("go").into(),
            answer(first),
            result("a"),
            answer(vec![thought("second"), of_call("b")]),
            result("b"),
        ]
    }

    #[test]
    fn thinking_that_led_nowhere_is_parted() {
        let messages = [Message::user("go").into(), answer(vec![thought("x")])];
        assert_eq!(parts(&messages, false), [1]);
        assert!(parts(&messages, true).is_empty());
        let continues_answer = [&messages[..], &[answer(vec![of_call("a")]), result("a")]].concat();
        assert!(parts(&continues_answer, false).is_empty());
        let before = [&messages[..], &[Message::user("and?").into()]].concat();
        assert!(parts(&before, false).is_empty());
    }

    #[test]
    fn a_lost_signature_is_told_by_the_others() {
        let unsigned = Content::thinking("first", None);
        assert_eq!(parts(&cycle_of(vec![unsigned, of_call("a")]), false), [1]);
        // A model may think at a later step only, and OpenAI seals only some of its reasoning.
        let sealed = Content::sealed("openai", Json::parse(r#"{"type":"reasoning"}"#).unwrap());
        let mut open = cycle_of(vec![Content::thinking("first", None), of_call("a")]);
        open[3] = answer(vec![sealed, of_call("b")]);
        assert!(parts(&open, false).is_empty());
        assert!(parts(&cycle_of(vec![of_call("a")]), false).is_empty());
    }

    #[test]
    fn thinking_removed_or_altered_is_told_by_the_originals() {
        let originals = cycle_of(vec![thought("first"), of_call("a")]);
        assert_eq!(lost(&originals, &originals), []);
        assert_eq!(lost(&originals, &originals[..1]), []);
        let parted = [(1, Some("a".to_owned()))];
        assert_eq!(lost(&originals, &cycle_of(vec![of_call("a")])), parted);
        let altered = cycle_of(vec![thought("f…"), of_call("a")]);
        assert_eq!(lost(&originals, &altered), parted);
        let other_text = vec![thought("first"), Content::text("hm"), of_call("a")];
        assert_eq!(lost(&originals, &cycle_of(other_text)), []);
    }

    #[test]
    fn thinking_kept_without_its_calls_is_told_by_the_originals() {
        let originals = cycle_of(vec![thought("first"), of_call("a")]);
        let mut shown = cycle_of(vec![thought("first"), Content::text("done")]);
        shown.remove(2);
        assert_eq!(lost(&originals, &shown), [(1, None)]);
        // Answers before the last prompt may lose their thinking.
        shown.push(Message::user("next").into());
        assert_eq!(lost(&originals, &shown), []);
    }

    #[test]
    fn an_answer_in_two_messages_is_one() {
        let mut originals = cycle_of(vec![of_call("a")]);
        let shown = originals.clone();
        originals.insert(1, answer(vec![thought("first")]));
        assert_eq!(lost(&originals, &shown), [(1, Some("a".to_owned()))]);
        assert_eq!(lost(&originals, &originals), []);
    }
}
