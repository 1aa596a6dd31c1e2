//! Reading rows.

use std::ops::{ControlFlow, Range};

use rusqlite::{OptionalExtension, params};

use super::from_sqlite;
use super::reader::{SqliteReader, number, packed, span};
use super::row::SqliteRow;
use super::statements::*;
use crate::model::{LoopId, SessionId};
use crate::store::columns::{Columns, missing};
use crate::store::error::StoreResult;
use crate::store::mapping::*;
use crate::store::packs;
use crate::store::prompt::{PromptPlace, PromptsOf};
use crate::store::*;

impl SqliteReader<'_> {
    /// Returns the first prompts of a session: those of people, then those of parent agents.
    fn prompts_of_session(&self, session: SessionKey, limit: i64) -> StoreResult<Vec<PromptPlace>> {
        let mut places: Vec<PromptPlace> = Vec::new();
        for author in 0..2 {
            let left = limit - places.len() as i64;
            if left > 0 {
                let params = [session.0, left, author];
                places.extend(self.all(PROMPTS_OF_SESSION, params, |row| prompt_place(row))?);
            }
        }
        Ok(places)
    }
}

impl ReadSessions for SqliteReader<'_> {
    fn session(&self, id: &SessionId) -> StoreResult<Option<SessionRow>> {
        self.one(&SESSION_BY_ID, [id.as_str()], |row| session_row(row))
    }

    fn session_by_key(&self, key: SessionKey) -> StoreResult<SessionRow> {
        self.one(&SESSION_BY_KEY, [key.0], |row| session_row(row))?
            .ok_or_else(|| missing("session", key.0))
    }

    fn sessions(&self) -> StoreResult<Vec<SessionRow>> {
        let sql = format!("{} ORDER BY last_active_at DESC, key DESC", *SESSION);
        self.all(&sql, [], |row| session_row(row))
    }

    fn session_ids(&self, first: &str, limit: u32) -> StoreResult<Vec<SessionId>> {
        let sql = "SELECT session_id FROM sessions WHERE session_id >= ?1
            ORDER BY session_id LIMIT ?2";
        self.all(sql, params![first, limit], |row| row.get("session_id"))
    }

    fn current(&self, id: &SessionId) -> StoreResult<Option<(SessionKey, LoopKey)>> {
        let sql = "SELECT key, current_loop FROM sessions WHERE session_id = ?1";
        let keys = self.one(sql, [id.as_str()], |row| {
            Ok((row.get("key")?, row.get("current_loop")?))
        })?;
        Ok(keys.and_then(|(key, current): (_, Option<_>)| Some((key, current?))))
    }

    fn started_by(&self, session: SessionKey) -> StoreResult<Vec<SessionKey>> {
        self.all(
            "SELECT c.key FROM sessions p CROSS JOIN sessions c
             ON CAST(
                 CASE WHEN json_valid(c.meta)
                     THEN json_extract(c.meta, '$.parent_spawn_ref.parent_session_id') END
                 AS TEXT
             ) = p.session_id
             WHERE p.key = ?1 ORDER BY c.key",
            [session.0],
            |row| row.get("key"),
        )
    }

    fn flags(&self, session: SessionKey) -> StoreResult<SessionFlags> {
        let flags = self.first(
            "SELECT protected_at, redacts FROM session_flags WHERE session = ?1",
            [session.0],
            |row| session_flags(row),
        )?;
        Ok(flags.unwrap_or_default())
    }

    fn last_receipt(&self, _session: SessionKey) -> StoreResult<i64> {
        // The newest of all is found without an index over sessions.
        let sql = "SELECT coalesce(max(key), 0) AS last FROM maintenance";
        Ok(self.one(sql, [], |row| row.get("last"))?.unwrap_or(0))
    }

    fn has_receipt_after(&self, session: SessionKey, receipt: i64) -> StoreResult<bool> {
        let sql = "SELECT key FROM maintenance WHERE key > ?1 AND session = ?2 LIMIT 1";
        let found = self.one(sql, [receipt, session.0], |row| row.get::<i64>("key"))?;
        Ok(found.is_some())
    }
}

