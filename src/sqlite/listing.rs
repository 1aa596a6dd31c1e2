//! The rows of the views, in the order in which people read them.
//!
//! A view has no order of its own and no keys, so each question here takes its order from the
//! tables: the order of ticks and of creation, never that of times.

use super::SqliteStore;
use super::query::rows;
use super::reader::SqliteReader;
use crate::model::SessionId;
use crate::store::Database;
use crate::store::error::StoreResult;
use crate::store::listing::{
    self, ListedSession, LoopSums, SessionCursor, SessionFilter, SessionList, SessionView,
    sort_by_start, view_of, with_flips,
};
use crate::store::query::Record;

/// A session without what its loops add up to, which is asked for session by session: one pass over them
/// in place of one for each sum.
const LISTED: &str =
    "SELECT s.key, s.session_id, s.agent_id, s.title, s.created_at, s.last_active_at,
        (SELECT l.loop_id FROM loops l WHERE l.key = s.current_loop) AS current_loop_id,
        NULL AS loops, NULL AS turns, NULL AS messages, NULL AS tokens,
        s.source, NULL AS prompt, s.project,
        (SELECT CASE h.kind WHEN 'hide' THEN h.at END FROM hides h WHERE h.session = s.key
         ORDER BY h.key DESC LIMIT 1) AS hidden_at
    FROM sessions s";

const LOOP_SUMS: &str = "SELECT count(*) AS loops, CAST(total(turns) AS INTEGER) AS turns,
        CAST(total(messages) AS INTEGER) AS messages, CAST(total(tokens) AS INTEGER) AS tokens
    FROM loops WHERE session = ?1";

/// Returns the query of `count` sessions behind a place, without the first `skipped` of them, and its values.
fn list_sql<'a>(
    filter: &'a SessionFilter,
    behind: Option<&'a SessionCursor>,
    (count, skipped): (usize, usize),
) -> (String, Vec<&'a str>) {
    let [count, skipped] = [count, skipped].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let mut values: Vec<&str> = Vec::new();
    let mut sql = format!("{LISTED} WHERE (hidden_at IS NOT NULL) = {}", filter.hidden);
    if let Some(source) = &filter.source {
        values.push(source);
        sql += " AND s.source = ?1";
    }
    if let Some(SessionCursor {
        last_active_at,
        key,
    }) = behind
    {
        match last_active_at {
            Some(time) => {
                values.push(time);
                let at = values.len();
                sql += &format!(" AND (s.last_active_at, s.key) < (?{at}, {key})");
            }
            None => sql += &format!(" AND s.last_active_at IS NULL AND s.key < {key}"),
        }
    }
    sql += &format!(" ORDER BY s.last_active_at DESC, s.key DESC LIMIT {count} OFFSET {skipped}");
    (sql, values)
}

impl SqliteReader<'_> {
    /// Asks for `count` sessions behind a place, without the first `skipped` of them.
    fn listed(
        &self,
        filter: &SessionFilter,
        behind: Option<&SessionCursor>,
        part: (usize, usize),
    ) -> StoreResult<Vec<ListedSession>> {
        let (sql, values) = list_sql(filter, behind, part);
        let found = rows(self.connection, &sql, &values)?.into_records();
        let listed = found.into_iter().map(|mut record| ListedSession {
            cursor: SessionCursor {
                key: record
                    .take("key")
                    .and_then(|key| key.read().ok())
                    .unwrap_or_default(),
                last_active_at: record.text("last_active_at"),
            },
            record,
        });
        Ok(listed.collect())
    }
}

impl SessionList for SqliteReader<'_> {
    fn place(&self, filter: &SessionFilter, count: usize) -> StoreResult<Option<SessionCursor>> {
        let found = self.listed(filter, None, (1, count - 1))?;
        Ok(found.into_iter().next().map(|row| row.cursor))
    }

    fn page(
        &self,
        filter: &SessionFilter,
        behind: Option<&SessionCursor>,
        count: usize,
    ) -> StoreResult<Vec<ListedSession>> {
        let mut page = self.listed(filter, behind, (count, 0))?;
        for row in &mut page {
            let sums = self.first(LOOP_SUMS, [row.cursor.key], |row| LoopSums::of(row))?;
            for (column, sum) in sums.iter().flat_map(LoopSums::columns) {
                row.record.set(column, sum);
            }
        }
        Ok(page)
    }
}

