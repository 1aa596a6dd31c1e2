//! The rows of the views in their reading order, the database's own checks, and the functions that the command
//! line needs in addition to reads and writes.

use loopstore_core::store;
use loopstore_core::store::columns::Columns;
use loopstore_core::store::listing::{
    ListedSession, LoopSums, SessionList, sessions as list_sessions, sort_by_start, view_of,
    with_flips,
};
use loopstore_core::store::removal::ScrubState;
use loopstore_core::store::{
    Database, QueryLimits, QueryRows, Record, RecountWork, ScanWork, SessionCursor, SessionFilter,
    SessionView, Stats, StoreError, StoreResult, WriteWork,
};
use loopstore_model::{Json, SessionId};

use super::PostgresStore;
use super::connection::Param;
use super::row::PostgresRow;
use super::schema::objects;
use super::transaction::PostgresTransaction;

const RUNS: &str = "SELECT v.*, r.events FROM v_compaction_runs v
    JOIN sessions s ON s.session_id = v.session_id
    JOIN runs r ON r.session = s.session AND r.run_id = v.run_id";

const FLIPS: &str = "SELECT r.run_id, f.kind, l.loop_id, f.turns, f.at, f.reason
    FROM flips f JOIN runs r ON r.session = f.session AND r.key = f.run
        JOIN loops l ON l.session = f.session AND l.key = f.loop
        JOIN sessions s ON s.session = f.session";

/// Selects the tables and views without row-level security, if there are tenants.
const OPEN_TO_TENANTS: &str =
    "SELECT CASE c.relkind WHEN 'v' THEN 'VIEW ' ELSE 'TABLE ' END || c.relname
    FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
    WHERE c.relnamespace = current_schema()::REGNAMESPACE
        AND (SELECT relrowsecurity FROM pg_class WHERE oid = 'sessions'::REGCLASS)
        AND CASE
            WHEN c.relkind = 'v'
            THEN NOT coalesce('security_invoker=true' = ANY (c.reloptions), FALSE)
            WHEN c.relkind IN ('r', 'p')
            THEN NOT (c.relrowsecurity AND c.relforcerowsecurity) AND EXISTS (
                SELECT 1 FROM pg_policy p
                WHERE p.polrelid IN (c.oid, i.inhparent) AND p.polname = 'tenant'
            )
            ELSE FALSE
        END
    ORDER BY c.relname";

/// Selects the rows of the list. The note that hides a session is a column and not a condition: with the
/// condition the planner expects almost no rows, and sorts all sessions for each page.
const LISTED: &str = "SELECT s.session AS key, s.session_id, s.agent_id, s.title, s.created_at,
        s.last_active_at, s.source, s.project,
        (SELECT CASE n.kind WHEN 'hide' THEN n.at END FROM hides n
         WHERE n.session = s.session ORDER BY n.key DESC LIMIT 1) AS hidden_at,
        (SELECT c.loop_id FROM loops c WHERE c.session = s.session AND c.key = s.current_loop)
            AS current_loop_id,
        t.loops, t.turns, t.messages, t.tokens
    FROM sessions s
        CROSS JOIN LATERAL (
            SELECT count(*) AS loops, coalesce(sum(l.turns), 0)::BIGINT AS turns,
                coalesce(sum(l.messages), 0)::BIGINT AS messages,
                coalesce(sum(l.tokens), 0)::BIGINT AS tokens
            FROM loops l WHERE l.session = s.session
        ) t";

/// The condition for a hidden session, from its newest note.
const IS_HIDDEN: &str = "EXISTS (
        SELECT 1 FROM hides n WHERE n.session = s.session AND n.kind = 'hide' AND NOT EXISTS (
            SELECT 1 FROM hides m WHERE m.session = n.session AND m.key > n.key
        )
    )";

const ORDER: &str = "ORDER BY s.last_active_at COLLATE \"C\" DESC NULLS LAST, s.session DESC";

/// The smallest page. The planner has to know the number of rows, so that statements contain it: it is a power
/// of two, so that there are few statements.
const SMALLEST_PAGE: usize = 16;

fn cursor(row: &PostgresRow) -> StoreResult<SessionCursor> {
    Ok(SessionCursor {
        last_active_at: row.get("last_active_at")?,
        key: row.get("key")?,
    })
}

