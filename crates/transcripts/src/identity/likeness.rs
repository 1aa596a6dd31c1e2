//! Compares two messages that may be two states of one message.

use crate::edits::is_masked;
use loopstore::model::{AgentMessage, Content, Message};

/// The relation of an incoming message to a stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// The same message.
    Same,
    /// The same content, with other metadata: its tokens, the id of a call.
    Alike,
    /// An earlier state of the stored message.
    Older,
    /// A later state of the stored message, with more blocks.
    Longer,
    /// A later state of the stored message, with a longer text.
    Grown,
    /// The stored result of a call, of which the agent later kept only the beginning and the end.
    Masked,
}

/// Compares a stored message with an incoming one; `None` if they are different messages.
pub(super) fn likeness(stored: &AgentMessage, incoming: &AgentMessage) -> Option<Likeness> {
    let (Some(old), Some(new)) = (stored.message(), incoming.message()) else {
        // A removed message is not compared, and is not imported again.
        return stored.message().is_none().then_some(Likeness::Same);
    };
    if old == new {
        return Some(Likeness::Same);
    }
    match (old, new) {
        // A prompt is written at once, so a prompt that begins with another is a different one.
        (Message::User(_), Message::User(_)) => states(old.content(), new.content(), false),
        (Message::Assistant(_), Message::Assistant(_)) => {
            states(old.content(), new.content(), true)
        }
        (Message::ToolResult(old), Message::ToolResult(new)) => {
            let is_same_call = old.tool_call_id == new.tool_call_id;
            let is_same = is_same_call || old.tool_name == new.tool_name;
            let found = states(&old.content, &new.content, true).filter(|_| is_same);
            let masked = [&old.content, &new.content].map(|content| is_masked(content));
            match (found, masked) {
                (None, [false, true]) if is_same_call => Some(Likeness::Masked),
                (None, [true, false]) if is_same_call => Some(Likeness::Older),
                (found, _) => found,
            }
        }
        _ => None,
    }
}

fn states(old: &[Content], new: &[Content], may_grow: bool) -> Option<Likeness> {
    if is_beginning(old, new) {
        return Some(match old.len() == new.len() {
            true => Likeness::Alike,
            false => Likeness::Longer,
        });
    }
    if may_grow && has_grown(old, new) {
        return Some(Likeness::Grown);
    }
    (is_beginning(new, old) || may_grow && has_grown(new, old)).then_some(Likeness::Older)
}

/// True if the blocks of `new` begin with those of `old`.
fn is_beginning(old: &[Content], new: &[Content]) -> bool {
    old.len() <= new.len() && old.iter().zip(new).all(|(old, new)| is_alike(old, new))
}

/// True if the last text of `new` begins with the last text of `old`.
fn has_grown(old: &[Content], new: &[Content]) -> bool {
    let Some((last, before)) = old.split_last() else {
        return false;
    };
    is_beginning(before, new)
        && new
            .get(before.len())
            .is_some_and(|new| is_continued(last, new))
}

fn is_alike(old: &Content, new: &Content) -> bool {
    match (old, new) {
        (Content::Text(old), Content::Text(new)) => old.text == new.text,
        (Content::Thinking(old), Content::Thinking(new)) => old.thinking == new.thinking,
        (Content::ToolCall(old), Content::ToolCall(new)) => {
            let is_same_id = old.id == new.id && !old.id.is_empty();
            let is_unsaid = matches!(old.arguments.as_str(), "{}" | "null" | "\"\"");
            let is_same = old.arguments == new.arguments;
            old.name == new.name && (is_same || is_same_id && is_unsaid)
        }
        (Content::Sealed(old), Content::Sealed(new)) => {
            old.provider == new.provider && old.item == new.item
        }
        _ => old == new,
    }
}

fn is_continued(old: &Content, new: &Content) -> bool {
    match (old, new) {
        (Content::Text(old), Content::Text(new)) => new.text.starts_with(&old.text),
        (Content::Thinking(old), Content::Thinking(new)) => new.thinking.starts_with(&old.thinking),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compared(old: Message, new: Message) -> Option<Likeness> {
        likeness(&old.into(), &new.into())
    }

    #[test]
    fn a_masked_result_is_a_later_state_of_the_result() {
        let result = |id: &str, text: &str| Message::tool_result(id, text);
        let masked =
            "<tool_output_masked>\nOutput: one [4,000 characters omitted]\n</tool_output_masked>";
        let of = |old, new| compared(old, new);
        assert_eq!(
            of(result("c", "one\ntwo"), result("c", masked)),
            Some(Likeness::Masked)
        );
        assert_eq!(
            of(result("c", masked), result("c", "one\ntwo")),
            Some(Likeness::Older)
        );
        assert_eq!(
            of(result("c", masked), result("c", masked)),
            Some(Likeness::Same)
        );
        assert_eq!(of(result("c", "one\ntwo"), result("d", masked)), None);
    }

    #[test]
    fn an_answer_that_grew_is_a_later_state() {
        let call = |said: &str| Message::assistant(said).with_tool_call("c", "read", json!({}));
        let states = [
            Message::assistant("I loo"),
            call("I look"),
            call("I look").with_image("eA==", "image/png"),
        ];
        let [half, whole, more] = states;
        assert_eq!(compared(half.clone(), whole.clone()), Some(Likeness::Grown));
        assert_eq!(
            compared(whole.clone(), more.clone()),
            Some(Likeness::Longer)
        );
        for (new, old) in [(&more, &whole), (&whole, &half), (&more, &half)] {
            assert_eq!(compared(new.clone(), old.clone()), Some(Likeness::Older));
        }
    }

    #[test]
    fn other_words_are_another_message() {
        let said = Message::assistant;
        assert_eq!(compared(said("The cake is baked."), said("Done.")), None);
        assert_eq!(compared(Message::user("a"), Message::user("b")), None);
        assert_eq!(compared(Message::user("a"), Message::user("ab")), None);
        assert_eq!(compared(Message::user("ab"), Message::user("a")), None);
        assert_eq!(compared(Message::user("a"), said("a")), None);
        let call = |path: &str| said("").with_tool_call("1", "read", json!({ "path": path }));
        assert_eq!(compared(call("a"), call("b")), None);
    }

    #[test]
    fn a_result_that_says_something_else_is_another_message() {
        let result = |id: &str, text: &str| Message::tool_result(id, text);
        assert_eq!(compared(result("c", "pending"), result("c", "done")), None);
        assert_eq!(
            compared(result("c", "a"), result("d", "a")),
            Some(Likeness::Alike)
        );
        let grown = compared(result("c", "a"), result("c", "a\nb"));
        assert_eq!(grown, Some(Likeness::Grown));
    }
}
