//! Reading rows. Each query contains the session, which the client takes from the key; only lists over all
//! sessions, names and imports do not.

use std::ops::{ControlFlow, Range};

use loopstore_core::store::columns::{Columns, missing};
use loopstore_core::store::mapping::*;
use loopstore_core::store::packs::fill;
use loopstore_core::store::prompt::{PromptPlace, PromptsOf, VisitPrompt};
use loopstore_core::store::*;
use loopstore_model::{LoopId, SessionId};

use super::connection::Param;
use super::keys::session_of;
use super::row::*;
use super::transaction::{PostgresTransaction, paged};

/// The number of rows that are fetched at a time if the caller may stop early or the rows are large.
const PAGE: i64 = 64;
const SMALL_PAGE: i64 = 1024;

type FromRow<T> = fn(&PostgresRow) -> StoreResult<T>;

impl PostgresTransaction<'_> {
    /// Returns the loops of a chain from `leaf` on, one page at most.
    fn links<T>(&self, leaf: LoopKey, columns: &str, from_row: FromRow<T>) -> StoreResult<Vec<T>> {
        // The rows come in the order of the recursion, and the limit ends it. Keys decrease from child to
        // parent, so that the recursion cannot be endless.
        let sql = format!(
            "WITH RECURSIVE chain AS (
                 SELECT l.* FROM loops l WHERE l.session = $1 AND l.key = $2
                 UNION ALL
                 SELECT l.* FROM chain c JOIN loops l
                     ON l.session = $1 AND l.key = c.parent AND l.key < c.key
             )
             SELECT {columns} FROM chain l LIMIT {PAGE}"
        );
        let session = session_of(leaf.0);
        self.all(session, &sql, &[&session, &leaf.0], from_row)
    }

    /// Returns the columns that a chain needs for a page of its loops, from `leaf` on, and the beginning of the
    /// next page.
    pub(super) fn page_of_chain(
        &self,
        leaf: LoopKey,
    ) -> StoreResult<(Vec<LoopCore>, Option<LoopKey>)> {
        let core = |row: &PostgresRow| loop_core(row, row.get("key")?);
        let links = self.links(leaf, CORE_COLUMNS, core)?;
        let next = after_page(links.len(), links.last());
        Ok((links, next))
    }

    fn name_of(&self, id: &SessionId) -> StoreResult<Option<i64>> {
        let sql = "SELECT session FROM session_names WHERE session_id = $1";
        self.first_of_any(sql, &[&id.as_str()], |row| row.get("session"))
    }
}

/// Returns the beginning of the page after one with `length` loops.
fn after_page(length: usize, last: Option<&LoopCore>) -> Option<LoopKey> {
    let last = last.filter(|_| length as i64 >= PAGE)?;
    last.parent.filter(|parent| *parent < last.key)
}

