//! The tables and columns that can contain content: every table, and every column with text or bytes.
//!
//! A new table or column is added here, or a test fails: what is not listed would be neither redacted
//! nor erased.

use crate::store::scan::TextForm;

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Text that people, agents and tools wrote, beside the messages.
    Content(TextForm),
    /// A message or a part of it.
    Message,
    /// A word of this program, a time or a number.
    Word,
    /// A digest, a salt or a key.
    Digest,
    /// Bytes that have a rule of their own: images, kept files.
    Bytes,
    /// The report in a receipt.
    Receipt,
}

use Holds::{Bytes, Content, Digest, Message, Receipt, Word};
const TEXT: Holds = Content(TextForm::Text);
const JSON: Holds = Content(TextForm::Json);
const META: Holds = Content(TextForm::Meta);
/// Ids stay: without them the things that they name would not be found any more.
const ID: Holds = Content(TextForm::Id);

/// A table whose rows belong to sessions.
pub(super) struct ContentTable {
    pub(super) name: &'static str,
    /// The column that names its rows.
    pub(super) key: &'static str,
    /// Selects the keys of the rows of session ?1.
    pub(super) of_session: &'static str,
}

macro_rules! of_loops {
    ($table:literal, $key:literal) => {
        concat!(
            "SELECT t.",
            $key,
            " FROM loops l CROSS JOIN ",
            $table,
            " t ON t.",
            $key,
            " >= l.key << 32 AND t.",
            $key,
            " < (l.key + 1) << 32 WHERE l.session = ?1"
        )
    };
}

macro_rules! of_blocks {
    ($table:literal) => {
        concat!(
            "SELECT t.id FROM loops l JOIN blocks b ON b.loop = l.key CROSS JOIN ",
            $table,
            " t ON t.id >= b.key << 32 AND t.id < (b.key + 1) << 32 WHERE l.session = ?1"
        )
    };
}

/// Rows that hang on a message, or with a negative key on a block or a message of it.
macro_rules! of_owners {
    ($table:literal) => {
        concat!(
            "SELECT t.owner FROM loops l CROSS JOIN ",
            $table,
            " t ON t.owner >= l.key << 32 AND t.owner < (l.key + 1) << 32 WHERE l.session = ?1
             UNION ALL
             SELECT t.owner FROM loops l JOIN blocks b ON b.loop = l.key CROSS JOIN ",
            $table,
            " t ON t.owner > -((b.key + 1) << 32) AND t.owner <= -(b.key << 32)
             WHERE l.session = ?1"
        )
    };
}

const fn table(name: &'static str, key: &'static str, of_session: &'static str) -> ContentTable {
    ContentTable {
        name,
        key,
        of_session,
    }
}

/// The tables with rows of sessions, those that others refer to last.
pub(super) const TABLES: [ContentTable; 25] = [
    table(
        "manifests",
        "key",
        "SELECT key FROM manifests WHERE session = ?1",
    ),
    table("redactions", "owner", of_owners!("redactions")),
    table("blob_refs", "owner", of_owners!("blob_refs")),
    table("notes", "id", of_loops!("notes", "id")),
    table(
        "started_calls",
        "key",
        "SELECT c.key FROM loops l JOIN started_calls c ON c.loop = l.key WHERE l.session = ?1",
    ),
    table("append_keys", "session", "SELECT ?1"),
    table(
        "leases",
        "loop",
        "SELECT t.loop FROM loops l JOIN leases t ON t.loop = l.key WHERE l.session = ?1",
    ),
    table("coverage", "id", of_blocks!("coverage")),
    table(
        "edits",
        "id",
        "SELECT e.id FROM loops l JOIN edits e ON e.loop = l.key WHERE l.session = ?1",
    ),
    table("block_messages", "id", of_blocks!("block_messages")),
    table(
        "blocks",
        "key",
        "SELECT b.key FROM loops l JOIN blocks b ON b.loop = l.key WHERE l.session = ?1",
    ),
    table("flips", "key", "SELECT key FROM flips WHERE session = ?1"),
    table("pins", "key", "SELECT key FROM pins WHERE session = ?1"),
    table("hides", "key", "SELECT key FROM hides WHERE session = ?1"),
    table("runs", "key", "SELECT key FROM runs WHERE session = ?1"),
    table("packs", "id", of_loops!("packs", "id")),
    table("packed_heads", "id", of_loops!("packed_heads", "id")),
    table("messages", "id", of_loops!("messages", "id")),
    table("turns", "id", of_loops!("turns", "id")),
    table(
        "imports",
        "key",
        "SELECT key FROM imports WHERE session = ?1",
    ),
    table("audit", "session", "SELECT ?1"),
    table("session_flags", "session", "SELECT ?1"),
    table("loops", "key", "SELECT key FROM loops WHERE session = ?1"),
    table("source_sessions", "session", "SELECT ?1"),
    table("sessions", "key", "SELECT ?1"),
];