impl ReadLoops for SqliteReader<'_> {
    fn loop_by_id(&self, session: SessionKey, id: &LoopId) -> StoreResult<Option<LoopRow>> {
        self.one(&LOOP_BY_ID, params![session.0, id.as_str()], |row| {
            loop_row(row)
        })
    }

    fn loop_by_key(&self, key: LoopKey) -> StoreResult<LoopRow> {
        self.one(&LOOP_BY_KEY, [key.0], |row| loop_row(row))?
            .ok_or_else(|| missing("loop", key.0))
    }

    fn loops(&self, session: SessionKey) -> StoreResult<Vec<LoopRow>> {
        let columns = &*LOOP_COLUMNS;
        let sql = format!("SELECT {columns} FROM loops l WHERE l.session = ?1 ORDER BY l.key");
        self.all(&sql, [session.0], |row| loop_row(row))
    }

    fn loop_lengths(&self, session: SessionKey) -> StoreResult<Vec<(LoopKey, u32)>> {
        let sql = "SELECT key, next_seq FROM loops WHERE session = ?1 ORDER BY key";
        self.all(sql, [session.0], |row| {
            Ok((row.get("key")?, row.get("next_seq")?))
        })
    }

    fn loops_at_work(&self, session: Option<SessionKey>) -> StoreResult<Vec<LoopKey>> {
        self.all(
            "SELECT key FROM loops INDEXED BY loops_at_work
             WHERE status IN ('Pending', 'Running') AND (?1 IS NULL OR session = ?1)
             ORDER BY key",
            [session.map(|key| key.0)],
            |row| row.get("key"),
        )
    }

    fn loops_with_system_messages(
        &self,
        session: SessionKey,
        until: LoopKey,
        most: u32,
    ) -> StoreResult<Vec<LoopKey>> {
        let mut keys = Vec::new();
        let sql = "SELECT key FROM loops INDEXED BY loops_with_system_messages
            WHERE session = ?1 AND key <= ?2 AND system_tokens > 0 ORDER BY key DESC LIMIT ?3";
        self.in_order(sql, (session.0, until.0, most), &mut |row| {
            keys.push(row.get("key")?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(keys)
    }

    fn loop_meta(&self, key: LoopKey) -> StoreResult<LoopMeta> {
        let meta = self.first(
            "SELECT meta, history FROM loops WHERE key = ?1",
            [key.0],
            |row| loop_meta(row),
        )?;
        meta.ok_or_else(|| missing("loop", key.0))
    }

    fn parent_of(&self, key: LoopKey) -> StoreResult<Option<(LoopKey, Cut)>> {
        let sql = "SELECT parent, parent_turn, parent_seq FROM loops WHERE key = ?1";
        let found = self.one(sql, [key.0], |row| {
            Ok((
                row.get("parent")?,
                row.get("parent_turn")?,
                row.get("parent_seq")?,
            ))
        })?;
        let found: Option<(Option<LoopKey>, Option<u32>, Option<u32>)> = found;
        let (parent, turn, part) = found.ok_or_else(|| missing("loop", key.0))?;
        let turns = turn.map_or(0, |turn| turn.saturating_add(1));
        let whole = turns.saturating_sub(u32::from(part.is_some()));
        Ok(parent.map(|parent| (parent, Cut { whole, part })))
    }

    fn default_child(&self, key: LoopKey) -> StoreResult<Option<LoopKey>> {
        let sql = r#"SELECT max(key) AS key FROM loops WHERE parent = ?1 AND kind = '"Default"'"#;
        Ok(self.one(sql, [key.0], |row| row.get("key"))?.flatten())
    }

    fn walk(&self, leaf: LoopKey, visit: &mut Visit<'_, LoopRow>) -> StoreResult<()> {
        self.in_order(&WALK, [leaf.0], &mut |row| visit(loop_row(row)?))
    }
}

impl StoreRead for SqliteReader<'_> {
    fn loops_with_blocks(
        &self,
        leaf: LoopKey,
        visit: &mut Visit<'_, LoopWithBlock>,
    ) -> StoreResult<()> {
        self.step_up(
            &LOOP_WITH_BLOCK,
            leaf,
            loop_and_newest_block,
            |found| &found.row,
            visit,
        )
    }

    fn chain(&self, leaf: LoopKey, visit: &mut Visit<'_, LoopCore>) -> StoreResult<()> {
        self.step_up(
            &LOOP_OF_CHAIN,
            leaf,
            |row, key| loop_core(row, key),
            |found| found,
            visit,
        )
    }

    fn append_state(&self, loop_key: LoopKey) -> StoreResult<AppendState> {
        self.one(&APPEND_STATE, [loop_key.0], append_state)?
            .ok_or_else(|| missing("loop", loop_key.0))
    }
}

impl ReadTurns for SqliteReader<'_> {
    fn turn(&self, loop_key: LoopKey, turn: u32) -> StoreResult<Option<TurnRow>> {
        self.one(&TURN_BY_ID, [packed(loop_key.0, turn)], |row| turn_row(row))
    }

    fn turns(&self, loop_key: LoopKey, turns: Range<u32>) -> StoreResult<Vec<TurnRow>> {
        let Some((first, last)) = span(loop_key.0, &turns) else {
            return Ok(Vec::new());
        };
        let sql = format!("{} WHERE id BETWEEN ?1 AND ?2 ORDER BY id", *TURN);
        self.all(&sql, [first, last], |row| turn_row(row))
    }

    fn answers(
        &self,
        loop_key: LoopKey,
        turns: Range<u32>,
    ) -> StoreResult<Vec<(u32, Vec<CallSite>)>> {
        let Some((first, last)) = span(loop_key.0, &turns) else {
            return Ok(Vec::new());
        };
        self.all(
            "SELECT id AS turn, answers FROM turns
             WHERE answers IS NOT NULL AND id BETWEEN ?1 AND ?2 ORDER BY id",
            [first, last],
            |row| turn_answers(row),
        )
    }
}

