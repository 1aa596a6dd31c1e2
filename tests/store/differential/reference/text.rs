//! The texts of strategy `one-liner`, and the cut of tool results.

use super::tokens::{estimate, message_tokens};
use super::turns::groups;
use super::types::*;

/// Cuts a text as the original algorithm does: the head has max/2 lines rounded down, the tail the others, with a
/// marker between them.
pub fn truncate_head_tail(text: &str, max_lines: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= max_lines {
        return text.to_string();
    }
    let head = max_lines / 2;
    let tail = max_lines - head;
    let omitted = lines.len() - head - tail;
    let marker = format!("\n\n[... {omitted} lines truncated ...]\n\n");
    lines[..head].join("\n") + &marker + &lines[lines.len() - tail..].join("\n")
}

/// Returns a tool result with each text cut, or `None` if no text changes.
pub fn cut_result(m: &RefMessage, max_lines: usize) -> Option<RefMessage> {
    if m.kind != RefKind::ToolResult {
        return None;
    }
    let texts = m
        .texts
        .iter()
        .map(|t| truncate_head_tail(t, max_lines))
        .collect();
    let cut = RefMessage { texts, ..m.clone() };
    (cut != *m).then_some(cut)
}

/// Returns the cut tool results of turns `from..to`. "A pinned message is kept word for word."
pub fn cut_turns(
    l: &RefLoop,
    from: u32,
    to: u32,
    max_lines: usize,
    is_pinned: impl Fn(usize) -> bool,
) -> Vec<RefReplacement> {
    let mut cuts = Vec::new();
    for (turn, i) in messages_of(l, from, to) {
        if is_pinned(i) {
            continue;
        }
        if let Some(message) = cut_result(&l.messages[i], max_lines) {
            cuts.push(RefReplacement {
                turn,
                replaces: Some(i),
                quotes: None,
                message,
            });
        }
    }
    cuts
}

/// Returns the summary of turns `from..to`: "one `[Summary] …` user message per assistant message
/// ..., costing the token estimate of that whole text with its prefix and no +4; it stops at the
/// first that does not fit what is left of `max_summary_tokens`".
pub fn one_liners(l: &RefLoop, from: u32, to: u32, max_summary_tokens: u64) -> Vec<RefReplacement> {
    let mut left = max_summary_tokens;
    let mut out = Vec::new();
    for (turn, i) in messages_of(l, from, to) {
        if l.messages[i].kind != RefKind::Assistant {
            continue;
        }
        let text = one_liner(&l.messages[i]);
        let cost = estimate(&text);
        if cost > left {
            break;
        }
        left -= cost;
        let message = RefMessage::new(RefKind::User, None, 0).with_text(text);
        out.push(RefReplacement {
            turn,
            replaces: None,
            quotes: None,
            message,
        });
    }
    out
}

/// Returns the line for an assistant message: "its texts of up to 200 bytes joined by a space,
/// else `[Assistant used N tool(s)]`, else `[Assistant response]`".
pub fn one_liner(m: &RefMessage) -> String {
    let short: Vec<&str> = m
        .texts
        .iter()
        .map(String::as_str)
        .filter(|t| t.len() <= 200)
        .collect();
    let line = if !short.is_empty() {
        short.join(" ")
    } else if !m.calls.is_empty() {
        format!("[Assistant used {} tool(s)]", m.calls.len())
    } else {
        "[Assistant response]".to_string()
    };
    format!("[Summary] {line}")
}

/// Returns the text of a rollup: "a line for each answer" and the lines of the summaries shown, the
/// newest that fit.
pub fn rollup_of_lines(shown: &[RefOut], most: u64) -> Vec<RefMessage> {
    const HEAD: &str = "[Summary of earlier loops]";
    let mut lines: Vec<String> = Vec::new();
    for out in shown {
        match (out.message.kind, out.original) {
            (RefKind::Assistant, _) => lines.push(one_liner(&out.message)),
            (RefKind::User, None) => {
                let texts = out.message.texts.iter();
                lines.extend(texts.flat_map(|t| t.lines()).map(String::from));
            }
            _ => {}
        }
    }
    lines.retain(|line| !line.is_empty() && line != HEAD);
    while !lines.is_empty() {
        let text = format!("{HEAD}\n{}", lines.join("\n"));
        let message = RefMessage::new(RefKind::User, None, 0).with_text(text);
        if message_tokens(&message) <= most {
            return vec![message];
        }
        lines.remove(0);
    }
    Vec::new()
}

/// Returns turn and index of each message of turns `from..to`.
pub fn messages_of(l: &RefLoop, from: u32, to: u32) -> Vec<(u32, usize)> {
    let groups = groups(l);
    let turns = (from..to).flat_map(|t| groups[t as usize].iter().map(move |&i| (t, i)));
    turns.collect()
}
