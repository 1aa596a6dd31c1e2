//! A stored conversation as a text for the model of an agent that begins a new session.

use loopstore::compact::compacted_messages;
use loopstore::context::BuildError;
use loopstore::model::{AgentMessage, Content, Message, SessionId};
use loopstore::{BuildOptions, Policy, Store, build_context_from_session};

/// The first and the last line of the text.
const BEGINNING: &str = "[The earlier conversation of this session, which loopstore recorded. Continue from it; do not \
    answer it again.]";
const END: &str = "[End of the earlier conversation. The next message is new.]";

/// Returns the context of a session as a text, compacted to `max_tokens` if it is larger; `None` if it is empty.
/// Nothing is written.
pub(crate) fn handed_context(
    store: &Store,
    session: &SessionId,
    max_tokens: u64,
) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let options = BuildOptions {
        budget: Some(max_tokens),
        ..BuildOptions::default()
    };
    let messages = match build_context_from_session(store.database(), session, &options) {
        Ok(context) => context.messages,
        Err(BuildError::NeedsCompaction { .. }) => {
            let request = Policy::new(max_tokens).request();
            compacted_messages(store.database(), session, &request)?
        }
        Err(error) => return Err(error.into()),
    };
    Ok(text_of(&messages))
}

fn text_of(messages: &[AgentMessage]) -> Option<String> {
    let parts: Vec<String> = messages
        .iter()
        .filter_map(AgentMessage::message)
        .filter_map(message_text)
        .collect();
    let text = parts.join("\n\n");
    (!parts.is_empty()).then(|| format!("{BEGINNING}\n\n{text}\n\n{END}\n\n"))
}

fn message_text(message: &Message) -> Option<String> {
    let heading = match message {
        Message::User(_) => "User:".to_owned(),
        Message::Assistant(_) => "Assistant:".to_owned(),
        Message::ToolResult(result) if result.is_error => format!("Failed {}:", result.tool_name),
        Message::ToolResult(result) => format!("Result of {}:", result.tool_name),
    };
    let blocks = message.content().iter().filter_map(block_text);
    let text = blocks.collect::<Vec<_>>().join("\n");
    (!text.trim().is_empty()).then(|| format!("{heading}\n{text}"))
}

fn block_text(block: &Content) -> Option<String> {
    match block {
        Content::Text(text) => Some(text.text.clone()),
        Content::ToolCall(call) => {
            Some(format!("[calls {} {}]", call.name, call.arguments.as_str()))
        }
        Content::Image(image) => Some(format!("[an image, {}]", image.mime_type)),
        // The reasoning of another session is not part of the conversation.
        Content::Thinking(_) | Content::Sealed(_) | Content::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_has_the_conversation_in_order_and_nothing_else() {
        let call = Message::assistant("I look.")
            .with_thinking("hidden", None)
            .with_tool_call("c1", "forecast", json!({"days": 3}));
        let messages = [
            Message::user("Will it rain?").into(),
            AgentMessage::extension("note", json!({}).into()),
            call.into(),
            Message::tool_result("c1", "Rain.").into(),
        ];
        let text = text_of(&messages).unwrap();
        let expected = "User:\nWill it rain?\n\nAssistant:\nI look.\n[calls forecast {\"days\":3}]\n\nResult of ";
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("hidden"));
        assert_eq!(text_of(&[]), None);
    }
}
