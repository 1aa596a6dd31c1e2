//! The index of messages: a contentless FTS5 table and how far it is.
//!
//! FTS5 gets words that are split and folded already, and an expression in which every word is
//! quoted, so nothing of its own syntax is passed on. It holds no text: a hit is a place.
//!
//! Tried on recorded sessions, against their text: an index of words takes 50 %, one of trigrams
//! 280 % and cannot find two characters (November 2026).

use std::ops::{ControlFlow, Range};

use rusqlite::{Connection, params};

use super::reader::{SqliteReader, number};
use super::row::SqliteRow;
use super::{from_sqlite, migration};
use crate::store::codec::role_number;
use crate::store::columns::Columns;
use crate::store::error::{StoreError, StoreResult};
use crate::store::index::{IndexEntry, IndexFilter, IndexQuery, IndexState, Match, Phrase};
use crate::store::{LoopKey, ReadIndex, SessionKey, Visit, WriteIndex};

/// The tables that are not part of the record: the FTS5 table, those behind it, and how far it is.
pub(super) fn is_index(table: &str) -> bool {
    table == "message_index" || table.starts_with("message_index_")
}

/// True if a line of `PRAGMA integrity_check` is about the index alone. A page that cannot be read is
/// damage of the file, whatever stands on it (`Tree 12 page 34: …`).
pub(super) fn is_of_index(line: &str) -> bool {
    line.contains("message_index")
}

/// Returns the tables of which SQLite keeps the pages itself: all but the FTS5 table.
pub(super) fn tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'message_index'";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.collect()
}

/// Checks some tables one by one and returns the lines that tell of damage.
pub(super) fn check(connection: &Connection, tables: &[String]) -> StoreResult<Vec<String>> {
    let mut lines = Vec::new();
    for table in tables {
        let sql = format!("PRAGMA integrity_check('{}')", table.replace('\'', "''"));
        match integrity(connection, &sql) {
            Err(StoreError::Damaged(detail)) => lines.push(detail),
            found => lines.extend(found?),
        }
    }
    Ok(lines)
}

/// Runs a check of SQLite and returns the lines that tell of damage.
pub(super) fn integrity(connection: &Connection, sql: &str) -> StoreResult<Vec<String>> {
    let mut statement = connection.prepare(sql).map_err(from_sqlite)?;
    let rows = statement.query_map([], |row| row.get(0));
    let lines: rusqlite::Result<Vec<String>> = rows.map_err(from_sqlite)?.collect();
    let mut lines = lines.map_err(from_sqlite)?;
    lines.retain(|line| line != "ok");
    Ok(lines)
}

/// Returns what is wrong with the index.
pub(super) fn problems(connection: &Connection) -> StoreResult<Vec<String>> {
    let mut tables = tables(connection).map_err(from_sqlite)?;
    tables.retain(|table| is_index(table));
    tables.push("message_index".into());
    let mut found = check(connection, &tables)?;
    let reader = SqliteReader::new(connection);
    let marks = reader.first(
        "SELECT count(*) AS n
         FROM loops l LEFT JOIN indexed_loops i ON i.loop = l.key
         WHERE NOT l.unindexed AND l.next_seq IS NOT coalesce(i.indexed_seq, 0)
             AND EXISTS (SELECT 1 FROM index_state WHERE version > 0)",
        [],
        |row| row.get::<i64>("n"),
    )?;
    if let Some(count) = marks.filter(|count| *count > 0) {
        found.push(format!("{count} loops are noted as indexed and are not"));
    }
    let sums = reader.first(
        "SELECT messages AS noted,
             (SELECT coalesce(sum(indexed_seq), 0) FROM indexed_loops) AS there
         FROM index_state",
        [],
        |row| Ok([row.get::<i64>("noted")?, row.get("there")?]),
    )?;
    if let Some([noted, there]) = sums.filter(|[noted, there]| noted != there) {
        found.push(format!("{there} messages are in it, and it says {noted}"));
    }
    let lost = reader.first(
        "SELECT count(*) AS n FROM message_index_docsize
         WHERE NOT EXISTS (SELECT 1 FROM index_pages WHERE number = id >> 6)",
        [],
        |row| row.get::<i64>("n"),
    )?;
    if let Some(count) = lost.filter(|count| *count > 0) {
        found.push(format!("{count} messages in it are on no page"));
    }
    Ok(found)
}

