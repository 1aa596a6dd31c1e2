//! Calls in the text of an answer, written as elements: `<read_file><path>a.rs</path></read_file>`.

use loopstore::model::{Content, Json};
use serde_json::{Map, Value};

use super::words::TOOLS;
use crate::values::call;

/// Splits the text of an answer into texts and calls. A call is a whole element at the beginning of a line; an element
/// in a code block is an example. The ids of the calls begin with `name`.
pub(super) fn calls_in(text: &str, name: &str) -> Vec<Content> {
    let (mut content, mut from, mut number) = (Vec::new(), 0, 0);
    let (mut at, mut in_code) = (0, false);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        if start < from {
            continue;
        }
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let Some((tool, body, end)) = element(&text[start..]).filter(|_| !in_code) else {
            continue;
        };
        push_text(&text[from..start], &mut content);
        number += 1;
        let id = match number {
            1 => name.to_owned(),
            _ => format!("{name}-{number}"),
        };
        let mut call = call(id, tool.to_owned());
        call.arguments = Json::of(&parameters(body)).unwrap_or_default();
        content.push(Content::ToolCall(call));
        from = start + end;
    }
    push_text(&text[from..], &mut content);
    content
}

fn push_text(text: &str, content: &mut Vec<Content>) {
    let text = text.trim();
    if !text.is_empty() {
        content.push(Content::text(text));
    }
}

/// Reads the element of a tool at the beginning of a text: its name, its content, and its length.
fn element(text: &str) -> Option<(&str, &str, usize)> {
    let rest = text.strip_prefix('<')?;
    let (name, body) = rest.split_once('>')?;
    if !TOOLS.contains(&name) {
        return None;
    }
    let close = format!("</{name}>");
    // The written file may contain the same element.
    let end = match name {
        "write_to_file" => last_before_other(body, &close),
        _ => body.find(&close),
    }?;
    let begin = text.len() - body.len();
    Some((name, &body[..end], begin + end + close.len()))
}

/// Returns the offset of the last `close` that is alone on its line.
fn last_before_other(body: &str, close: &str) -> Option<usize> {
    let alone = body.match_indices(close).filter(|(at, _)| {
        let line = body[..*at].rfind('\n').map_or(0, |line| line + 1);
        body[line..*at].trim().is_empty()
    });
    alone.map(|(at, _)| at).last().or_else(|| body.find(close))
}

/// Reads the parameters of a call, which are elements; a text parameter may contain elements.
fn parameters(body: &str) -> Map<String, Value> {
    let (mut found, mut left) = (Map::new(), body);
    while let Some((_, rest)) = left.split_once('<') {
        left = rest;
        let Some((name, value)) = rest.split_once('>') else {
            break;
        };
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            continue;
        }
        let close = format!("</{name}>");
        let end = match name {
            "content" | "diff" => value.rfind(&close),
            _ => value.find(&close),
        };
        let Some(end) = end else { continue };
        let text = value[..end].trim_matches('\n');
        found.insert(name.to_owned(), text.into());
        left = &value[end + close.len()..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<String> {
        let shown = |part: &Content| match part {
            Content::ToolCall(call) => {
                format!("{} {} {}", call.id, call.name, call.arguments.as_str())
            }
            Content::Text(text) => text.text.clone(),
            other => format!("{other:?}"),
        };
        calls_in(text, "x1").iter().map(shown).collect()
    }

    #[test]
    fn calls_come_out_of_a_text_with_what_stands_around_them() {
        let text = "I look.\n\n<read_file>\n<path>a.rs</path>\n</read_file>\n<list_files>\n<path>.</path>\n</list_files>\nThen more.";
        assert_eq!(
            parts(text),
            [
                "I look.",
                r#"x1 read_file {"path":"a.rs"}"#,
                r#"x1-2 list_files {"path":"."}"#,
                "Then more."
            ]
        );
        let nested = "<read_file>\n<args><file><path>a</path></file></args>\n</read_file>";
        assert_eq!(
            parts(nested),
            [r#"x1 read_file {"args":"<file><path>a</path></file>"}"#]
        );
    }

    #[test]
    fn what_a_file_holds_ends_no_call() {
        let text = "<write_to_file>\n<path>a</path>\n<content>\nx</content></write_to_file>y\n</content>\n</write_to_file>";
        assert_eq!(
            parts(text),
            [r#"x1 write_to_file {"content":"x</content></write_to_file>y","path":"a"}"#]
        );
    }

    #[test]
    fn examples_halves_and_unknown_elements_stay_text() {
        for text in [
            "Write <read_file><path>a</path></read_file> in a line.",
            "```\n<read_file>\n<path>a</path>\n</read_file>\n```",
            "<read_file>\n<path>a</path>\n\n[Response interrupted by user]",
            "<thinking>\nI think.\n</thinking>",
            "<read_file",
            "<>",
        ] {
            assert_eq!(parts(text), [text]);
        }
        assert!(parts(" \n").is_empty());
    }
}
