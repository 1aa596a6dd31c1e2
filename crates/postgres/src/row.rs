//! Rows of a server, and the columns that are read.

use std::borrow::Cow;

use loopstore_core::store::columns::{Columns, damaged};
use loopstore_core::store::{StoreError, StoreResult};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

/// A row that is read by column names; damage is reported as an error.
pub(super) struct PostgresRow(pub(super) Row);

impl PostgresRow {
    fn value<'r, T: FromSql<'r>>(&'r self, column: &str) -> StoreResult<Option<T>> {
        self.0.try_get(column).map_err(|error| {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            damaged(format!("{column}: {}", why.unwrap_or(error.to_string())))
        })
    }
}

impl Columns for PostgresRow {
    fn integer(&self, column: &'static str) -> StoreResult<Option<i64>> {
        self.value(column)
    }

    fn real(&self, column: &'static str) -> StoreResult<Option<f64>> {
        self.value(column)
    }

    fn flag(&self, column: &'static str) -> StoreResult<Option<bool>> {
        self.value(column)
    }

    fn text(&self, column: &'static str) -> StoreResult<Option<&str>> {
        self.value(column)
    }

    fn bytes(&self, column: &'static str) -> StoreResult<Option<&[u8]>> {
        self.value(column)
    }

    /// A sequence number has its own column here.
    fn number(&self, column: &'static str) -> StoreResult<u32> {
        self.get(column)
    }

    /// The column `escaped` is true if the text is stored without U+0000.
    fn content(&self, column: &'static str) -> StoreResult<Option<Cow<'_, str>>> {
        Ok(match (self.text(column)?, self.get("escaped")?) {
            (Some(text), true) => Some(unescaped(text)?.into()),
            (text, _) => text.map(Cow::Borrowed),
        })
    }
}

pub(super) const SESSION: &str =
    "SELECT s.session AS key, s.session_id, s.agent_id, s.title, s.created_at,
    s.last_active_at, s.current_loop, s.tick, s.source, s.project, s.meta FROM sessions s";

pub(super) const LOOP_COLUMNS: &str = "l.session, l.key, l.loop_id, l.parent, l.parent_loop_id,
    l.parent_turn, l.parent_seq, l.kind, l.status, l.started_at, l.ended_at, l.tick, l.next_seq, l.sealed_seq,
    l.turns, l.complete, l.messages, l.tokens, l.bytes, l.system_tokens, l.generation,
    l.reported_seq, l.reported_tokens, l.edits, l.last_turn_index, l.open_calls, l.chain";

pub(super) const CORE_COLUMNS: &str = "l.session, l.key, l.loop_id, l.parent, l.parent_turn,
    l.parent_seq, l.status, l.next_seq, l.sealed_seq, l.turns, l.complete, l.messages, l.tokens, l.bytes,
    l.generation, l.reported_seq, l.reported_tokens, l.edits";

pub(super) const TURN: &str =
    "SELECT turn, first_seq, messages, prompts, tokens, bytes, turn_index,
    answered, answers, tick, started_at, ended_at FROM turns";

pub(super) const MESSAGE: &str =
    "SELECT seq, turn, role, author, tick, tokens, bytes, lines, created_at,
    body_block, origin, salt, digest, chain, head, body, escaped FROM messages";

pub(super) const BLOCK_CORE_COLUMNS: &str = "b.key, b.loop, b.generation, b.run, b.kind, b.extends,
    b.first_start, b.first_end, b.compacted_start, b.compacted_end, b.recent_start, b.recent_end,
    b.through, b.tokens_block, b.bytes_block, b.messages_block, b.edits";

/// Returns the text without U+0000, which PostgreSQL rejects; `None` if the text contains none.
pub(super) fn escaped(text: Option<&str>) -> Option<String> {
    let text = text.filter(|text| text.contains('\0'))?;
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\0' => safe.push_str("\u{1}0"),
            '\u{1}' => safe.push_str("\u{1}1"),
            _ => safe.push(letter),
        }
    }
    Some(safe)
}

pub(super) fn unescaped(text: &str) -> StoreResult<String> {
    let mut whole = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        whole.push(match (letter, letter == '\u{1}') {
            (letter, false) => letter,
            _ => match letters.next() {
                Some('0') => '\0',
                Some('1') => '\u{1}',
                _ => return Err(StoreError::Damaged("a text is escaped wrongly".into())),
            },
        });
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_zeros_is_escaped_and_comes_back() {
        for text in ["\0", "a\0b\u{1}c", "\u{1}0\0", "\0\0\u{1}1"] {
            let safe = escaped(Some(text)).unwrap();
            assert!(!safe.contains('\0'));
            assert_eq!(unescaped(&safe).unwrap(), text);
        }
        assert_eq!(escaped(Some("a\u{1}b")), None);
        assert_eq!(escaped(None), None);
        assert!(unescaped("\u{1}2").is_err() && unescaped("\u{1}").is_err());
    }
}
