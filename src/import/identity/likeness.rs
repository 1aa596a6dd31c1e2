//! Whether two messages are two states of one.

use crate::model::{AgentMessage, Content, Message, ToolResultMessage};

/// What an incoming message is to the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// It says the same.
    Same,
    /// An earlier state of it.
    Older,
    /// A later state of it, which holds all that it says.
    Later,
    /// The same message, which says something else.
    Conflicting,
}

/// Compares a stored message with an incoming one; `None` if they are two messages.
pub(super) fn likeness(stored: &AgentMessage, incoming: &AgentMessage) -> Option<Likeness> {
    let (Some(old), Some(new)) = (stored.message(), incoming.message()) else {
        // What was removed is not compared any more, and does not come back.
        return stored.message().is_none().then_some(Likeness::Same);
    };
    if old == new {
        return Some(Likeness::Same);
    }
    match (old, new) {
        (Message::User(_), Message::User(_)) | (Message::Assistant(_), Message::Assistant(_)) => {
            states(old.content(), new.content())
        }
        (Message::ToolResult(old), Message::ToolResult(new)) => results(old, new),
        _ => None,
    }
}

fn results(old: &ToolResultMessage, new: &ToolResultMessage) -> Option<Likeness> {
    let is_same_call = old.tool_call_id == new.tool_call_id && !old.tool_call_id.is_empty();
    match states(&old.content, &new.content) {
        Some(state) if is_same_call || old.tool_name == new.tool_name => Some(state),
        _ => is_same_call.then_some(Likeness::Conflicting),
    }
}

fn states(old: &[Content], new: &[Content]) -> Option<Likeness> {
    if is_earlier(old, new) {
        return Some(Likeness::Later);
    }
    is_earlier(new, old).then_some(Likeness::Older)
}

/// True if `new` holds all of `old`: its last text may have grown, and blocks may stand behind it.
fn is_earlier(old: &[Content], new: &[Content]) -> bool {
    let Some((last, before)) = old.split_last() else {
        return true;
    };
    let Some(grown) = new.get(before.len()) else {
        return false;
    };
    let same = before.iter().zip(new).all(|(old, new)| is_alike(old, new));
    same && (is_alike(last, grown) || has_grown(last, grown))
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

fn has_grown(old: &Content, new: &Content) -> bool {
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
    fn an_answer_that_grew_is_a_later_state() {
        let (half, whole) = (
            Message::assistant("I loo"),
            Message::assistant("I look").with_tool_call("c", "read", json!({})),
        );
        let later = compared(half.clone(), whole.clone());
        assert_eq!(later, Some(Likeness::Later));
        assert_eq!(compared(whole, half), Some(Likeness::Older));
    }

    #[test]
    fn other_words_are_another_message() {
        let said = Message::assistant;
        assert_eq!(compared(said("The cake is baked."), said("Done.")), None);
        assert_eq!(compared(Message::user("a"), Message::user("b")), None);
        assert_eq!(compared(Message::user("a"), said("a")), None);
        let call = |path: &str| said("").with_tool_call("1", "read", json!({ "path": path }));
        assert_eq!(compared(call("a"), call("b")), None);
    }

    #[test]
    fn a_result_is_known_by_its_call() {
        let result = |id: &str, text: &str| Message::tool_result(id, text);
        let conflict = compared(result("c", "pending"), result("c", "done"));
        assert_eq!(conflict, Some(Likeness::Conflicting));
        assert_eq!(compared(result("c", "a"), result("d", "b")), None);
        let grown = compared(result("c", "a"), result("c", "a\nb"));
        assert_eq!(grown, Some(Likeness::Later));
    }
}