/// Marks an error as one of the search index: the record is not damaged.
fn in_index<T>(result: StoreResult<T>) -> StoreResult<T> {
    result.map_err(|error| match error {
        StoreError::Damaged(detail) => StoreError::IndexDamaged(detail),
        other => other,
    })
}

fn phrase(phrase: &Phrase) -> String {
    // A word of this program holds no quote; one of another caller must not end the string.
    let words = phrase.words.join(" ").replace('"', "\"\"");
    format!("\"{words}\"{}", if phrase.is_prefix { " *" } else { "" })
}

fn any(phrases: &[Phrase]) -> String {
    let phrases: Vec<String> = phrases.iter().map(phrase).collect();
    format!("({})", phrases.join(" OR "))
}

/// The word that stands for a tool: whole names are compared, whatever is in them.
fn tool_word(name: &str) -> String {
    format!("t{}", hex::encode(name.as_bytes()))
}

fn expression(query: &IndexQuery, filter: &IndexFilter) -> String {
    let all: Vec<String> = query.all.iter().map(|phrases| any(phrases)).collect();
    let words = all.join(" AND ");
    let tool = filter.tool.as_deref().map(tool_word);
    let tool = tool.map_or(String::new(), |tool| format!(" AND tools : \"{tool}\""));
    format!("words : ({words}){tool}")
}

fn keys_json(sessions: &[SessionKey]) -> String {
    let keys: Vec<String> = sessions.iter().map(|key| key.0.to_string()).collect();
    format!("[{}]", keys.join(","))
}

/// The rowid of a message on a page.
fn place(page: i64, seq: u32) -> i64 {
    (page << 6) | i64::from(seq & 63)
}

fn found(row: &SqliteRow<'_, '_>) -> StoreResult<Match> {
    let id: i64 = row.get("id")?;
    Ok(Match {
        loop_key: LoopKey(id >> 32),
        seq: number(id),
        session: row.get("session")?,
        turn: row.get("turn")?,
        role: row.get("role")?,
        author: row.get("author")?,
        bytes: row.get("bytes")?,
        tick: row.get("tick")?,
    })
}

impl SqliteReader<'_> {
    /// Returns what stands behind FROM for the loops that may have messages which are not in the index.
    fn unindexed_loops(&self) -> StoreResult<String> {
        let flagged = match self.index_version()? {
            Some(_) => "l.unindexed",
            None => "TRUE",
        };
        Ok(format!(
            "loops l LEFT JOIN indexed_loops i ON i.loop = l.key
             WHERE {flagged} AND l.next_seq > coalesce(i.indexed_seq, 0)"
        ))
    }

    /// Returns the first and the last rowid that a message of these sessions can have.
    fn pages_of(&self, sessions: &[SessionKey]) -> StoreResult<(i64, i64)> {
        let pages = self.first(
            "SELECT min(p.number) AS first, max(p.number) AS last
             FROM loops l JOIN index_pages p ON p.loop = l.key
             WHERE l.session IN (SELECT value FROM json_each(?1))",
            [keys_json(sessions)],
            |row| Ok(row.get::<Option<i64>>("first")?.zip(row.get("last")?)),
        )?;
        // No page is before the first.
        let (first, last) = pages.flatten().unwrap_or((0, -1));
        Ok((place(first, 0), place(last, 63)))
    }

    /// Returns the number of a page, which is added if it is not there yet.
    fn page(&self, loop_key: LoopKey, part: u32) -> StoreResult<i64> {
        let known = self.first(
            "SELECT number FROM index_pages WHERE loop = ?1 AND part = ?2",
            params![loop_key.0, part],
            |row| row.get("number"),
        )?;
        if let Some(number) = known {
            return Ok(number);
        }
        self.run(
            "INSERT INTO index_pages (loop, part) VALUES (?1, ?2)",
            params![loop_key.0, part],
        )?;
        Ok(self.connection.last_insert_rowid())
    }

    fn mark(&self, loop_key: LoopKey, seqs: &Range<u32>) -> StoreResult<()> {
        self.run(
            "INSERT INTO indexed_loops (loop, indexed_seq) VALUES (?1, ?2)
             ON CONFLICT (loop) DO UPDATE SET indexed_seq = excluded.indexed_seq",
            params![loop_key.0, seqs.end],
        )?;
        self.run(
            "UPDATE loops SET unindexed = 0 WHERE key = ?1 AND next_seq = ?2",
            params![loop_key.0, seqs.end],
        )?;
        self.run(
            "UPDATE index_state SET messages = messages + ?1",
            [seqs.end - seqs.start],
        )?;
        Ok(())
    }

    pub(super) fn remove_from_index(&self, loop_key: LoopKey, from: u32) -> StoreResult<()> {
        in_index(self.take_out(loop_key, from))
    }

    fn take_out(&self, loop_key: LoopKey, from: u32) -> StoreResult<()> {
        let noted = self.first(
            "SELECT indexed_seq FROM indexed_loops WHERE loop = ?1",
            [loop_key.0],
            |row| row.get::<u32>("indexed_seq"),
        )?;
        if noted.is_none_or(|noted| noted <= from) {
            return Ok(());
        }
        // Nothing can be taken out of a table that holds no text: all of it goes, and the next search
        // makes it anew.
        self.throw_away()
    }

    /// Leaves an index that was never filled. The flags of loops, which then count for nothing, are left to
    /// the next search: whoever removes something does not write to every loop.
    pub(super) fn throw_away(&self) -> StoreResult<()> {
        let cleared = self.run(
            "INSERT INTO message_index (message_index) VALUES ('delete-all')",
            [],
        );
        if matches!(cleared, Err(StoreError::Damaged(_))) {
            migration::remake_index(self.connection).map_err(from_sqlite)?;
        } else {
            cleared?;
        }
        self.run("DELETE FROM index_pages", [])?;
        self.run("DELETE FROM indexed_loops", [])?;
        self.run(
            "INSERT OR REPLACE INTO index_state (key, version, messages) VALUES (1, 0, 0)",
            [],
        )?;
        Ok(())
    }
}