impl SqliteStore {
    /// Returns the rows of `v_sessions` that match a filter, last active first.
    ///
    /// # Errors
    /// If the database cannot be read.
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut first = LoopRecord::new(LoopId::generate(), None);
    /// # first.status = LoopStatus::Completed;
    /// # store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &first)?;
    /// #     let message = AgentMessage::from(Message::user("Will it rain?"));
    /// #     append::append(write, loop_key, vec![message.into()], &HeuristicTokenCounter)
    /// # })?;
    /// let rows = store.session_rows(&store::SessionFilter::default())?;
    /// assert_eq!(rows[0].text("session_id"), Some("weather".into()));
    /// assert_eq!(rows[0].text("title"), Some("Will it rain?".into()));
    /// assert_eq!(rows[0].number("messages"), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn session_rows(&self, filter: &SessionFilter) -> StoreResult<Vec<Record>> {
        Database::session_rows(self, filter)
    }

    pub(super) fn listed_sessions(
        &self,
        filter: &SessionFilter,
    ) -> StoreResult<Vec<(SessionCursor, Record)>> {
        self.snapshot(|connection| listing::sessions(&self.reader(connection), filter))
    }

    /// Returns the rows of `v_compaction_runs` of one session, or of all sessions if `None`, newest first.
    ///
    /// Each row has the additional column `flips`: the undos and redos of the run, oldest first.
    ///
    /// # Errors
    /// If the database cannot be read.
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
    /// # monday.status = LoopStatus::Completed;
    /// # let loop_key = store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &monday)?;
    /// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
    /// #     let messages = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
    /// #     append::append(write, loop_key, messages.collect(), &HeuristicTokenCounter)?;
    /// #     Ok(loop_key)
    /// # })?;
    /// # let trigger = CompactTrigger::Force;
    /// # let request = CompactRequest { trigger, ..CompactRequest::default() };
    /// compact_session_loops(&store, &id, &request)?;
    /// let rows = store.run_rows(Some(&id))?;
    /// assert_eq!(rows[0].text("outcome"), Some("committed".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_rows(&self, session: Option<&SessionId>) -> StoreResult<Vec<Record>> {
        let runs = "SELECT v.*, r.events FROM v_compaction_runs v JOIN runs r USING (run_id)";
        let flips = "SELECT r.run_id, f.kind, l.loop_id, f.turns, f.at, f.reason
             FROM flips f JOIN runs r ON r.key = f.run JOIN loops l ON l.key = f.loop";
        self.snapshot(|connection| {
            let Some(session) = session else {
                let runs = format!("{runs} ORDER BY r.session DESC, r.key DESC");
                let flips = format!("{flips} ORDER BY f.key");
                let mut found = with_flips(
                    rows(connection, &runs, &[])?,
                    rows(connection, &flips, &[])?,
                )?;
                sort_by_start(&mut found);
                return Ok(found);
            };
            let id = [session.as_str()];
            let runs = format!("{runs} WHERE v.session_id = ?1 ORDER BY r.tick DESC, r.key DESC");
            let flips = format!(
                "{flips} WHERE r.session = (SELECT key FROM sessions WHERE session_id = ?1) ORDER BY f.key"
            );
            with_flips(
                rows(connection, &runs, &id)?,
                rows(connection, &flips, &id)?,
            )
        })
    }

    /// Returns a session with its loops and blocks.
    ///
    /// # Errors
    /// If the session does not exist, or the database cannot be read.
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut first = LoopRecord::new(LoopId::generate(), None);
    /// # first.status = LoopStatus::Completed;
    /// # store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &first)?;
    /// #     let message = AgentMessage::from(Message::user("Will it rain?"));
    /// #     append::append(write, loop_key, vec![message.into()], &HeuristicTokenCounter)
    /// # })?;
    /// let view = store.session_view(&id)?;
    /// assert_eq!(view.session.number("messages"), Some(1));
    /// assert_eq!(view.loops.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn session_view(&self, session: &SessionId) -> StoreResult<SessionView> {
        let id = [session.as_str()];
        self.snapshot(|connection| {
            let all = |sql| rows(connection, sql, &id);
            let found = all("SELECT * FROM v_sessions WHERE session_id = ?1")?;
            let loops = all(
                "SELECT v.* FROM v_loops v JOIN sessions s USING (session_id)
                     JOIN loops l ON l.session = s.key AND l.loop_id = v.loop_id
                 WHERE v.session_id = ?1 ORDER BY l.key",
            )?;
            let blocks = all("SELECT * FROM v_compaction_blocks WHERE session_id = ?1
                 ORDER BY loop_id, generation")?;
            let edits = all("SELECT * FROM v_edits WHERE session_id = ?1
                 ORDER BY run_id, loop_id, from_seq, part")?;
            view_of(
                &self.reader(connection),
                session,
                [found, loops, blocks, edits],
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::statements::PROMPTS_OF_SESSION;

    #[test]
    fn a_page_of_sessions_is_read_along_the_index_and_nothing_is_sorted() {
        let store = SqliteStore::in_memory().unwrap();
        let plain = SessionFilter::default();
        let of_source = SessionFilter {
            source: Some("codex".into()),
            ..SessionFilter::default()
        };
        let timed = SessionCursor {
            last_active_at: Some("2026-01-02T12:00:00Z".into()),
            key: 7,
        };
        let untimed = SessionCursor {
            last_active_at: None,
            key: 7,
        };
        for filter in [&plain, &of_source] {
            for behind in [None, Some(&timed), Some(&untimed)] {
                let (sql, values) = list_sql(filter, behind, (50, 0));
                let plan = format!("EXPLAIN QUERY PLAN {sql}");
                let plan = store.query_with(&plan, &values).unwrap().records();
                let steps: Vec<_> = plan.iter().filter_map(|row| row.text("detail")).collect();
                let steps = steps.join("\n");
                assert!(steps.contains("USING INDEX sessions_active"), "{steps}");
                assert!(!steps.contains("TEMP B-TREE"), "{steps}");
                assert_eq!(behind.is_some(), steps.contains("SEARCH s"), "{steps}");
            }
        }
    }

    #[test]
    fn the_first_prompt_of_a_session_is_found_without_sorting_all() {
        let store = SqliteStore::in_memory().unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {PROMPTS_OF_SESSION}");
        let plan = store.query_with(&sql, &["1", "1", "0"]).unwrap().records();
        let steps: Vec<_> = plan.iter().filter_map(|row| row.text("detail")).collect();
        let steps = steps.join("\n");
        assert!(steps.contains("loops_session"), "{steps}");
        assert!(!steps.contains("TEMP B-TREE"), "{steps}");
    }
}