/// The tables whose rows belong to no session: their rule stands beside the statement.
#[cfg(test)]
const OTHERS: [&str; 12] = [
    // The settings of the database.
    "store_meta",
    // The receipts themselves.
    "maintenance",
    "receipt_chain",
    // Digests, and the ids of sessions and loops.
    "heads",
    // Numbers that nothing has any more.
    "spent_keys",
    // Gone with the last message that shows them.
    "blobs",
    // Gone with the last of their sessions, or the first if that is asked for.
    "sources",
    "source_parts",
    "source_pieces",
    // Marks of the index.
    "index_pages",
    "indexed_loops",
    "index_state",
];

/// Every column of text or bytes, and what it holds.
pub(super) const COLUMNS: [(&str, &str, Holds); 128] = [
    ("store_meta", "name", Word),
    ("store_meta", "value", Digest),
    ("spent_keys", "name", Word),
    ("sessions", "session_id", ID),
    ("sessions", "agent_id", TEXT),
    ("sessions", "title", TEXT),
    ("sessions", "created_at", Word),
    ("sessions", "last_active_at", Word),
    ("sessions", "source", Word),
    ("sessions", "project", TEXT),
    ("sessions", "meta", META),
    ("sessions", "audit", Digest),
    ("audit", "kind", Word),
    ("audit", "digest", Digest),
    ("audit", "was", Digest),
    ("audit", "chain", Digest),
    ("receipt_chain", "audit", Digest),
    ("heads", "sha256", Digest),
    ("heads", "taken_at", Word),
    ("heads", "content", Receipt),
    ("loops", "loop_id", ID),
    ("loops", "parent_loop_id", ID),
    ("loops", "kind", JSON),
    ("loops", "status", Word),
    ("loops", "started_at", Word),
    ("loops", "ended_at", Word),
    ("loops", "open_calls", JSON),
    ("loops", "chain", Digest),
    ("loops", "meta", META),
    ("loops", "history", META),
    ("turns", "answers", Word),
    ("messages", "origin", Digest),
    ("messages", "salt", Digest),
    ("messages", "digest", Digest),
    ("messages", "chain", Digest),
    ("messages", "head", Message),
    ("messages", "body", Message),
    ("packs", "digest", Digest),
    ("packs", "content", Message),
    ("packed_heads", "head", Message),
    ("blobs", "sha256", Digest),
    ("blobs", "data", Bytes),
    ("runs", "run_id", ID),
    ("runs", "trigger", TEXT),
    ("runs", "strategy", TEXT),
    ("runs", "outcome", Word),
    ("runs", "fallback", TEXT),
    ("runs", "error", TEXT),
    ("runs", "scope", Word),
    ("runs", "older_loops", Word),
    ("runs", "counter", Word),
    ("runs", "started_at", Word),
    ("runs", "config", JSON),
    ("runs", "usage", JSON),
    ("runs", "plan", Digest),
    ("runs", "record", META),
    ("runs", "events", META),
    ("runs", "reached", JSON),
    ("runs", "edits", Message),
    ("runs", "digest", Digest),
    ("flips", "kind", Word),
    ("flips", "at", Word),
    ("flips", "reason", TEXT),
    ("flips", "digest", Digest),
    ("pins", "kind", Word),
    ("pins", "at", Word),
    ("pins", "digest", Digest),
    ("hides", "kind", Word),
    ("hides", "was", ID),
    ("hides", "session_id", ID),
    ("hides", "at", Word),
    ("hides", "digest", Digest),
    ("blocks", "kind", Word),
    ("blocks", "strategy", TEXT),
    ("blocks", "shaping", JSON),
    ("blocks", "created_at", Word),
    ("blocks", "extra", META),
    ("blocks", "edits", Word),
    ("blocks", "digest", Digest),
    ("block_messages", "salt", Digest),
    ("block_messages", "digest", Digest),
    ("block_messages", "head", Message),
    ("block_messages", "body", Message),
    ("edits", "action", Word),
    ("edits", "text", Content(TextForm::Edit)),
    ("edits", "salt", Digest),
    ("edits", "digest", Digest),
    ("coverage", "disposition", Word),
    ("imports", "format", Word),
    ("imports", "path", TEXT),
    ("imports", "file_name", TEXT),
    ("imports", "record_key", TEXT),
    ("imports", "imported_at", Word),
    ("imports", "digest", Digest),
    ("maintenance", "kind", Word),
    ("maintenance", "opened_at", Word),
    ("maintenance", "closed_at", Word),
    ("maintenance", "detail", Receipt),
    ("manifests", "manifest_id", ID),
    ("manifests", "recorded_at", Word),
    ("manifests", "older_loops", Word),
    ("manifests", "parts", Word),
    ("manifests", "counter", Word),
    ("manifests", "sha256", Digest),
    ("manifests", "digest", Digest),
    ("sources", "format", Word),
    ("sources", "path", Bytes),
    ("sources", "digest", Digest),
    ("sources", "kept_at", Word),
    ("source_pieces", "sha256", Digest),
    ("source_pieces", "data", Bytes),
    ("leases", "owner", TEXT),
    ("started_calls", "call_id", TEXT),
    ("started_calls", "tool_name", TEXT),
    ("started_calls", "arguments", JSON),
    ("started_calls", "idempotency_key", ID),
    ("started_calls", "started_at", Word),
    ("started_calls", "finished_at", Word),
    ("append_keys", "name", Content(TextForm::AppendKey)),
    ("notes", "note", META),
    ("redactions", "salt", Digest),
    ("redactions", "digest", Digest),
    ("session_flags", "protected_at", Word),
    ("index_pages", "", Word),
    ("indexed_loops", "", Word),
    ("index_state", "", Word),
    ("source_sessions", "", Word),
    ("source_parts", "", Word),
];

