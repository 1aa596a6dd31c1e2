//! Rollouts of the first Codex, which was written in TypeScript: one document `{session, items}` per save.
//!
//! The document is converted to the lines that later versions write: the session first, then each item on the line that
//! it has in the document, so that a skipped item is reported with its line.

use super::super::fields::list;
use super::super::json_stream::{JsonDocument, LineCounter};
use super::super::key_outline::KeyOutline;

/// True if a file begins with such a document.
pub(super) fn is_document(head: &KeyOutline) -> bool {
    let has_session = head.has("session.id") && head.has("session.timestamp");
    has_session && (head.has("items") || head.has("items[].type")) && !head.has("messages")
}

/// Returns the records of a document as lines.
///
/// # Errors
/// If the document lacks a part; the error names it.
pub(super) fn lines(mut document: JsonDocument<'_>) -> Result<String, String> {
    let Some(items) = document.fields.take("items").and_then(list) else {
        return Err("a document without a list of items".into());
    };
    let Some(session) = document.fields.take("session") else {
        return Err("a document without a session".into());
    };
    let mut counter = LineCounter::new(document.text, document.line);
    let (mut text, mut line) = (String::with_capacity(document.text.len()), 1);
    // The session comes first, wherever it is in the document.
    for (nth, value) in std::iter::once(session).chain(items).enumerate() {
        while nth > 0 && line < counter.of(value.get()) {
            text.push('\n');
            line += 1;
        }
        text.extend(value.get().chars().map(|letter| match letter {
            '\n' | '\r' => ' ',
            letter => letter,
        }));
        text.push(' ');
    }
    Ok(text)
}
