//! Token counting, section 5.

use super::types::{RefKind, RefMessage, RefOut};

/// Returns `ceil(bytes/4)`.
pub fn estimate(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// Returns the tokens of a message: "text and thinking = ceil(bytes/4), signatures nothing; user
/// and assistant +4; tool result + tool name + 8; tool call = name + arguments as compact JSON +
/// 8; extension = json + 4".
pub fn message_tokens(m: &RefMessage) -> u64 {
    match m.kind {
        RefKind::User | RefKind::Assistant | RefKind::Extension => content_tokens(m) + 4,
        RefKind::ToolResult => content_tokens(m) + estimate(&m.tool_name) + 8,
    }
}

fn content_tokens(m: &RefMessage) -> u64 {
    let texts: u64 = m.texts.iter().map(|t| estimate(t)).sum();
    let thinking: u64 = m.thinking.iter().map(|(t, _)| estimate(t)).sum();
    let calls = m
        .calls
        .iter()
        .map(|(_, name, args)| estimate(name) + estimate(args) + 8);
    texts + thinking + calls.sum::<u64>()
}

/// Returns the sum over a context.
pub fn context_tokens(context: &[RefOut]) -> u64 {
    context.iter().map(|o| o.tokens).sum()
}