fn listed(row: &PostgresRow) -> StoreResult<ListedSession> {
    let text = |column| {
        let text = row.text(column)?;
        Ok((column, text.map(Json::string).unwrap_or_default()))
    };
    let before = [
        "session_id",
        "agent_id",
        "title",
        "created_at",
        "last_active_at",
        "current_loop_id",
    ];
    let mut record = Record::default();
    let mut columns = before
        .into_iter()
        .map(text)
        .collect::<StoreResult<Vec<_>>>()?;
    columns.extend(LoopSums::of(row)?.columns());
    columns.extend([text("source")?, ("prompt", Json::null())]);
    columns.extend([text("project")?, text("hidden_at")?]);
    for (column, value) in columns {
        record.push(column, value);
    }
    Ok(ListedSession {
        cursor: cursor(row)?,
        record,
    })
}

impl PostgresTransaction<'_> {
    /// Returns the first `count` sessions after a position; the hidden ones too if all are requested.
    fn rows_behind(
        &self,
        filter: &SessionFilter,
        behind: Option<&SessionCursor>,
        count: usize,
    ) -> StoreResult<Vec<ListedSession>> {
        let mut params: Vec<Param<'_>> = Vec::new();
        let mut conditions = Vec::new();
        if filter.hidden {
            conditions.push(IS_HIDDEN.to_owned());
        }
        if let Some(source) = &filter.source {
            params.push(source);
            conditions.push("s.source = $1".to_owned());
        }
        if let Some(SessionCursor {
            last_active_at,
            key,
        }) = behind
        {
            params.push(key);
            let at = params.len();
            conditions.push(match last_active_at {
                None => format!("s.last_active_at IS NULL AND s.session < ${at}"),
                Some(time) => {
                    params.push(time);
                    let time = at + 1;
                    format!("(s.last_active_at COLLATE \"C\", s.session) < (${time}, ${at})")
                }
            });
        }
        let conditions = match conditions.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", conditions.join(" AND ")),
        };
        let sql = format!("{LISTED} {conditions} {ORDER} LIMIT {count}");
        self.all_of_any(&sql, &params, listed)
    }
}

impl SessionList for PostgresTransaction<'_> {
    fn place(&self, filter: &SessionFilter, count: usize) -> StoreResult<Option<SessionCursor>> {
        let not = if filter.hidden { "" } else { "NOT" };
        let sql = format!(
            "SELECT s.session AS key, s.last_active_at FROM sessions s
             WHERE {not} {IS_HIDDEN} AND ($1::TEXT IS NULL OR s.source = $1) {ORDER} LIMIT 1 OFFSET $2"
        );
        let skipped = i64::try_from(count - 1).unwrap_or(i64::MAX);
        self.first_of_any(&sql, &[&filter.source, &skipped], cursor)
    }

    fn page(
        &self,
        filter: &SessionFilter,
        behind: Option<&SessionCursor>,
        count: usize,
    ) -> StoreResult<Vec<ListedSession>> {
        let is_from_the_top = behind.is_none();
        let mut place = behind.cloned();
        let mut found: Vec<ListedSession> = Vec::new();
        while found.len() < count {
            let page_size = (count - found.len()).max(SMALLEST_PAGE).next_power_of_two();
            let rows = self.rows_behind(filter, place.as_ref(), page_size)?;
            let is_end = rows.len() < page_size;
            place = match (rows.last(), place) {
                (Some(last), _) if !is_end => Some(last.cursor.clone()),
                // From a position with a time, only sessions with a time were read.
                (_, Some(place)) if is_from_the_top && place.last_active_at.is_some() => {
                    Some(SessionCursor::UNTIMED)
                }
                _ => None,
            };
            let is_shown =
                |row: &ListedSession| row.record.text("hidden_at").is_some() == filter.hidden;
            found.extend(rows.into_iter().filter(is_shown));
            if place.is_none() {
                break;
            }
        }
        found.truncate(count);
        Ok(found)
    }
}

impl PostgresStore {
    fn rows(&self, sql: &str, values: &[&str]) -> StoreResult<QueryRows> {
        self.query_with_values(sql, values, QueryLimits::default(), self.options.limit)
    }
}