impl ReadSessions for PostgresTransaction<'_> {
    fn session(&self, id: &SessionId) -> StoreResult<Option<SessionRow>> {
        let mut found = self.name_of(id)?;
        if found.is_none() && self.writes() {
            // A caller that finds no session may be about to create it.
            self.lock_name(&["session", id.as_str()])?;
            found = self.name_of(id)?;
        }
        let Some(key) = found else {
            return Ok(None);
        };
        self.lock(key)?;
        if let Some(row) = self.prefetched_session(SessionKey(key)) {
            return Ok(Some(row));
        }
        let sql = format!("{SESSION} WHERE s.session = $1");
        self.first(key, &sql, &[&key], session_row)
    }

    fn session_by_key(&self, key: SessionKey) -> StoreResult<SessionRow> {
        self.lock(key.0)?;
        if let Some(row) = self.prefetched_session(key) {
            return Ok(row);
        }
        let sql = format!("{SESSION} WHERE s.session = $1");
        self.first(key.0, &sql, &[&key.0], session_row)?
            .ok_or_else(|| missing("session", key.0))
    }

    fn sessions(&self) -> StoreResult<Vec<SessionRow>> {
        let sql = format!(
            "{SESSION} ORDER BY s.last_active_at COLLATE \"C\" DESC NULLS LAST, s.session DESC"
        );
        self.all_of_any(&sql, &[], session_row)
    }

    fn session_ids(&self, first: &str, limit: u32) -> StoreResult<Vec<SessionId>> {
        // A text of PostgreSQL contains no zero byte.
        let first = first.split('\0').next().unwrap_or_default();
        let sql = "SELECT session_id FROM session_names WHERE session_id COLLATE \"C\" >= $1
            ORDER BY session_id COLLATE \"C\" LIMIT $2";
        self.all_of_any(sql, &[&first, &i64::from(limit)], |row| {
            row.get("session_id")
        })
    }

    fn started_by(&self, session: SessionKey) -> StoreResult<Vec<SessionKey>> {
        let sql = "SELECT session FROM sessions
             WHERE started_by IN (SELECT p.session_id FROM sessions p WHERE p.session = $1)
             ORDER BY session";
        self.all(session.0, sql, &[&session.0], |row| row.get("session"))
    }

    fn flags(&self, session: SessionKey) -> StoreResult<SessionFlags> {
        let sql = "SELECT protected_at, redacts FROM session_flags WHERE session = $1";
        let flags = self.first(session.0, sql, &[&session.0], session_flags)?;
        Ok(flags.unwrap_or_default())
    }

    fn last_receipt(&self, session: SessionKey) -> StoreResult<i64> {
        let sql = "SELECT coalesce(max(key), 0) AS last FROM maintenance WHERE session = $1";
        let last = self.first(session.0, sql, &[&session.0], |row| row.get("last"))?;
        Ok(last.unwrap_or(0))
    }
}