impl ReadMessages for SqliteReader<'_> {
    fn messages(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageRow>,
    ) -> StoreResult<()> {
        let Some((first, last)) = span(loop_key.0, &seqs) else {
            return Ok(());
        };
        self.each(
            "SELECT id AS seq, turn, tick, role, author, lines, tokens, bytes, body_block, salt, digest,
                 head, body, created_at, origin, chain
             FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
            [first, last],
            |row| message_row(row),
            &mut |mut row: MessageRow| {
                if row.body.head.is_none() {
                    packs::fill(self, &self.last_pack, loop_key, &mut row)?;
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
        let sql = if proofs {
            MESSAGE_REFS_WITH_PROOF
        } else {
            MESSAGE_REFS
        };
        let Some(ids) = span(loop_key.0, &seqs) else {
            return Ok(());
        };
        self.in_order(sql, ids, &mut |row| {
            let seq = row.number("seq")?;
            let turn = row.get("turn")?;
            let message = stored_message_ref(row, proofs)?;
            self.visit_ref((loop_key, seq), turn, None, message, visit)
        })
    }

    fn message_refs_as_needed(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        proofs: bool,
        need: &dyn Fn(u32) -> ContentNeed,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        self.visit_refs_as_needed((loop_key, seqs), proofs, need, visit)
    }

    fn message_refs_with_times(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut VisitMessageRef<'_>,
    ) -> StoreResult<()> {
        let Some(ids) = span(loop_key.0, &seqs) else {
            return Ok(());
        };
        self.in_order(MESSAGE_REFS_WITH_TIME, ids, &mut |row| {
            let seq = row.number("seq")?;
            let turn = row.get("turn")?;
            let message = stored_message_ref(row, false)?;
            let created_at = row.get("created_at")?;
            self.visit_ref((loop_key, seq), turn, created_at, message, visit)
        })
    }

    fn sizes(
        &self,
        loop_key: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageSize>,
    ) -> StoreResult<()> {
        let Some((first, last)) = span(loop_key.0, &seqs) else {
            return Ok(());
        };
        let sql = "SELECT id AS seq, turn, role, author, tokens, bytes, lines
             FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
        self.in_order(sql, [first, last], &mut |row| visit(message_size(row)?))
    }

    fn length_at(&self, loop_key: LoopKey, tick: Tick) -> StoreResult<u32> {
        // Ticks rise with the sequence: the newest message that is old enough ends the search.
        let last: Option<i64> = self
            .connection
            .prepare_cached(
                "SELECT id FROM messages WHERE id BETWEEN ?1 AND ?2 AND tick <= ?3
                 ORDER BY id DESC LIMIT 1",
            )
            .map_err(from_sqlite)?
            .query_row(
                params![packed(loop_key.0, 0), packed(loop_key.0, u32::MAX), tick],
                |row| row.get(0),
            )
            .optional()
            .map_err(from_sqlite)?;
        Ok(last.map_or(0, |id| number(id) + 1))
    }

    fn is_overlaid_since(
        &self,
        session: SessionKey,
        loop_key: LoopKey,
        seq: u32,
    ) -> StoreResult<Option<bool>> {
        let sql = "SELECT tick < max(
                 (SELECT coalesce(max(tick), 0) FROM runs
                  WHERE session = ?1 AND outcome = 'committed'),
                 (SELECT coalesce(max(tick), 0) FROM flips WHERE session = ?1)
             ) AS since
             FROM messages WHERE id = ?2";
        self.one(sql, [session.0, packed(loop_key.0, seq)], |row| {
            row.get("since")
        })
    }

    fn prompt_places(&self, of: PromptsOf<'_>, limit: u32) -> StoreResult<Vec<PromptPlace>> {
        let of_session = |session: &SessionKey, limit| self.prompts_of_session(*session, limit);
        let limit = i64::from(limit);
        let place = |row: &SqliteRow<'_, '_>| prompt_place(row);
        match of {
            PromptsOf::Sessions(sessions) => {
                let first = sessions.iter().map(|session| of_session(session, 1));
                Ok(first.collect::<StoreResult<Vec<_>>>()?.concat())
            }
            PromptsOf::EachLoop(session) => self.all(FIRST_PROMPTS_OF_LOOPS, [session.0], place),
            PromptsOf::Session(session) => of_session(&session, limit),
            PromptsOf::Loop(session, loop_key) => {
                self.all(PROMPTS_OF_LOOP, [session.0, limit, loop_key.0], place)
            }
        }
    }

    fn usage(&self, session: SessionKey) -> StoreResult<Vec<UsageRow>> {
        self.read_usage(session)
    }
}

impl ReadBlobs for SqliteReader<'_> {
    fn blob(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        self.first(
            "SELECT data FROM blobs WHERE sha256 = ?1",
            [sha256],
            |row| row.get("data"),
        )
    }

    fn blob_names(&self, first: &[u8; 32], last: &[u8; 32]) -> StoreResult<Vec<[u8; 32]>> {
        let sql = "SELECT sha256 FROM blobs WHERE sha256 BETWEEN ?1 AND ?2 ORDER BY sha256";
        self.all(sql, [first, last], |row| row.get("sha256"))
    }
}