impl Database for PostgresStore {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn query_within(&self, sql: &str, limits: QueryLimits) -> StoreResult<QueryRows> {
        self.query_within(sql, limits)
    }

    fn listed_sessions(&self, filter: &SessionFilter) -> StoreResult<Vec<(SessionCursor, Record)>> {
        self.snapshot(|door| list_sessions(door, filter))
    }

    fn run_rows(&self, session: Option<&SessionId>) -> StoreResult<Vec<Record>> {
        let (runs, flips) = match session {
            None => {
                let runs =
                    self.rows(&format!("{RUNS} ORDER BY r.session DESC, r.key DESC"), &[])?;
                let flips = self.rows(&format!("{FLIPS} ORDER BY f.session, f.key"), &[])?;
                let mut found = with_flips(runs, flips)?;
                sort_by_start(&mut found);
                return Ok(found);
            }
            Some(session) => {
                let id = [session.as_str()];
                let of = "WHERE s.session_id = $1";
                let runs = format!("{RUNS} {of} ORDER BY r.tick DESC, r.key DESC");
                let flips = format!("{FLIPS} {of} ORDER BY f.key");
                (self.rows(&runs, &id)?, self.rows(&flips, &id)?)
            }
        };
        with_flips(runs, flips)
    }

    fn session_view(&self, session: &SessionId) -> StoreResult<SessionView> {
        let id = [session.as_str()];
        let found = self.rows("SELECT * FROM v_sessions WHERE session_id = $1", &id)?;
        let loops = self.rows(
            "SELECT v.* FROM v_loops v JOIN sessions s ON s.session_id = v.session_id
                 JOIN loops l ON l.session = s.session AND l.loop_id = v.loop_id
             WHERE v.session_id = $1 ORDER BY l.key",
            &id,
        )?;
        let blocks = self.rows(
            "SELECT * FROM v_compaction_blocks WHERE session_id = $1
             ORDER BY loop_id COLLATE \"C\", generation",
            &id,
        )?;
        let edits = self.rows(
            "SELECT * FROM v_edits WHERE session_id = $1
             ORDER BY run_id COLLATE \"C\", loop_id COLLATE \"C\", from_seq, part NULLS FIRST",
            &id,
        )?;
        let rows = [found, loops, blocks, edits];
        store::read(self, |read| view_of(read, session, rows))
    }

    fn stats(&self) -> StoreResult<Stats> {
        self.stats()
    }

    fn scan(&self, work: ScanWork<'_>) -> StoreResult<()> {
        self.long_snapshot(|door| work(door))
    }

    fn removing(&self, work: WriteWork<'_>) -> StoreResult<()> {
        let added = self.added_objects()?;
        if !added.is_empty() {
            return Err(StoreError::ForeignSchema(added.join(", ")));
        }
        self.long_transaction(&self.begin_write(), |door| work(door))
    }

    fn recounting(&self, work: RecountWork<'_>) -> StoreResult<()> {
        self.recounting(|write| work(write))
    }

    /// Lets the server reuse the space of removed rows. Its log, its backups and pages that are not yet reused
    /// are the operator's concern.
    fn scrub(&self) -> StoreResult<ScrubState> {
        let marked = self.rows("SELECT 1 FROM store_meta WHERE name = 'scrub'", &[])?;
        if marked.rows.is_empty() {
            return Ok(ScrubState::Clean);
        }
        self.execute_outside(
            "VACUUM sessions, loops, messages, blobs, runs, blocks, block_messages, notes,
                 started_calls, imports, sources, source_pieces, message_words",
        )?;
        self.transaction(|door| door.execute("DELETE FROM store_meta WHERE name = 'scrub'", &[]))?;
        Ok(ScrubState::OnServer)
    }

    fn integrity_problems(&self) -> StoreResult<Vec<String>> {
        // The server checks its own pages; verify has read and derived every row.
        Ok(Vec::new())
    }

