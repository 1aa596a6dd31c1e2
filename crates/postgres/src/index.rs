//! The index of messages: the words of each message as text and as a TSVECTOR.
//!
//! The vector only finds messages that may contain a phrase; the text decides. A vector alone is not enough: it
//! has no position after the 16,383rd word of a message, and at most 256 positions of one word. Words are split
//! and folded before they are stored, so that no parser or dictionary of PostgreSQL changes them.

use std::collections::BTreeSet;
use std::ops::Range;

use loopstore_core::store::codec::role_number;
use loopstore_core::store::columns::Columns;
use loopstore_core::store::index::{
    IndexEntry, IndexFilter, IndexQuery, IndexState, Match, Phrase,
};
use loopstore_core::store::{LoopKey, ReadIndex, StoreResult, Visit, WriteIndex};

use super::connection::Param;
use super::keys::session_of;
use super::row::PostgresRow;
use super::transaction::PostgresTransaction;

/// The number of bytes by which a vector distinguishes words: it rejects words of 2 KB.
const MAX_WORD: usize = 256;

/// The maximum size of all distinct words of a message in a vector, which rejects 1 MiB.
const MAX_WORDS: usize = 500_000;

/// The word that stands for all words of a message with too many of them.
const ANY: &str = "\u{1}";

/// Returns a word as a vector contains it.
fn shortened(word: &str) -> &str {
    &word[..word.floor_char_boundary(MAX_WORD)]
}

/// Returns the distinct words of a text.
fn lexemes(words: &str) -> Vec<&str> {
    let all: BTreeSet<&str> = words.split_whitespace().map(shortened).collect();
    match all.iter().map(|word| word.len()).sum::<usize>() > MAX_WORDS {
        true => vec![ANY],
        false => all.into_iter().collect(),
    }
}

fn quoted(word: &str) -> String {
    let safe = word.replace('\\', "\\\\").replace('\'', "''");
    format!("'{safe}'")
}

/// Returns the words of a phrase as a query on vectors.
fn words_of(phrase: &Phrase) -> String {
    let words: Vec<&str> = phrase
        .words
        .iter()
        .flat_map(|word| word.split_whitespace())
        .collect();
    let last = words.len().saturating_sub(1);
    let word = |(at, word): (usize, &&str)| {
        let is_open = phrase.is_prefix && at == last;
        format!(
            "{}{}",
            quoted(shortened(word)),
            if is_open { ":*" } else { "" }
        )
    };
    let words: Vec<String> = words.iter().enumerate().map(word).collect();
    match words.is_empty() {
        // No message contains a phrase of spaces only.
        true => "'\u{2}'".to_owned(),
        false => format!("({})", words.join(" & ")),
    }
}

/// Returns the query that finds the messages that may contain the phrases.
fn vector_query(query: &IndexQuery) -> String {
    let any = |phrases: &Vec<Phrase>| {
        let words: Vec<String> = phrases.iter().map(words_of).collect();
        format!("({})", words.join(" | "))
    };
    let all: Vec<String> = query.all.iter().map(any).collect();
    format!("({}) | {}", all.join(" & "), quoted(ANY))
}

/// Returns a phrase as the stored text contains it.
fn text_of(phrase: &Phrase) -> String {
    let end = if phrase.is_prefix { "" } else { " " };
    format!(" {}{end}", phrase.words.join(" "))
}

/// The conditions of a query and their values.
struct Conditions {
    sql: Vec<String>,
    texts: Vec<String>,
}

impl Conditions {
    /// Adds a value; returns its name in SQL.
    fn value(&mut self, text: String) -> String {
        self.texts.push(text);
        // The first five values belong to the filter.
        format!("${}", self.texts.len() + 5)
    }

    fn any(&mut self, phrases: &[Phrase]) -> String {
        let found: Vec<String> = phrases
            .iter()
            .map(|phrase| format!("strpos(w.words, {}) > 0", self.value(text_of(phrase))))
            .collect();
        format!("({})", found.join(" OR "))
    }

    fn of(query: &IndexQuery, filter: &IndexFilter) -> Self {
        let mut all = Self {
            sql: Vec::new(),
            texts: Vec::new(),
        };
        let vector = all.value(vector_query(query));
        all.sql
            .push(format!("w.lexemes @@ {vector}::TEXT::TSQUERY"));
        for phrases in &query.all {
            let any = all.any(phrases);
            all.sql.push(any);
        }
        if let Some(tool) = &filter.tool {
            let tool = all.value(tool.clone());
            all.sql.push(format!("{tool} = ANY (w.tools)"));
        }
        all
    }
}

fn found(row: &PostgresRow) -> StoreResult<Match> {
    Ok(Match {
        loop_key: row.get("loop")?,
        seq: row.get("seq")?,
        session: row.get("session")?,
        turn: row.get("turn")?,
        role: row.get("role")?,
        author: row.get("author")?,
        bytes: row.get("bytes")?,
        tick: row.get("tick")?,
    })
}

