//! One line in place of an answer.

use crate::model::{AssistantMessage, Content};

/// Texts longer than this many bytes do not go into a one-liner.
const SHORT_TEXT_BYTES: usize = 200;

/// Returns `[Summary] ` and the answer's short texts joined by a space; without one, how many
/// tools it called; without those, `[Assistant response]`.
///
/// ```
/// use loopstore::{AssistantMessage, Content, one_liner};
///
/// let content = vec![Content::text("The roof leaks.")];
/// let answer = AssistantMessage { content, ..AssistantMessage::default() };
/// assert_eq!(one_liner(&answer), "[Summary] The roof leaks.");
/// ```
pub fn one_liner(message: &AssistantMessage) -> String {
    format!("[Summary] {}", gist(&message.content))
}

fn gist(content: &[Content]) -> String {
    let short: Vec<&str> = content
        .iter()
        .filter_map(|block| match block {
            Content::Text(text) if text.text.len() <= SHORT_TEXT_BYTES => Some(text.text.as_str()),
            _ => None,
        })
        .collect();
    let calls = content
        .iter()
        .filter(|block| matches!(block, Content::ToolCall(_)))
        .count();
    match (short.is_empty(), calls) {
        (false, _) => short.join(" "),
        (true, 0) => "[Assistant response]".into(),
        (true, calls) => format!("[Assistant used {calls} tool(s)]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Json;

    fn line(content: Vec<Content>) -> String {
        one_liner(&AssistantMessage {
            content,
            ..Default::default()
        })
    }

    #[test]
    fn short_texts_are_joined_and_long_ones_left_out() {
        let call = Content::tool_call("c", "ls", Json::null());
        let texts = vec![
            Content::text("One."),
            Content::text("x".repeat(201)),
            call,
            Content::text("é".repeat(100)),
        ];
        assert_eq!(line(texts), format!("[Summary] One. {}", "é".repeat(100)));
    }

    #[test]
    fn without_a_short_text_the_tools_are_counted() {
        let call = Content::tool_call("c", "ls", Json::null());
        let long = Content::text("é".repeat(101));
        let calls = vec![long.clone(), call.clone(), call];
        assert_eq!(line(calls), "[Summary] [Assistant used 2 tool(s)]");
        assert_eq!(line(vec![long]), "[Summary] [Assistant response]");
        assert_eq!(line(Vec::new()), "[Summary] [Assistant response]");
    }
}