    fn schema_problems(&self) -> StoreResult<Vec<String>> {
        let present = self.rows(
            "SELECT 'TABLE ' || relname FROM pg_class
             WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace
             UNION ALL
             SELECT 'VIEW ' || relname FROM pg_class
             WHERE relkind = 'v' AND relnamespace = current_schema()::regnamespace
             UNION ALL
             SELECT 'FUNCTION ' || proname FROM pg_proc
             WHERE pronamespace = current_schema()::regnamespace
             UNION ALL
             SELECT 'TRIGGER ' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
             WHERE t.tgenabled IN ('O', 'A') AND NOT t.tgisinternal
                 AND c.relnamespace = current_schema()::regnamespace",
            &[],
        )?;
        let (present, known) = (names(&present), objects());
        let missing = known.iter().filter(|name| !present.contains(name));
        let missing = missing.map(|name| format!("the {} is missing or switched off", lower(name)));
        let open = names(&self.rows(OPEN_TO_TENANTS, &[])?);
        // Views that the store did not create are not checked.
        let open = open
            .iter()
            .filter(|name| name.starts_with("TABLE") || known.contains(name));
        let open = open.map(|name| format!("the {} does not keep tenants apart", lower(name)));
        let added = self.added_objects()?;
        let added = added.iter().map(|object| {
            format!(
                "the {object} is not part of the schema, and can copy, change or block what is written: drop it"
            )
        });
        Ok(missing.chain(open).chain(added).collect())
    }

    fn index_problems(&self) -> StoreResult<Vec<String>> {
        let lost = self.rows(
            "SELECT l.key FROM loops l
                 LEFT JOIN indexed_loops i ON i.session = l.session AND i.loop = l.key
             WHERE NOT l.unindexed AND l.next_seq IS DISTINCT FROM coalesce(i.indexed_seq, 0)",
            &[],
        )?;
        Ok(match lost.rows.len() {
            0 => Vec::new(),
            count => vec![format!("{count} loops are noted as indexed and are not")],
        })
    }
}

/// Selects the triggers and rules of the schema: a description, the name, the function and the table (of a
/// partition, its partitioned table).
const TRIGGERS_AND_RULES: &str = "
    SELECT 'trigger `' || t.tgname || '` on `' || c.relname || '`', 'TRIGGER ' || t.tgname,
        'FUNCTION ' || p.proname, 'TABLE ' || w.relname, 'VIEW ' || w.relname
    FROM pg_trigger t
        JOIN pg_proc p ON p.oid = t.tgfoid
        JOIN pg_class c ON c.oid = t.tgrelid
        JOIN pg_class w ON w.oid = coalesce(pg_partition_root(c.oid), c.oid)
    WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
    UNION ALL
    SELECT 'rule `' || r.rulename || '` on `' || c.relname || '`', 'RULE', 'RULE',
        'TABLE ' || w.relname, 'VIEW ' || w.relname
    FROM pg_rewrite r
        JOIN pg_class c ON c.oid = r.ev_class
        JOIN pg_class w ON w.oid = coalesce(pg_partition_root(c.oid), c.oid)
    WHERE r.rulename <> '_RETURN' AND c.relnamespace = current_schema()::regnamespace";

impl PostgresStore {
    /// Returns the triggers and rules on tables and views of the store that the store did not create.
    fn added_objects(&self) -> StoreResult<Vec<String>> {
        let known = objects();
        let found = self.rows(TRIGGERS_AND_RULES, &[])?;
        let mut added = Vec::new();
        for row in &found.rows {
            let cells: Vec<String> = row.iter().filter_map(|cell| cell.read().ok()).collect();
            let [what, name, function, table, view] = cells.as_slice() else {
                continue;
            };
            let is_on_ours = known.contains(table) || known.contains(view);
            // The triggers against TRUNCATE are created in a loop over the tables.
            let against_truncate = format!("{}_no_truncate", table.replace("TABLE", "TRIGGER"));
            let is_named = known.contains(name) || *name == against_truncate;
            if is_on_ours && !(is_named && known.contains(function)) {
                added.push(what.clone());
            }
        }
        Ok(added)
    }
}

fn names(found: &QueryRows) -> Vec<String> {
    let values = found.rows.iter().flatten();
    values.filter_map(|value| value.read().ok()).collect()
}

/// Returns a kind and a name, with the kind in lower case.
fn lower(object: &str) -> String {
    match object.split_once(' ') {
        Some((kind, name)) => format!("{} {name}", kind.to_lowercase()),
        None => object.to_owned(),
    }
}