impl ReadRuns for SqliteReader<'_> {
    fn run_by_key(&self, key: RunKey) -> StoreResult<RunRow> {
        self.first(
            &format!("SELECT key, {RUN_COLUMNS} FROM runs WHERE key = ?1"),
            [key.0],
            |row| run_row(row),
        )?
        .ok_or_else(|| missing("run", key.0))
    }

    fn runs(&self, session: SessionKey, visit: &mut Visit<'_, RunRow>) -> StoreResult<()> {
        let sql = format!(
            "SELECT key, {RUN_COLUMNS} FROM runs WHERE session = ?1 ORDER BY tick DESC, key DESC"
        );
        self.each(&sql, [session.0], |row| run_row(row), visit)
    }

    fn open_runs(&self, session: Option<SessionKey>) -> StoreResult<Vec<RunRow>> {
        let of = if session.is_some() {
            "session = ?1"
        } else {
            "?1 IS NULL"
        };
        let sql = format!("SELECT key, {RUN_COLUMNS} FROM runs WHERE digest IS NULL AND {of}");
        self.all(&sql, [session.map(|key| key.0)], |row| run_row(row))
    }

    fn run_summaries(
        &self,
        session: SessionKey,
        visit: &mut VisitRunSummary<'_>,
    ) -> StoreResult<()> {
        self.in_order(&RUN_SUMMARIES, [session.0], &mut |row| {
            visit(&run_summary(row)?)
        })
    }

    fn compaction_summaries(
        &self,
        session: SessionKey,
        visit: &mut VisitRunSummary<'_>,
    ) -> StoreResult<()> {
        self.in_order(&COMPACTION_SUMMARIES, [session.0], &mut |row| {
            visit(&run_summary(row)?)
        })
    }

    fn flips(&self, run: RunKey) -> StoreResult<Vec<FlipRow>> {
        self.all(
            &format!(
                "SELECT {FLIP_COLUMNS} FROM flips WHERE run = ?1
             ORDER BY tick, key"
            ),
            [run.0],
            |row| flip_row(row),
        )
    }
}