impl ReadIndex for SqliteReader<'_> {
    fn index_version(&self) -> StoreResult<Option<u32>> {
        let sql = "SELECT version FROM index_state WHERE version > 0";
        self.first(sql, [], |row| row.get("version"))
    }

    fn index_state(&self) -> StoreResult<IndexState> {
        let sql = format!(
            "SELECT s.messages AS indexed,
                 s.messages + (SELECT coalesce(sum(l.next_seq - coalesce(i.indexed_seq, 0)), 0)
                     FROM {}) AS total
             FROM index_state s",
            self.unindexed_loops()?
        );
        let state = self.first(&sql, [], |row| {
            Ok(IndexState {
                indexed: row.get("indexed")?,
                total: row.get("total")?,
            })
        })?;
        Ok(state.unwrap_or_default())
    }

    fn unindexed(&self) -> StoreResult<Vec<LoopKey>> {
        let loops = self.unindexed_loops()?;
        let sql = format!("SELECT l.key AS key FROM {loops} ORDER BY l.key");
        self.all(&sql, [], |row| row.get("key"))
    }

    fn unindexed_seqs(&self, loop_key: LoopKey) -> StoreResult<Range<u32>> {
        let seqs = self.first(
            "SELECT coalesce(i.indexed_seq, 0) AS first, l.next_seq AS after
             FROM loops l LEFT JOIN indexed_loops i ON i.loop = l.key WHERE l.key = ?1",
            [loop_key.0],
            |row| Ok(row.get("first")?..row.get("after")?),
        )?;
        Ok(seqs.unwrap_or(0..0))
    }

    fn find(
        &self,
        query: &IndexQuery,
        filter: &IndexFilter,
        limit: u32,
        visit: &mut Visit<'_, Match>,
    ) -> StoreResult<()> {
        query.check()?;
        let sessions = filter.sessions.as_deref();
        // FTS5 goes to the first of these pages at once.
        let pages = sessions.map(|keys| self.pages_of(keys)).transpose()?;
        let (first, last) = pages.unwrap_or((i64::MIN, i64::MAX));
        // A row beyond the mark is none of this loop's messages.
        let sql = "SELECT m.id AS id, l.session AS session, m.turn AS turn, m.role AS role,
                 m.author AS author, m.bytes AS bytes, m.tick AS tick
             FROM message_index
                 CROSS JOIN index_pages p ON p.number = message_index.rowid >> 6
                 CROSS JOIN messages m
                     ON m.id = (p.loop << 32) | (p.part << 6) | (message_index.rowid & 63)
                 CROSS JOIN loops l ON l.key = p.loop
                 CROSS JOIN indexed_loops i ON i.loop = p.loop
             WHERE message_index MATCH ?1 AND (m.id & 4294967295) < i.indexed_seq
                 AND message_index.rowid BETWEEN ?7 AND ?8
                 AND (?2 IS NULL OR l.session IN (SELECT value FROM json_each(?2)))
                 AND (?3 IS NULL OR m.role = ?3)
                 AND (?4 IS NULL OR m.created_at >= ?4) AND (?5 IS NULL OR m.created_at <= ?5)
             ORDER BY message_index.rowid DESC LIMIT ?6";
        let values = params![
            expression(query, filter),
            sessions.map(keys_json),
            filter.role.map(role_number),
            filter.since,
            filter.until,
            limit,
            first,
            last,
        ];
        let mut own = None;
        let result = self.each(sql, values, found, &mut |found| match visit(found) {
            Ok(flow) => Ok(flow),
            Err(error) => {
                own = Some(error);
                Ok(ControlFlow::Break(()))
            }
        });
        in_index(result)?;
        own.map_or(Ok(()), Err)
    }

    fn holders(&self, phrase: &Phrase, most: u32) -> StoreResult<u32> {
        let holders = self.first(
            "SELECT count(*) AS n
             FROM (SELECT 1 FROM message_index WHERE message_index MATCH ?1 LIMIT ?2)",
            params![format!("words : {}", self::phrase(phrase)), most],
            |row| row.get("n"),
        );
        Ok(in_index(holders)?.unwrap_or_default())
    }

    fn is_indexed(&self, loop_key: LoopKey, seq: u32, word: &str) -> StoreResult<bool> {
        let page = self.first(
            "SELECT p.number FROM index_pages p JOIN indexed_loops i ON i.loop = p.loop
             WHERE p.loop = ?1 AND p.part = ?2 AND i.indexed_seq > ?3",
            params![loop_key.0, seq >> 6, seq],
            |row| row.get::<i64>("number"),
        )?;
        let Some(page) = page else {
            return Ok(false);
        };
        let word = phrase(&Phrase::of(vec![word.to_owned()]));
        let found = self.first(
            "SELECT rowid AS id FROM message_index WHERE message_index MATCH ?1 AND rowid = ?2",
            params![format!("words : {word}"), place(page, seq)],
            |row| row.get::<i64>("id"),
        );
        Ok(in_index(found)?.is_some())
    }

    fn sampled_loops(&self, most: u32) -> StoreResult<Vec<LoopKey>> {
        self.all(
            "SELECT key FROM loops
             WHERE key >= 1 + abs(random() % max(1, (SELECT max(key) FROM loops)))
             ORDER BY key LIMIT ?1",
            [most],
            |row| row.get("key"),
        )
    }
}