/// Returns the texts of a table: column, how it is read, and its name.
pub fn texts(table: &str) -> impl Iterator<Item = (&'static str, TextForm)> {
    let name = table.to_owned();
    COLUMNS
        .iter()
        .filter_map(move |(of, column, holds)| match holds {
            Content(form) if *of == name => Some((*column, *form)),
            _ => None,
        })
}

/// Returns the names of the tables, those that others refer to last.
pub fn table_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.name)
}

/// Returns `table.column`.
pub fn place_of(table: &str, column: &str) -> &'static str {
    static PLACES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    let places = PLACES.get_or_init(|| {
        let all = COLUMNS.iter();
        all.map(|(table, column, _)| format!("{table}.{column}"))
            .collect()
    });
    let is_it = |place: &&String| place.split_once('.') == Some((table, column));
    places.iter().find(is_it).map_or("", String::as_str)
}

/// Returns a table.
pub(super) fn named(name: &str) -> Option<&'static ContentTable> {
    TABLES.iter().find(|table| table.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sqlite::SqliteStore;

    fn rows(sql: &str) -> Vec<Vec<String>> {
        let store = SqliteStore::in_memory().unwrap();
        let rows = store.query(sql).unwrap();
        let columns = rows.columns.clone();
        let text = |record: &crate::sqlite::Record| {
            columns
                .iter()
                .map(|name| record.text(name).unwrap_or_default())
                .collect()
        };
        rows.records().iter().map(text).collect()
    }

    /// The tables that this program keeps itself: FTS5 has its own, and so has the migration runner.
    const OWN: &str = "type = 'table' AND name NOT LIKE 'refinery%' AND name NOT LIKE 'sqlite%'
        AND name NOT LIKE 'message_index%'";

    #[test]
    fn every_column_of_text_or_bytes_is_sorted() {
        let sql = format!(
            "SELECT m.name AS t, c.name AS c FROM sqlite_schema m, pragma_table_info(m.name) c
             WHERE m.{OWN} AND c.type NOT IN ('INTEGER', 'REAL')",
        )
        .replace("m.type = 'table' AND name", "m.type = 'table' AND m.name")
        .replace("AND name NOT", "AND m.name NOT");
        let present: BTreeSet<String> = rows(&sql).into_iter().map(|row| row.join(".")).collect();
        let sorted: BTreeSet<String> = COLUMNS
            .iter()
            .filter(|(_, column, _)| !column.is_empty())
            .map(|(table, column, _)| format!("{table}.{column}"))
            .collect();
        assert_eq!(present, sorted, "a column is not in COLUMNS, or is no more");
    }

    #[test]
    fn every_table_goes_with_its_session_or_has_a_rule() {
        let sql = format!("SELECT name FROM sqlite_schema WHERE {OWN}");
        let present: BTreeSet<String> = rows(&sql).into_iter().map(|row| row.join("")).collect();
        let known = TABLES.iter().map(|table| table.name).chain(OTHERS);
        let known: BTreeSet<String> = known.map(str::to_owned).collect();
        assert_eq!(present, known, "a table is neither in TABLES nor in OTHERS");
    }
}