impl ReadLoops for PostgresTransaction<'_> {
    fn loop_by_id(&self, session: SessionKey, id: &LoopId) -> StoreResult<Option<LoopRow>> {
        let sql =
            format!("SELECT {LOOP_COLUMNS} FROM loops l WHERE l.session = $1 AND l.loop_id = $2");
        self.first(session.0, &sql, &[&session.0, &id.as_str()], loop_row)
    }

    fn loop_by_key(&self, key: LoopKey) -> StoreResult<LoopRow> {
        if let Some(row) = self.prefetched_loop(key) {
            return Ok(row);
        }
        let sql = format!("SELECT {LOOP_COLUMNS} FROM loops l WHERE l.session = $1 AND l.key = $2");
        let session = session_of(key.0);
        self.first(session, &sql, &[&session, &key.0], loop_row)?
            .ok_or_else(|| missing("loop", key.0))
    }

    fn loops(&self, session: SessionKey) -> StoreResult<Vec<LoopRow>> {
        let sql = format!("SELECT {LOOP_COLUMNS} FROM loops l WHERE l.session = $1 ORDER BY l.key");
        self.all(session.0, &sql, &[&session.0], loop_row)
    }

    fn loop_lengths(&self, session: SessionKey) -> StoreResult<Vec<(LoopKey, u32)>> {
        let sql = "SELECT key, next_seq FROM loops WHERE session = $1 ORDER BY key";
        self.all(session.0, sql, &[&session.0], |row| {
            Ok((row.get("key")?, row.get("next_seq")?))
        })
    }

    fn loops_at_work(&self, session: Option<SessionKey>) -> StoreResult<Vec<LoopKey>> {
        let key = |row: &PostgresRow| row.get("key");
        let sql = "SELECT key FROM loops WHERE status IN ('Pending', 'Running')";
        match session {
            Some(session) => {
                let sql = format!("{sql} AND session = $1 ORDER BY key");
                self.all(session.0, &sql, &[&session.0], key)
            }
            None => self.all_of_any(&format!("{sql} ORDER BY session, key"), &[], key),
        }
    }

    fn loops_with_system_messages(
        &self,
        session: SessionKey,
        until: LoopKey,
        most: u32,
    ) -> StoreResult<Vec<LoopKey>> {
        let sql = "SELECT key FROM loops
            WHERE session = $1 AND key <= $2 AND system_tokens > 0 ORDER BY key DESC LIMIT $3";
        let params = (session.0, until.0, i64::from(most));
        let params: [Param<'_>; 3] = [&params.0, &params.1, &params.2];
        self.all(session.0, sql, &params, |row| row.get("key"))
    }

    fn loop_meta(&self, key: LoopKey) -> StoreResult<LoopMeta> {
        let session = session_of(key.0);
        let sql = "SELECT meta, history FROM loops WHERE session = $1 AND key = $2";
        let meta = self.first(session, sql, &[&session, &key.0], loop_meta)?;
        meta.ok_or_else(|| missing("loop", key.0))
    }

    fn default_child(&self, key: LoopKey) -> StoreResult<Option<LoopKey>> {
        let sql = r#"SELECT max(key) AS key FROM loops
            WHERE session = $1 AND parent = $2 AND kind = '"Default"'"#;
        let session = session_of(key.0);
        let child = self.first(session, sql, &[&session, &key.0], |row| row.get("key"))?;
        Ok(child.flatten())
    }

    fn walk(&self, leaf: LoopKey, visit: &mut Visit<'_, LoopRow>) -> StoreResult<()> {
        let mut next = Some(leaf);
        while let Some(leaf) = next {
            let links = self.links(leaf, LOOP_COLUMNS, loop_row)?;
            next = after_page(links.len(), links.last().map(|last| &last.core));
            for row in links {
                if let ControlFlow::Break(()) = visit(row)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl StoreRead for PostgresTransaction<'_> {
    fn loops_with_blocks(
        &self,
        leaf: LoopKey,
        visit: &mut Visit<'_, LoopWithBlock>,
    ) -> StoreResult<()> {
        self.walk_standings(leaf, visit)
    }

    fn prompts(&self, of: PromptsOf<'_>, visit: &mut VisitPrompt<'_>) -> StoreResult<()> {
        self.read_prompts(of, visit)
    }
}

impl ReadTurns for PostgresTransaction<'_> {
    fn turn(&self, loop_key: LoopKey, turn: u32) -> StoreResult<Option<TurnRow>> {
        let session = session_of(loop_key.0);
        let sql = format!("{TURN} WHERE session = $1 AND loop = $2 AND turn = $3");
        let params = [session, loop_key.0, i64::from(turn)];
        self.first(
            session,
            &sql,
            &[&params[0], &params[1], &params[2]],
            turn_row,
        )
    }

    fn turns(&self, loop_key: LoopKey, turns: Range<u32>) -> StoreResult<Vec<TurnRow>> {
        if turns.is_empty() {
            return Ok(Vec::new());
        }
        let session = session_of(loop_key.0);
        let (from, to) = (i64::from(turns.start), i64::from(turns.end));
        let sql = format!(
            "{TURN} WHERE session = $1 AND loop = $2 AND turn >= $3 AND turn < $4 ORDER BY turn"
        );
        self.all(
            session,
            &sql,
            &[&session, &loop_key.0, &from, &to],
            turn_row,
        )
    }

    fn answers(
        &self,
        loop_key: LoopKey,
        turns: Range<u32>,
    ) -> StoreResult<Vec<(u32, Vec<CallSite>)>> {
        if turns.is_empty() {
            return Ok(Vec::new());
        }
        let session = session_of(loop_key.0);
        let (from, to) = (i64::from(turns.start), i64::from(turns.end));
        let sql = "SELECT turn, answers FROM turns
             WHERE session = $1 AND loop = $2 AND turn >= $3 AND turn < $4 AND answers IS NOT NULL
             ORDER BY turn";
        self.all(
            session,
            sql,
            &[&session, &loop_key.0, &from, &to],
            turn_answers,
        )
    }
}

impl ReadMessages for PostgresTransaction<'_> {
    fn messages(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageRow>,
    ) -> StoreResult<()> {
        if seqs.is_empty() {
            return Ok(());
        }
        let session = session_of(loop_key.0);
        let (first, end) = (i64::from(seqs.start), i64::from(seqs.end));
        let sql = format!(
            "{MESSAGE} WHERE session = $1 AND loop = $2 AND seq >= $3 AND seq < $4
             ORDER BY seq LIMIT {PAGE}"
        );
        paged(
            PAGE,
            |row: &MessageRow| i64::from(row.seq),
            |after| {
                let from = after.map_or(first, |after| after + 1);
                let params: [Param<'_>; 4] = [&session, &loop_key.0, &from, &end];
                self.all(session, &sql, &params, message_row)
            },
            &mut |mut row: MessageRow| {
                if row.body.head.is_none() {
                    fill(self, &self.last_pack, loop_key, &mut row)?;
                }
                visit(row)
            },
        )
    }

    fn message_refs(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        proofs: bool,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        self.read_refs(loop_key, seqs, proofs, visit)
    }

    fn message_refs_as_needed(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        proofs: bool,
        need: &dyn Fn(u32) -> ContentNeed,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        let without_text = seqs.clone().filter(|seq| need(*seq) != ContentNeed::Whole);
        let without_text: Vec<i64> = without_text.map(i64::from).collect();
        self.read_refs_without(loop_key, seqs, proofs, &without_text, visit)
    }

    fn sizes(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageSize>,
    ) -> StoreResult<()> {
        if seqs.is_empty() {
            return Ok(());
        }
        let session = session_of(loop_key.0);
        let (first, end) = (i64::from(seqs.start), i64::from(seqs.end));
        let sql = format!(
            "SELECT seq, turn, role, author, tokens, bytes, lines FROM messages
             WHERE session = $1 AND loop = $2 AND seq >= $3 AND seq < $4
             ORDER BY seq LIMIT {SMALL_PAGE}"
        );
        paged(
            SMALL_PAGE,
            |row: &MessageSize| i64::from(row.seq),
            |after| {
                let from = after.map_or(first, |after| after + 1);
                let params: [Param<'_>; 4] = [&session, &loop_key.0, &from, &end];
                self.all(session, &sql, &params, message_size)
            },
            visit,
        )
    }

    fn length_at(&self, loop_key: LoopKey, tick: Tick) -> StoreResult<u32> {
        // Ticks rise with the sequence: the search ends at the newest message that is old enough.
        let session = session_of(loop_key.0);
        let sql = "SELECT seq FROM messages WHERE session = $1 AND loop = $2 AND tick <= $3
             ORDER BY seq DESC LIMIT 1";
        let last = self.first(session, sql, &[&session, &loop_key.0, &tick], |row| {
            row.get::<u32>("seq")
        })?;
        Ok(last.map_or(0, |seq| seq + 1))
    }

    fn is_overlaid_since(
        &self,
        session: SessionKey,
        loop_key: LoopKey,
        seq: u32,
    ) -> StoreResult<Option<bool>> {
        let sql = "SELECT tick < greatest(
                 (SELECT max(tick) FROM runs WHERE session = $1 AND outcome = 'committed'),
                 (SELECT max(tick) FROM flips WHERE session = $1),
                 0
             ) AS since
             FROM messages WHERE session = $1 AND loop = $2 AND seq = $3";
        let seq = i64::from(seq);
        let values: [Param<'_>; 3] = [&session.0, &loop_key.0, &seq];
        self.first(session.0, sql, &values, |row| row.get("since"))
    }

    fn prompt_places(&self, of: PromptsOf<'_>, limit: u32) -> StoreResult<Vec<PromptPlace>> {
        self.read_prompt_places(of, limit)
    }

    fn usage(&self, session: SessionKey) -> StoreResult<Vec<UsageRow>> {
        self.read_usage(session)
    }
}

impl ReadBlobs for PostgresTransaction<'_> {
    fn blob(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        // Every session has its own copy of a blob: the session that was read last is the one that refers to
        // it.
        for session in self.seen().into_iter().take(1) {
            let sql = "SELECT data FROM blobs WHERE session = $1 AND sha256 = $2";
            let params: [Param<'_>; 2] = [&session, &&sha256[..]];
            let data = self.first_of_any(sql, &params, |row| row.get("data"))?;
            if data.is_some() {
                return Ok(data);
            }
        }
        let sql = "SELECT data FROM blobs WHERE sha256 = $1 LIMIT 1";
        self.first_of_any(sql, &[&&sha256[..]], |row| row.get("data"))
    }

    fn blob_names(&self, first: &[u8; 32], last: &[u8; 32]) -> StoreResult<Vec<[u8; 32]>> {
        let sql =
            "SELECT DISTINCT sha256 FROM blobs WHERE sha256 BETWEEN $1 AND $2 ORDER BY sha256";
        self.all_of_any(sql, &[&&first[..], &&last[..]], |row| row.get("sha256"))
    }
}

impl ReadRuns for PostgresTransaction<'_> {
    fn run_by_key(&self, key: RunKey) -> StoreResult<RunRow> {
        let session = session_of(key.0);
        let sql = format!("SELECT key, {RUN_COLUMNS} FROM runs WHERE session = $1 AND key = $2");
        self.first(session, &sql, &[&session, &key.0], run_row)?
            .ok_or_else(|| missing("run", key.0))
    }

    fn runs(&self, session: SessionKey, visit: &mut Visit<'_, RunRow>) -> StoreResult<()> {
        let sql = format!(
            "SELECT key, {RUN_COLUMNS} FROM runs
             WHERE session = $1 AND (tick, key) < ($2, $3)
             ORDER BY tick DESC, key DESC LIMIT {PAGE}"
        );
        paged(
            PAGE,
            |run: &RunRow| (run.tick, run.key.0),
            |after| {
                let (tick, key) = after.unwrap_or((i64::MAX, i64::MAX));
                self.all(session.0, &sql, &[&session.0, &tick, &key], run_row)
            },
            visit,
        )
    }

    fn open_runs(&self, session: Option<SessionKey>) -> StoreResult<Vec<RunRow>> {
        let sql = format!("SELECT key, {RUN_COLUMNS} FROM runs WHERE digest IS NULL");
        match session {
            None => self.all_of_any(&sql, &[], run_row),
            Some(SessionKey(key)) => {
                self.all(key, &format!("{sql} AND session = $1"), &[&key], run_row)
            }
        }
    }

    fn run_summaries(
        &self,
        session: SessionKey,
        visit: &mut VisitRunSummary<'_>,
    ) -> StoreResult<()> {
        self.read_marks(session, "TRUE", visit)
    }

    fn compaction_summaries(
        &self,
        session: SessionKey,
        visit: &mut VisitRunSummary<'_>,
    ) -> StoreResult<()> {
        self.read_marks(session, "r.trigger <> 'edit'", visit)
    }

    fn flips(&self, run: RunKey) -> StoreResult<Vec<FlipRow>> {
        let session = session_of(run.0);
        let sql = format!(
            "SELECT {FLIP_COLUMNS} FROM flips WHERE session = $1 AND run = $2 ORDER BY tick, key"
        );
        self.all(session, &sql, &[&session, &run.0], flip_row)
    }
}

impl ReadPins for PostgresTransaction<'_> {
    fn pins(&self, session: SessionKey) -> StoreResult<Vec<PinRow>> {
        let sql = format!("SELECT {PIN_COLUMNS} FROM pins WHERE session = $1 ORDER BY tick, key");
        self.all(session.0, &sql, &[&session.0], pin_row)
    }
}

impl ReadHides for PostgresTransaction<'_> {
    fn hides(&self, session: SessionKey) -> StoreResult<Vec<HideRow>> {
        let sql = format!("SELECT {HIDE_COLUMNS} FROM hides WHERE session = $1 ORDER BY key");
        self.all(session.0, &sql, &[&session.0], hide_row)
    }

    fn hidden_sessions(&self) -> StoreResult<Vec<SessionKey>> {
        let sql = "SELECT h.session FROM hides h
             WHERE h.kind = 'hide'
                 AND h.key = (SELECT max(n.key) FROM hides n WHERE n.session = h.session)
             ORDER BY h.session";
        self.all_of_any(sql, &[], |row| row.get("session"))
    }

    fn renamed_from(&self, id: &SessionId) -> StoreResult<Vec<SessionKey>> {
        let sql = "SELECT DISTINCT session FROM hides WHERE was = $1 ORDER BY session";
        self.all_of_any(sql, &[&id.as_str()], |row| row.get("session"))
    }
}

