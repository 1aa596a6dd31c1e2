//! A session for people, as Markdown.
//!
//! The texts of a transcript are in fences longer than any row of backticks in them, so that no
//! markup in it counts; characters that could steer a terminal are shown as `\u{1b}`.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use loopstore::extend as store;
use loopstore::extend::{LoopRow, SessionRow, StoreRead};
use loopstore::model::{AgentMessage, Author, Content, Message, Time};

use super::{ExportError, ExportRange, each_message, visible};

/// Writes the session.
pub(super) fn write(
    read: &dyn StoreRead,
    session: &SessionRow,
    stretches: &[ExportRange],
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let title = session.title.as_deref().filter(|title| !title.is_empty());
    let title = title.unwrap_or(session.session_id.as_str());
    writeln!(out, "# {}\n", span(title))?;
    writeln!(out, "- session {}", span(session.session_id.as_str()))?;
    let facts = [
        ("agent", &session.agent_id),
        ("from", &session.source),
        ("created", &session.created_at),
        ("last active", &session.last_active_at),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            writeln!(out, "- {name} {}", span(value))?;
        }
    }
    for stretch in stretches {
        one_loop(read, stretch, out)?;
    }
    Ok(())
}

fn one_loop(
    read: &dyn StoreRead,
    stretch: &ExportRange,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    writeln!(out, "\n## Loop {}\n", span(stretch.row.loop_id.as_str()))?;
    writeln!(out, "{}", origin(&stretch.row))?;
    let mut last = None;
    each_message(read, stretch, &mut |row| {
        if let Some(turn) = row.turn.filter(|turn| last != Some(*turn)) {
            writeln!(out, "\n### Turn {turn}")?;
            last = Some(turn);
        }
        let at = row.created_at;
        one_message(&store::decode(read, row.body)?, at, out)
    })
}

fn origin(row: &LoopRow) -> String {
    let mut line = span(row.status.as_str());
    if let Some(parent) = &row.parent_loop_id {
        line.push_str(&format!(", goes on from {}", span(parent.as_str())));
        match (row.parent_turn, row.parent_seq) {
            (Some(turn), Some(seq)) => {
                line.push_str(&format!(" after message {seq} of turn {turn}"));
            }
            (Some(turn), None) => line.push_str(&format!(" after turn {turn}")),
            (None, _) => {}
        }
    }
    line
}

fn one_message(
    message: &AgentMessage,
    at: Option<i64>,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let time = at.and_then(Time::from_millis);
    let time = time.map_or_else(String::new, |time| format!(", {}", time.as_str()));
    writeln!(out, "\n{}{time}", head(message))?;
    match message {
        AgentMessage::Extension(extension) => {
            write!(out, "\n{}", fenced("json", extension.data.as_str()))?;
        }
        AgentMessage::Llm(llm) => {
            for block in llm.message.content() {
                write!(out, "\n{}", block_text(block))?;
            }
        }
    }
    Ok(())
}

fn head(message: &AgentMessage) -> String {
    match message {
        AgentMessage::Extension(extension) => format!("**note** {}", span(&extension.kind)),
        AgentMessage::Llm(llm) => match &llm.message {
            Message::User(_) => match llm.message.author() {
                Author::Human => "**user**".to_owned(),
                author => format!("**user** ({})", author.as_str()),
            },
            Message::Assistant(_) => "**assistant**".to_owned(),
            Message::ToolResult(result) => {
                let failed = if result.is_error { ", failed" } else { "" };
                let (tool, call) = (span(&result.tool_name), span(&result.tool_call_id));
                format!("**result** of {tool} (call {call}){failed}")
            }
        },
    }
}

fn block_text(block: &Content) -> String {
    match block {
        Content::Text(text) => fenced("text", &text.text),
        Content::Thinking(thinking) => {
            format!("thinking:\n\n{}", fenced("text", &thinking.thinking))
        }
        Content::Image(image) => {
            let bytes = STANDARD.decode(&image.data).map_or(0, |data| data.len());
            format!("(image {}, {bytes} bytes)\n", span(&image.mime_type))
        }
        Content::ToolCall(call) => format!(
            "call {} of {}:\n\n{}",
            span(&call.id),
            span(&call.name),
            fenced("json", call.arguments.as_str())
        ),
        Content::Sealed(sealed) => {
            let label = format!("({sealed})\n");
            match sealed.readable() {
                Some(text) => format!("{label}\n{}", fenced("text", &text)),
                None => label,
            }
        }
        Content::Other(json) => fenced("json", &json.readable()),
    }
}

/// Returns text between fences that no part of it can end.
fn fenced(kind: &str, text: &str) -> String {
    let text = visible(text);
    let fence = "`".repeat((longest_row(&text) + 1).max(3));
    let end = if text.ends_with('\n') || text.is_empty() {
        ""
    } else {
        "\n"
    };
    format!("{fence}{kind}\n{text}{end}{fence}\n")
}

/// Returns text on one line that no part of it can end or format.
fn span(text: &str) -> String {
    let text = visible(text).replace('\n', "\\n").replace('\t', "\\t");
    if text.is_empty() {
        return "``  ``".to_owned();
    }
    let ticks = "`".repeat(longest_row(&text) + 1);
    let edge = |c: Option<char>| c.is_some_and(|c| c == '`' || c == ' ');
    let pad = match edge(text.chars().next()) || edge(text.chars().last()) {
        true => " ",
        false => "",
    };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

fn longest_row(text: &str) -> usize {
    let rows = text.split(|c| c != '`').map(str::len);
    rows.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_ends_its_fence() {
        let hostile = "a\n```\n# not a heading\n`````\r\n<script>";
        let fenced = fenced("text", hostile);
        assert!(fenced.starts_with("``````text\n") && fenced.ends_with("\n``````\n"));
        assert_eq!(fenced.matches("``````").count(), 2);
        assert!(fenced.contains("\\u{d}"));
        assert_eq!(super::fenced("text", ""), "```text\n```\n");
    }

    #[test]
    fn nothing_in_a_name_ends_its_span() {
        assert_eq!(span("plain"), "`plain`");
        assert_eq!(span("`a``b"), "``` `a``b ```");
        assert_eq!(span("a\n# b"), "`a\\n# b`");
        assert_eq!(span(" x"), "`  x `");
        assert_eq!(span("\u{1b}[2J"), "`\\u{1b}[2J`");
    }
}
