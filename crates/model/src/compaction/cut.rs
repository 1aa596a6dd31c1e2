//! Long tool outputs, cut to their first and last lines.

use crate::{AgentMessage, Content, Message};

/// Returns `text` cut to `max_lines` lines: half of them (rounded down) from the start, the rest from the end, and a
/// line with the number of missing lines between them. `None` if `text` has no more lines than that.
///
/// Lines are those of [`str::lines`], so a final line break is lost with the cut.
///
/// ```
/// use loopstore_model::compaction::truncate_head_tail;
///
/// let cut = truncate_head_tail("1\n2\n3\n4\n5\n6", 4);
/// assert_eq!(cut.as_deref(), Some("1\n2\n\n[... 2 lines truncated ...]\n\n5\n6"));
/// assert_eq!(truncate_head_tail("1\n2", 4), None);
/// ```
pub fn truncate_head_tail(text: &str, max_lines: usize) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let omitted = lines
        .len()
        .checked_sub(max_lines)
        .filter(|omitted| *omitted > 0)?;
    let (head, rest) = lines.split_at(max_lines / 2);
    let tail = rest.get(omitted..).unwrap_or_default();
    let mark = format!("\n\n[... {omitted} lines truncated ...]\n\n");
    Some(head.join("\n") + &mark + &tail.join("\n"))
}

/// Returns a tool result with each text block cut to `max_lines` lines; `None` if `message` is no tool result or no
/// block is longer.
///
/// ```
/// use loopstore_model::compaction::cut_tool_result;
/// use loopstore_model::{AgentMessage, Content, Message, ToolResultMessage};
///
/// let result = Message::ToolResult(ToolResultMessage {
///     tool_call_id: "c1".into(),
///     tool_name: "ls".into(),
///     content: vec![Content::text("1\n2\n3\n4")],
///     ..ToolResultMessage::default()
/// });
/// let cut = cut_tool_result(&result.into(), 2);
/// let cut = cut.as_ref().and_then(AgentMessage::message).map(Message::content);
/// assert_eq!(cut, Some(&[Content::text("1\n\n[... 2 lines truncated ...]\n\n4")][..]));
/// ```
pub fn cut_tool_result(message: &AgentMessage, max_lines: usize) -> Option<AgentMessage> {
    let Some(Message::ToolResult(result)) = message.message() else {
        return None;
    };
    let cut_block = |block: &Content| match block {
        Content::Text(text) => truncate_head_tail(&text.text, max_lines),
        _ => None,
    };
    let cuts: Vec<Option<String>> = result.content.iter().map(cut_block).collect();
    if cuts.iter().all(Option::is_none) {
        return None;
    }
    let mut message = message.clone();
    for (block, cut) in message.message_mut()?.content_mut().iter_mut().zip(cuts) {
        if let (Content::Text(text), Some(cut)) = (block, cut) {
            text.text = cut;
        }
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolResultMessage;

    fn numbered(lines: usize) -> String {
        (1..=lines).map(|n| format!("{n}\n")).collect()
    }

    #[test]
    fn a_short_text_is_left_alone() {
        assert_eq!(truncate_head_tail("", 0), None);
        assert_eq!(truncate_head_tail(&numbered(50), 50), None);
        assert_eq!(truncate_head_tail("one\r\ntwo\r\n", 2), None);
    }

    #[test]
    fn half_the_lines_rounded_down_come_from_the_start() {
        let cut = truncate_head_tail(&numbered(10), 5).unwrap();
        assert_eq!(cut, "1\n2\n\n[... 5 lines truncated ...]\n\n8\n9\n10");
        let cut = truncate_head_tail(&numbered(3), 1).unwrap();
        assert_eq!(cut, "\n\n[... 2 lines truncated ...]\n\n3");
        let cut = truncate_head_tail(&numbered(3), 0).unwrap();
        assert_eq!(cut, "\n\n[... 3 lines truncated ...]\n\n");
    }

    #[test]
    fn each_text_block_of_a_tool_result_is_cut_and_nothing_else() {
        let image = Content::image("AAAA", "image/png");
        let content = vec![
            Content::text(numbered(4)),
            image.clone(),
            Content::text("short"),
        ];
        let result = AgentMessage::from(Message::ToolResult(ToolResultMessage {
            tool_call_id: "c".into(),
            content,
            ..Default::default()
        }));
        let cut = cut_tool_result(&result, 2).unwrap();
        let expected = [
            Content::text("1\n\n[... 2 lines truncated ...]\n\n4"),
            image,
            Content::text("short"),
        ];
        assert_eq!(cut.message().unwrap().content(), expected);
        assert_eq!(cut_tool_result(&result, 4), None);
        assert_eq!(
            cut_tool_result(&AgentMessage::from(Message::user(numbered(9))), 2),
            None
        );
    }
}