impl WriteIndex for SqliteReader<'_> {
    fn index(
        &mut self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        entries: &[IndexEntry],
    ) -> StoreResult<()> {
        IndexEntry::check_all(entries, &seqs, &self.unindexed_seqs(loop_key)?)?;
        let mut page: Option<(u32, i64)> = None;
        for entry in entries {
            let tools: Vec<String> = entry.tools.iter().map(|tool| tool_word(tool)).collect();
            let part = entry.seq >> 6;
            let number = match page.filter(|(of, _)| *of == part) {
                Some((_, number)) => number,
                None => self.page(loop_key, part)?,
            };
            page = Some((part, number));
            in_index(self.run(
                "INSERT INTO message_index (rowid, words, tools) VALUES (?1, ?2, ?3)",
                params![place(number, entry.seq), entry.words, tools.join(" ")],
            ))?;
        }
        self.mark(loop_key, &seqs)
    }

    fn unindex(&mut self, loop_key: LoopKey, from: u32) -> StoreResult<()> {
        self.remove_from_index(loop_key, from)
    }

    fn clear_index(&mut self, version: u32) -> StoreResult<()> {
        self.throw_away()?;
        self.run(
            "UPDATE loops SET unindexed = 1 WHERE NOT unindexed AND next_seq > 0",
            [],
        )?;
        self.run("UPDATE index_state SET version = ?1", [version])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::sqlite::SqliteStore;
    use crate::store::write;

    #[test]
    fn who_asks_what_is_missing_looks_at_no_other_loop() {
        let store = SqliteStore::in_memory().unwrap();
        write(&store, |write| write.clear_index(1)).unwrap();
        let loops = store.snapshot(|connection| store.reader(connection).unindexed_loops());
        let sql = format!("EXPLAIN QUERY PLAN SELECT l.key FROM {}", loops.unwrap());
        let plan = store.query_with(&sql, &[]).unwrap().records();
        let steps: Vec<_> = plan.iter().filter_map(|row| row.text("detail")).collect();
        assert!(steps[0].contains("loops_unindexed"), "{steps:?}");
    }
}
