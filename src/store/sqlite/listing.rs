//! The rows of the views, in the order in which people read them.
//!
//! A view has no order of its own and no keys, so each question here takes its order from the
//! tables: the order of ticks and of creation, never that of times.

use super::SqliteStore;
use super::query::{QueryRows, Record, rows};
use crate::model::{Json, SessionId};
use crate::store::StoreRead;
use crate::store::error::{StoreError, StoreResult};
use crate::store::listing::{self, SESSION_COLUMNS, SessionFilter};
use crate::store::rows::noted_events;

/// A session with its loops and what compactions made of them, as rows of the views.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    /// The row of `v_sessions`.
    pub session: Record,
    /// The rows of `v_loops` in the order of their creation, each with the rows of
    /// `v_compaction_blocks` on it.
    pub loops: Vec<(Record, Vec<Record>)>,
}

impl SqliteStore {
    /// Returns the rows of `v_sessions` that are asked for, last active first.
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
        let sql = format!(
            "SELECT {SESSION_COLUMNS}, s.key
             FROM v_sessions v JOIN sessions s ON s.session_id = v.session_id
             ORDER BY s.last_active_at DESC, s.key DESC"
        );
        self.snapshot(|connection| {
            let found = rows(connection, &sql, &[])?;
            listing::sessions(&self.reader(connection), found.records(), filter)
        })
    }

    /// Returns the rows of `v_compaction_runs`, newest first: of one session or of all.
    ///
    /// Each has one more column, `flips`: its undos and redos, oldest first.
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
             FROM flips f JOIN runs r ON r.key = f.run JOIN loops l ON l.key = f.loop
             ORDER BY f.key";
        self.snapshot(|connection| {
            let found = match session {
                None => rows(
                    connection,
                    &format!("{runs} ORDER BY r.started_at DESC, r.session DESC, r.key DESC"),
                    &[],
                )?,
                Some(session) => {
                    let sql =
                        format!("{runs} WHERE v.session_id = ?1 ORDER BY r.tick DESC, r.key DESC");
                    rows(connection, &sql, &[session.as_str()])?
                }
            };
            with_flips(&found, &rows(connection, flips, &[])?)
        })
    }

    /// Returns a session with its loops and blocks.
    ///
    /// # Errors
    /// If the session is not there, or the database cannot be read.
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
            view_of(&self.reader(connection), session, [&found, &loops, &blocks])
        })
    }
}

/// Puts the rows of a session together.
pub(in crate::store) fn view_of(
    read: &dyn StoreRead,
    id: &SessionId,
    [found, loops, blocks]: [&QueryRows; 3],
) -> StoreResult<SessionView> {
    let missing = || StoreError::NoSession(id.to_string());
    let mut session = found.records().into_iter().next().ok_or_else(missing)?;
    let mut loops = loops.records();
    listing::session_and_loops(read, id, &mut session, &mut loops)?;
    Ok(SessionView {
        session,
        loops: with_blocks(loops, &blocks.records()),
    })
}

fn with_blocks(loops: Vec<Record>, blocks: &[Record]) -> Vec<(Record, Vec<Record>)> {
    let of = |row: &Record| {
        let id = row.get("loop_id");
        let own = blocks.iter().filter(|block| block.get("loop_id") == id);
        own.cloned().collect()
    };
    loops
        .into_iter()
        .map(|row| (of(&row), row))
        .map(|(blocks, row)| (row, blocks))
        .collect()
}

/// Gives each run its events and its undos and redos.
pub(in crate::store) fn with_flips(
    runs: &QueryRows,
    flips: &QueryRows,
) -> StoreResult<Vec<Record>> {
    let flips = flips.records();
    let mut records = runs.records();
    for record in &mut records {
        let id = record.get("run_id");
        let own: Vec<&Record> = flips
            .iter()
            .filter(|flip| flip.get("run_id") == id)
            .collect();
        let other = |error: serde_json::Error| StoreError::Other(Box::new(error));
        let own = Json::of(&own).map_err(other)?;
        // Read as they stand in the row.
        let events = record.text("events");
        record.set(
            "events",
            Json::of(&noted_events(events.as_deref())).map_err(other)?,
        );
        record.push("flips", own);
    }
    Ok(records)
}