impl ReadPins for SqliteReader<'_> {
    fn pins(&self, session: SessionKey) -> StoreResult<Vec<PinRow>> {
        let sql = format!("SELECT {PIN_COLUMNS} FROM pins WHERE session = ?1 ORDER BY tick, key");
        self.all(&sql, [session.0], |row| pin_row(row))
    }
}

impl ReadHides for SqliteReader<'_> {
    fn hides(&self, session: SessionKey) -> StoreResult<Vec<HideRow>> {
        let sql = format!("SELECT {HIDE_COLUMNS} FROM hides WHERE session = ?1 ORDER BY key");
        self.all(&sql, [session.0], |row| hide_row(row))
    }

    fn hidden_sessions(&self) -> StoreResult<Vec<SessionKey>> {
        let sql = format!("{HIDDEN_SESSIONS} ORDER BY h.session");
        self.all(&sql, [], |row| row.get("session"))
    }

    fn renamed_from(&self, id: &SessionId) -> StoreResult<Vec<SessionKey>> {
        let sql = "SELECT DISTINCT session FROM hides WHERE was = ?1 ORDER BY session";
        self.all(sql, [id.as_str()], |row| row.get("session"))
    }
}

impl ReadBlocks for SqliteReader<'_> {
    fn block_by_key(&self, key: BlockKey) -> StoreResult<BlockRow> {
        let sql = format!("SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE key = ?1");
        self.first(&sql, [key.0], |row| block_row(row))?
            .ok_or_else(|| missing("block", key.0))
    }

    fn blocks_of_run(&self, run: RunKey) -> StoreResult<Vec<BlockRow>> {
        let sql =
            format!("SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE run = ?1 ORDER BY loop, key");
        self.all(&sql, [run.0], |row| block_row(row))
    }

    fn blocks_of_loop(&self, loop_key: LoopKey) -> StoreResult<Vec<BlockRow>> {
        let sql =
            format!("SELECT key, {BLOCK_COLUMNS} FROM blocks WHERE loop = ?1 ORDER BY generation");
        self.all(&sql, [loop_key.0], |row| block_row(row))
    }

    fn generations(&self, loop_key: LoopKey, visit: &mut Visit<'_, Generation>) -> StoreResult<()> {
        self.in_order(&GENERATIONS, [loop_key.0], &mut |row| {
            visit(generation(row, loop_key)?)
        })
    }

    fn block_messages(&self, block: BlockKey) -> StoreResult<Vec<BlockMessage>> {
        let mut messages = Vec::new();
        self.in_order(
            "SELECT section, replaces, quotes, role, tokens, bytes, body_block, salt, digest, head, body
             FROM block_messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
            [packed(block.0, 0), packed(block.0, u32::MAX)],
            &mut |row| {
                messages.push(block_message(row)?);
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(messages)
    }

    fn coverage(&self, block: BlockKey) -> StoreResult<Vec<CoverageRow>> {
        self.all(
            "SELECT loop, from_seq, to_seq, from_turn, to_turn, disposition
             FROM coverage WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
            [packed(block.0, 0), packed(block.0, u32::MAX)],
            |row| coverage_row(row),
        )
    }
}

impl ReadManifests for SqliteReader<'_> {
    fn manifests(&self, session: SessionKey) -> StoreResult<Vec<ManifestRow>> {
        let sql = format!(
            "SELECT key, {MANIFEST_COLUMNS} FROM manifests WHERE session = ?1 ORDER BY key DESC"
        );
        self.all(&sql, [session.0], |row| manifest_row(row))
    }

    fn manifest(&self, session: SessionKey, id: &str) -> StoreResult<Option<ManifestRow>> {
        let sql = format!(
            "SELECT key, {MANIFEST_COLUMNS} FROM manifests WHERE manifest_id = ?2 AND session = ?1"
        );
        self.first(&sql, params![session.0, id], |row| manifest_row(row))
    }
}

impl ReadLeases for SqliteReader<'_> {
    fn lease(&self, loop_key: LoopKey) -> StoreResult<Option<LeaseRow>> {
        self.one(&LEASE_OF_LOOP, [loop_key.0], |row| lease_row(row))
    }

    fn is_holder_gone(&self, lease: &LeaseRow) -> StoreResult<bool> {
        Ok(self.holders.is_some_and(|holders| holders.is_gone(lease)))
    }
}