impl ReadIndex for PostgresTransaction<'_> {
    fn index_version(&self) -> StoreResult<Option<u32>> {
        let sql = "SELECT version FROM index_state";
        self.first_of_any(sql, &[], |row| row.get("version"))
    }

    fn index_state(&self) -> StoreResult<IndexState> {
        let count = |sql| -> StoreResult<u64> {
            let count = self.first_of_any(sql, &[], |row| row.get("n"))?;
            Ok(count.unwrap_or_default())
        };
        let indexed =
            count("SELECT coalesce(sum(indexed_seq), 0)::BIGINT AS n FROM indexed_loops")?;
        let open = count(
            "SELECT coalesce(sum(l.next_seq - coalesce(i.indexed_seq, 0)), 0)::BIGINT AS n
             FROM loops l LEFT JOIN indexed_loops i ON i.session = l.session AND i.loop = l.key
             WHERE l.unindexed",
        )?;
        Ok(IndexState {
            indexed,
            total: indexed + open,
        })
    }

    fn unindexed(&self) -> StoreResult<Vec<LoopKey>> {
        self.all_of_any(
            "SELECT l.key
             FROM loops l LEFT JOIN indexed_loops i ON i.session = l.session AND i.loop = l.key
             WHERE l.unindexed AND l.next_seq > coalesce(i.indexed_seq, 0)
             ORDER BY l.key",
            &[],
            |row| row.get("key"),
        )
    }

    fn unindexed_seqs(&self, loop_key: LoopKey) -> StoreResult<Range<u32>> {
        let session = session_of(loop_key.0);
        let seqs = self.first(
            session,
            "SELECT coalesce(i.indexed_seq, 0) AS first, l.next_seq AS after
             FROM loops l LEFT JOIN indexed_loops i ON i.session = $1 AND i.loop = l.key
             WHERE l.session = $1 AND l.key = $2",
            &[&session, &loop_key.0],
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
        let conditions = Conditions::of(query, filter);
        // Under row-level security the index of words is not used before the policy was checked, since an
        // operator on vectors might leak what it sees. By their sessions, the words of one tenant are found
        // without those of others.
        let (of, by) = match &filter.sessions {
            Some(_) => ("w.session = ANY ($1)", ""),
            None => (
                "$1::BIGINT[] IS NULL",
                "JOIN sessions s ON s.session = w.session",
            ),
        };
        // A row after the mark does not belong to this loop.
        let sql = format!(
            "SELECT w.session, w.loop, w.seq, m.turn, m.role, m.author, m.bytes, m.tick
             FROM message_words w {by}
                 JOIN messages m ON m.session = w.session AND m.loop = w.loop AND m.seq = w.seq
                 JOIN indexed_loops i ON i.session = w.session AND i.loop = w.loop
             WHERE w.seq < i.indexed_seq
                 AND {of} AND ($2::BIGINT IS NULL OR m.role = $2)
                 AND ($3::BIGINT IS NULL OR m.created_at >= $3)
                 AND ($4::BIGINT IS NULL OR m.created_at <= $4)
                 AND {}
             ORDER BY w.session DESC, w.loop DESC, w.seq DESC LIMIT $5",
            conditions.sql.join(" AND ")
        );
        let sessions = filter.sessions.as_ref();
        let sessions = sessions.map(|keys| keys.iter().map(|key| key.0).collect::<Vec<i64>>());
        let role = filter.role.map(|role| i64::from(role_number(role)));
        let limit = i64::from(limit);
        let mut params: Vec<Param<'_>> =
            vec![&sessions, &role, &filter.since, &filter.until, &limit];
        params.extend(conditions.texts.iter().map(|text| text as Param<'_>));
        for row in self.all_of_any(&sql, &params, found)? {
            if visit(row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn holders(&self, phrase: &Phrase, most: u32) -> StoreResult<u32> {
        let query = IndexQuery {
            all: vec![vec![phrase.clone()]],
        };
        let conditions = Conditions::of(&query, &IndexFilter::default());
        // The values are numbered as in `find_in_index`.
        let sql = format!(
            "SELECT count(*) AS n FROM (
                 SELECT 1 FROM message_words w JOIN sessions s ON s.session = w.session
                 WHERE $1::BIGINT IS NULL AND $2::BIGINT IS NULL AND $3::BIGINT IS NULL
                     AND $4::BIGINT IS NULL AND {} LIMIT $5
             ) held",
            conditions.sql.join(" AND ")
        );
        let (none, most) = (None::<i64>, i64::from(most));
        let mut params: Vec<Param<'_>> = vec![&none, &none, &none, &none, &most];
        params.extend(conditions.texts.iter().map(|text| text as Param<'_>));
        let holders = self.first_of_any(&sql, &params, |row| row.get("n"))?;
        Ok(holders.unwrap_or_default())
    }

    fn is_indexed(&self, loop_key: LoopKey, seq: u32, word: &str) -> StoreResult<bool> {
        let session = session_of(loop_key.0);
        let (seq, word) = (i64::from(seq), format!(" {word} "));
        let found = self.first(
            session,
            "SELECT w.seq FROM message_words w
                 JOIN indexed_loops i ON i.session = w.session AND i.loop = w.loop
             WHERE w.session = $1 AND w.loop = $2 AND w.seq = $3 AND w.seq < i.indexed_seq
                 AND position($4::TEXT IN w.words) > 0",
            &[&session, &loop_key.0, &seq, &word],
            |row| row.get::<i64>("seq"),
        )?;
        Ok(found.is_some())
    }

    fn sampled_loops(&self, most: u32) -> StoreResult<Vec<LoopKey>> {
        let most = i64::from(most);
        self.all_of_any(
            "SELECT l.key FROM loops l WHERE l.session = (
                 SELECT s.session FROM sessions s
                 WHERE s.session >= (SELECT floor(random() * max(n.session)) FROM sessions n)
                 ORDER BY s.session LIMIT 1
             )
             ORDER BY l.key DESC LIMIT $1",
            &[&most],
            |row| row.get("key"),
        )
    }
}

impl WriteIndex for PostgresTransaction<'_> {
    fn index(
        &mut self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        entries: &[IndexEntry],
    ) -> StoreResult<()> {
        IndexEntry::check_all(entries, &seqs, &self.unindexed_seqs(loop_key)?)?;
        let session = session_of(loop_key.0);
        for entry in entries {
            let words = entry.words.replace('\0', " ");
            self.run(
                session,
                "INSERT INTO message_words (session, loop, seq, words, lexemes, tools)
                 VALUES ($1, $2, $3, $4, array_to_tsvector($5::TEXT[]), $6)",
                &[
                    &session,
                    &loop_key.0,
                    &i64::from(entry.seq),
                    &format!(" {words} "),
                    &lexemes(&words),
                    &entry.tools,
                ],
            )?;
        }
        self.run(
            session,
            "INSERT INTO indexed_loops (session, loop, indexed_seq) VALUES ($1, $2, $3)
             ON CONFLICT (session, loop) DO UPDATE SET indexed_seq = excluded.indexed_seq",
            &[&session, &loop_key.0, &i64::from(seqs.end)],
        )?;
        // Not if the loop has grown meanwhile.
        self.run(
            session,
            "UPDATE loops SET unindexed = FALSE WHERE session = $1 AND key = $2 AND next_seq = $3",
            &[&session, &loop_key.0, &i64::from(seqs.end)],
        )?;
        Ok(())
    }

    fn unindex(&mut self, loop_key: LoopKey, from: u32) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        let params: [Param<'_>; 3] = [&session, &loop_key.0, &i64::from(from)];
        let sql = "UPDATE indexed_loops SET indexed_seq = $3
             WHERE session = $1 AND loop = $2 AND indexed_seq > $3";
        if self.run(session, sql, &params)? == 0 {
            return Ok(());
        }
        let sql = "DELETE FROM message_words WHERE session = $1 AND loop = $2 AND seq >= $3";
        self.run(session, sql, &params)?;
        let sql =
            "UPDATE loops SET unindexed = TRUE WHERE session = $1 AND key = $2 AND next_seq > $3";
        self.run(session, sql, &params).map(drop)
    }

    fn clear_index(&mut self, version: u32) -> StoreResult<()> {
        for table in ["message_words", "indexed_loops", "index_state"] {
            self.execute_long(&format!("DELETE FROM {table}"), &[])?;
        }
        let sql = "UPDATE loops SET unindexed = TRUE WHERE NOT unindexed AND next_seq > 0";
        self.execute_long(sql, &[])?;
        self.execute(
            "INSERT INTO index_state (key, version) VALUES (1, $1)",
            &[&i64::from(version)],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_fit_a_vector_however_long_and_many_they_are() {
        let long = "é".repeat(5_000);
        assert!(shortened(&long).len() <= MAX_WORD);
        assert_eq!(lexemes(" b a  b "), ["a", "b"]);
        let many: Vec<String> = (0..200_000).map(|number| number.to_string()).collect();
        assert_eq!(lexemes(&many.join(" ")), [ANY]);
    }

    #[test]
    fn nothing_of_the_language_of_queries_is_passed_on() {
        let phrase = Phrase {
            words: vec!["it's".into(), "a\\b".into(), "&|!".into()],
            is_prefix: true,
        };
        assert_eq!(words_of(&phrase), r"('it''s' & 'a\\b' & '&|!':*)");
    }
}