impl ReadBlocks for PostgresTransaction<'_> {
    fn block_by_key(&self, key: BlockKey) -> StoreResult<BlockRow> {
        let session = session_of(key.0);
        let sql =
            format!("SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE session = $1 AND key = $2");
        self.first(session, &sql, &[&session, &key.0], block_row)?
            .ok_or_else(|| missing("block", key.0))
    }

    fn blocks_of_run(&self, run: RunKey) -> StoreResult<Vec<BlockRow>> {
        let session = session_of(run.0);
        let sql = format!(
            "SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE session = $1 AND run = $2
             ORDER BY loop, key"
        );
        self.all(session, &sql, &[&session, &run.0], block_row)
    }

    fn blocks_of_loop(&self, loop_key: LoopKey) -> StoreResult<Vec<BlockRow>> {
        let session = session_of(loop_key.0);
        let sql = format!(
            "SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE session = $1 AND loop = $2
             ORDER BY generation"
        );
        self.all(session, &sql, &[&session, &loop_key.0], block_row)
    }

    fn generations(&self, loop_key: LoopKey, visit: &mut Visit<'_, Generation>) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        let sql = format!(
            "SELECT {BLOCK_CORE_COLUMNS}, r.loop AS run_loop, r.turns AS run_turns, r.tick AS run_tick
             FROM blocks b JOIN runs r ON r.session = $1 AND r.key = b.run
             WHERE b.session = $1 AND b.loop = $2 AND b.generation < $3
                 AND r.outcome = 'committed'
             ORDER BY b.generation DESC LIMIT {PAGE}"
        );
        paged(
            PAGE,
            |found: &Generation| i64::from(found.block.generation),
            |after| {
                let before = after.unwrap_or(i64::MAX);
                self.all(session, &sql, &[&session, &loop_key.0, &before], |row| {
                    generation(row, row.get("loop")?)
                })
            },
            visit,
        )
    }

    fn block_messages(&self, block: BlockKey) -> StoreResult<Vec<BlockMessage>> {
        let session = session_of(block.0);
        let sql =
            "SELECT role, tokens, bytes, body_block, salt, digest, head, body, escaped, section,
                 replaces, quotes
             FROM block_messages WHERE session = $1 AND block = $2 ORDER BY ordinal";
        self.all(session, sql, &[&session, &block.0], block_message)
    }

    fn coverage(&self, block: BlockKey) -> StoreResult<Vec<CoverageRow>> {
        let session = session_of(block.0);
        let sql = "SELECT loop, from_seq, to_seq, from_turn, to_turn, disposition
             FROM coverage WHERE session = $1 AND block = $2 ORDER BY ordinal";
        self.all(session, sql, &[&session, &block.0], coverage_row)
    }
}

impl ReadManifests for PostgresTransaction<'_> {
    fn manifests(&self, session: SessionKey) -> StoreResult<Vec<ManifestRow>> {
        let sql = format!(
            "SELECT key, {MANIFEST_COLUMNS} FROM manifests WHERE session = $1 ORDER BY key DESC"
        );
        self.all(session.0, &sql, &[&session.0], manifest_row)
    }

    fn manifest(&self, session: SessionKey, id: &str) -> StoreResult<Option<ManifestRow>> {
        let sql = format!(
            "SELECT key, {MANIFEST_COLUMNS} FROM manifests WHERE session = $1 AND manifest_id = $2"
        );
        self.first(session.0, &sql, &[&session.0, &id], manifest_row)
    }
}
