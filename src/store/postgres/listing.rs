//! The rows of the views in the order in which people read them, checks of the database's own, and
//! what the command line needs beside the two doors.

use super::PostgresStore;
use super::schema::objects;
use crate::model::SessionId;
use crate::store;
use crate::store::database::Database;
use crate::store::error::StoreResult;
use crate::store::listing::{self, SESSION_COLUMNS, SessionFilter};
use crate::store::recount::StoreRecount;
use crate::store::removal::StoreRemove;
use crate::store::scan::StoreScan;
use crate::store::sqlite::{
    QueryLimits, QueryRows, Record, Scrubbed, SessionView, Stats, view_of, with_flips,
};

const RUNS: &str = "SELECT v.*, r.events FROM v_compaction_runs v
    JOIN sessions s ON s.session_id = v.session_id
    JOIN runs r ON r.session = s.session AND r.run_id = v.run_id";

const FLIPS: &str = "SELECT r.run_id, f.kind, l.loop_id, f.turns, f.at, f.reason
    FROM flips f JOIN runs r ON r.session = f.session AND r.key = f.run
        JOIN loops l ON l.session = f.session AND l.key = f.loop
        JOIN sessions s ON s.session = f.session";

/// The tables and views that row-level security does not hold for, where there are tenants.
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

impl PostgresStore {
    fn rows(&self, sql: &str, values: &[&str]) -> StoreResult<QueryRows> {
        self.asked(sql, values, QueryLimits::default(), self.options.limit)
    }
}

impl Database for PostgresStore {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn query_within(&self, sql: &str, limits: QueryLimits) -> StoreResult<QueryRows> {
        self.query_within(sql, limits)
    }

    fn session_rows(&self, filter: &SessionFilter) -> StoreResult<Vec<Record>> {
        let sql = format!(
            "SELECT {SESSION_COLUMNS}, s.session AS key
             FROM v_sessions v JOIN sessions s ON s.session_id = v.session_id
             ORDER BY s.last_active_at COLLATE \"C\" DESC NULLS LAST, s.session DESC"
        );
        let found = self.rows(&sql, &[])?.records();
        store::read(self, |read| listing::sessions(read, found, filter))
    }

    fn run_rows(&self, session: Option<&SessionId>) -> StoreResult<Vec<Record>> {
        let (runs, flips) = match session {
            None => (
                self.rows(
                    &format!("{RUNS} ORDER BY r.started_at COLLATE \"C\" DESC, r.session DESC, r.key DESC"),
                    &[],
                )?,
                self.rows(&format!("{FLIPS} ORDER BY f.session, f.key"), &[])?,
            ),
            Some(session) => {
                let id = [session.as_str()];
                let of = "WHERE s.session_id = $1";
                let runs = format!("{RUNS} {of} ORDER BY r.tick DESC, r.key DESC");
                let flips = format!("{FLIPS} {of} ORDER BY f.key");
                (self.rows(&runs, &id)?, self.rows(&flips, &id)?)
            }
        };
        with_flips(&runs, &flips)
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
        store::read(self, |read| {
            view_of(read, session, [&found, &loops, &blocks])
        })
    }

    fn stats(&self) -> StoreResult<Stats> {
        self.stats()
    }

    fn scan(&self, work: &mut dyn FnMut(&dyn StoreScan) -> StoreResult<()>) -> StoreResult<()> {
        self.long_snapshot(|door| work(door))
    }

    fn removing(
        &self,
        work: &mut dyn FnMut(&mut dyn StoreRemove) -> StoreResult<()>,
    ) -> StoreResult<()> {
        self.long_transaction(&self.begin_write(), |door| work(door))
    }

    fn recounting(
        &self,
        work: &mut dyn FnMut(&mut dyn StoreRecount) -> StoreResult<()>,
    ) -> StoreResult<()> {
        self.recounting(|write| work(write))
    }

    /// Lets the server use the place of removed rows again. What its log, its backups and pages that are
    /// not used again still hold is for whoever runs it.
    fn scrub(&self) -> StoreResult<Scrubbed> {
        let marked = self.rows("SELECT 1 FROM store_meta WHERE name = 'scrub'", &[])?;
        if marked.rows.is_empty() {
            return Ok(Scrubbed::Clean);
        }
        self.alone(
            "VACUUM sessions, loops, messages, blobs, runs, blocks, block_messages, notes,
                 started_calls, imports, sources, source_pieces, message_words",
        )?;
        self.transaction(|door| door.execute("DELETE FROM store_meta WHERE name = 'scrub'", &[]))?;
        Ok(Scrubbed::OnServer)
    }

    fn integrity_problems(&self) -> StoreResult<Vec<String>> {
        // The server keeps its pages; every row is read and derived again above.
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
        // Views of others are theirs.
        let open = open
            .iter()
            .filter(|name| name.starts_with("TABLE") || known.contains(name));
        let open = open.map(|name| format!("the {} does not keep tenants apart", lower(name)));
        Ok(missing.chain(open).collect())
    }

    fn index_problems(&self) -> StoreResult<Vec<String>> {
        let lost = self.rows(
            "SELECT n.session FROM indexed_sessions n
                 JOIN sessions s ON s.session = n.session AND s.tick = n.tick
                 JOIN loops l ON l.session = s.session
                 LEFT JOIN indexed_loops i ON i.session = l.session AND i.loop = l.key
             WHERE l.next_seq IS DISTINCT FROM coalesce(i.indexed_seq, 0)",
            &[],
        )?;
        Ok(match lost.rows.len() {
            0 => Vec::new(),
            count => vec![format!("{count} loops are noted as indexed and are not")],
        })
    }
}

/// Returns the values of rows of one text.
fn names(found: &QueryRows) -> Vec<String> {
    let values = found.rows.iter().flatten();
    values.filter_map(|value| value.read().ok()).collect()
}

/// Returns a kind and a name with the kind in small letters.
fn lower(object: &str) -> String {
    match object.split_once(' ') {
        Some((kind, name)) => format!("{} {name}", kind.to_lowercase()),
        None => object.to_owned(),
    }
}
