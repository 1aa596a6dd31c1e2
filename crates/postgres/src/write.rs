//! Writing rows. The rules are in the core crate; each function here is one statement or a few.

use loopstore_core::store::audit::{AuditEntry, AuditKind};
use loopstore_core::store::columns::Columns;
use loopstore_core::store::mapping::*;
use loopstore_core::store::scan::ScanRuns;
use loopstore_core::store::values::BoundValue;
use loopstore_core::store::*;
use loopstore_model::LoopStatus;

use super::connection::Param;
use super::keys::{BIRTH, session_of};
use super::row::escaped;
use super::transaction::PostgresTransaction;
use super::values::{param, rows_of_values, wide};

/// The number of keys that are tried for a new session or file.
const MAX_TRIES: i64 = 10_000;

/// The owner of a blob or of a redaction: loop and sequence, or block and ordinal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) key: i64,
    pub(super) number: i64,
    pub(super) in_block: bool,
}

impl Owner {
    pub(super) fn message(loop_key: LoopKey, seq: u32) -> Self {
        Self {
            key: loop_key.0,
            number: i64::from(seq),
            in_block: false,
        }
    }

    pub(super) fn block(block: BlockKey, ordinal: u32) -> Self {
        Self {
            key: block.0,
            number: i64::from(ordinal),
            in_block: true,
        }
    }
}

impl PostgresTransaction<'_> {
    /// Returns the server's time in milliseconds since the epoch of keys.
    pub(super) fn birth(&self) -> StoreResult<i64> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - $1 AS now";
        let now = self.first_of_any(sql, &[&BIRTH], |row| row.get("now"))?;
        Ok(now.unwrap_or(1).max(1))
    }

    /// Writes the position and the totals of a loop, and the time of its end if it ends.
    fn write_totals(
        &self,
        row: &LoopCore,
        progress: &LoopProgress,
        ended_at: Option<&str>,
    ) -> StoreResult<()> {
        let totals = &row.totals;
        let changed = self.run(
            row.session.0,
            "UPDATE loops SET status = $3, next_seq = $4, sealed_seq = $5, turns = $6,
                 complete = $7, messages = $8, tokens = $9, bytes = $10, generation = $11,
                 system_tokens = $12, last_turn_index = $13, open_calls = $14, chain = $15,
                 reported_seq = $16, reported_tokens = $17, ended_at = coalesce($18, ended_at),
                 unindexed = unindexed OR next_seq < $4
             WHERE session = $1 AND key = $2",
            &[
                &row.session.0,
                &row.key.0,
                &LoopStatus::as_str(&row.status),
                &i64::from(totals.next_seq),
                &i64::from(totals.sealed_seq),
                &i64::from(totals.turns),
                &i64::from(totals.complete),
                &signed(totals.messages)?,
                &signed(totals.tokens)?,
                &signed(totals.bytes)?,
                &i64::from(totals.generation),
                &signed(progress.system_tokens)?,
                &progress.last_turn_index,
                &open_calls_json(progress)?,
                &&progress.chain[..],
                &totals.reported.map(|reported| i64::from(reported.seq)),
                &reported_tokens(totals)?,
                &ended_at,
            ],
        );
        changed.map(drop)
    }

    fn refer_to_blobs(&self, owner: Owner, blobs: &[Blob]) -> StoreResult<()> {
        let session = session_of(owner.key);
        for blob in blobs {
            let name = &blob.sha256[..];
            let bytes = signed(blob.data.len() as u64)?;
            let sql = "SELECT key FROM blobs WHERE session = $1 AND sha256 = $2";
            let known = self.first(session, sql, &[&session, &name], |row| row.get("key"))?;
            let key: i64 = match known {
                Some(key) => key,
                None => {
                    let key = self.next_key("blobs", session)?;
                    self.run(
                        session,
                        "INSERT INTO blobs (session, key, sha256, bytes, data)
                         VALUES ($1, $2, $3, $4, $5)",
                        &[&session, &key, &name, &bytes, &blob.data],
                    )?;
                    key
                }
            };
            self.run(
                session,
                "INSERT INTO blob_refs (session, owner, number, in_block, blob)
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
                &[&session, &owner.key, &owner.number, &owner.in_block, &key],
            )?;
        }
        Ok(())
    }

    /// Stores a session under the first free key, and returns the key.
    fn store_session(&self, row: &SessionRow) -> StoreResult<i64> {
        let birth = self.birth()?;
        for key in birth..birth + MAX_TRIES {
            // A receipt refers to its session by the key, so a key is never used twice.
            let sql = "SELECT 1 FROM maintenance WHERE session = $1 LIMIT 1";
            if !self.ask(sql, &[&key])?.is_empty() {
                continue;
            }
            let stored = self.execute(
                "INSERT INTO sessions (session, session_id, agent_id, title, created_at,
                     last_active_at, current_loop, tick, source, project, started_by, meta)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
                 ON CONFLICT (session) DO NOTHING",
                &[
                    &key,
                    &row.session_id.as_str(),
                    &row.agent_id,
                    &row.title,
                    &row.created_at,
                    &row.last_active_at,
                    &row.current_loop.map(|key| key.0),
                    &row.tick,
                    &row.source,
                    &row.project,
                    &row.started_by(),
                    &row.meta,
                ],
            )?;
            if stored == 1 {
                return Ok(key);
            }
        }
        Err(StoreError::Busy)
    }
}

impl WriteSessions for PostgresTransaction<'_> {
    fn insert_session(&mut self, row: &SessionRow) -> StoreResult<SessionKey> {
        let key = self.store_session(row)?;
        self.add_created(key);
        self.execute(
            "INSERT INTO session_names (session_id, session) VALUES ($1, $2)",
            &[&row.session_id.as_str(), &key],
        )?;
        Ok(SessionKey(key))
    }

    fn update_session(&mut self, row: &SessionRow) -> StoreResult<()> {
        // A value that does not change is not written again.
        self.run(
            row.key.0,
            "UPDATE sessions SET agent_id = $2, title = $3, created_at = $4, last_active_at = $5,
                 current_loop = $6, tick = $7, source = $8, project = $9, started_by = $10,
                 meta = CASE WHEN meta = $11 THEN meta ELSE $11 END
             WHERE session = $1",
            &[
                &row.key.0,
                &row.agent_id,
                &row.title,
                &row.created_at,
                &row.last_active_at,
                &row.current_loop.map(|key| key.0),
                &row.tick,
                &row.source,
                &row.project,
                &row.started_by(),
                &row.meta,
            ],
        )?;
        Ok(())
    }

    fn touch_session(&mut self, activity: &SessionActivity) -> StoreResult<()> {
        self.run(
            activity.key.0,
            "UPDATE sessions SET last_active_at = $2, current_loop = $3, tick = $4
             WHERE session = $1",
            &[
                &activity.key.0,
                &activity.last_active_at,
                &activity.current_loop.map(|key| key.0),
                &activity.tick,
            ],
        )?;
        Ok(())
    }

    fn put_flags(&mut self, session: SessionKey, flags: &SessionFlags) -> StoreResult<()> {
        self.run(
            session.0,
            "INSERT INTO session_flags (session, protected_at, redacts) VALUES ($1, $2, $3)
             ON CONFLICT (session) DO UPDATE SET protected_at = excluded.protected_at,
                 redacts = excluded.redacts",
            &[&session.0, &flags.protected_at, &flags.redacts],
        )?;
        Ok(())
    }
}

impl WriteLoops for PostgresTransaction<'_> {
    fn insert_loop(&mut self, row: &LoopRow, meta: &LoopMeta) -> StoreResult<LoopKey> {
        let session = row.session.0;
        let parent = row.parent.map(|key| key.0);
        let key = self.next_key("loops", session)?;
        self.run(
            session,
            "INSERT INTO loops (session, key, loop_id, parent, parent_loop_id, parent_turn,
                 parent_seq, kind, status, started_at, ended_at, tick, chain, meta, history)
             VALUES ($1, $2,
                 $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
            &[
                &session,
                &key,
                &row.loop_id.as_str(),
                // A parent in another session has no key here: its name is stored.
                &parent.filter(|key| session_of(*key) == session),
                &row.parent_loop_id.as_ref().map(|id| id.as_str()),
                &wide(row.parent_turn),
                &wide(row.parent_seq),
                &row.kind,
                &row.status.as_str(),
                &row.started_at,
                &row.ended_at,
                &row.tick,
                &&row.progress.chain[..],
                &meta.meta,
                &meta.history,
            ],
        )?;
        Ok(LoopKey(key))
    }

    fn update_loop(&mut self, row: &LoopRow) -> StoreResult<()> {
        self.update_totals(row, &row.progress)?;
        self.run(
            row.session.0,
            "UPDATE loops SET kind = $3, started_at = $4, ended_at = $5
             WHERE session = $1 AND key = $2",
            &[
                &row.session.0,
                &row.key.0,
                &row.kind,
                &row.started_at,
                &row.ended_at,
            ],
        )?;
        Ok(())
    }

    fn update_totals(&mut self, row: &LoopCore, progress: &LoopProgress) -> StoreResult<()> {
        self.write_totals(row, progress, None)
    }

    fn end_loop(
        &mut self,
        row: &LoopCore,
        progress: &LoopProgress,
        ended_at: &str,
    ) -> StoreResult<()> {
        self.write_totals(row, progress, Some(ended_at))
    }

    fn update_loop_meta(&mut self, key: LoopKey, meta: &LoopMeta) -> StoreResult<()> {
        let session = session_of(key.0);
        self.run(
            session,
            "UPDATE loops SET meta = $3, history = $4 WHERE session = $1 AND key = $2",
            &[&session, &key.0, &meta.meta, &meta.history],
        )?;
        Ok(())
    }
}

impl WriteTurns for PostgresTransaction<'_> {
    fn put_turn(&mut self, loop_key: LoopKey, row: &TurnRow) -> StoreResult<()> {
        let session = session_of(loop_key.0);
        self.run(
            session,
            // The beginning of a turn and its index are written again, so that the trigger rejects other
            // values.
            "INSERT INTO turns (session, loop, turn, first_seq, messages, prompts, tokens, bytes,
                 turn_index, answered, answers, tick, started_at, ended_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
             ON CONFLICT (session, loop, turn) DO UPDATE SET first_seq = excluded.first_seq,
                 messages = excluded.messages, prompts = excluded.prompts,
                 tokens = excluded.tokens, bytes = excluded.bytes,
                 turn_index = excluded.turn_index, answered = excluded.answered,
                 answers = excluded.answers, tick = excluded.tick,
                 started_at = excluded.started_at, ended_at = excluded.ended_at",
            &[
                &session,
                &loop_key.0,
                &i64::from(row.turn),
                &i64::from(row.first_seq),
                &signed(row.messages)?,
                &signed(row.prompts)?,
                &signed(row.tokens)?,
                &signed(row.bytes)?,
                &row.turn_index,
                &row.answered,
                &answers_json(&row.answers)?,
                &row.tick,
                &row.started_at,
                &row.ended_at,
            ],
        )?;
        Ok(())
    }
}

impl WriteMessages for PostgresTransaction<'_> {
    fn insert_message(
        &mut self,
        loop_key: LoopKey,
        row: &MessageRow,
        blobs: &[Blob],
    ) -> StoreResult<()> {
        self.put_off(loop_key, row)?;
        self.refer_to_blobs(Owner::message(loop_key, row.seq), blobs)
    }

    fn remove_unsealed(&mut self, loop_key: LoopKey, seq: u32, turn: u32) -> StoreResult<()> {
        self.unindex(loop_key, seq)?;
        let session = session_of(loop_key.0);
        let (seq, turn) = (i64::from(seq), i64::from(turn));
        for sql in [
            "DELETE FROM blob_refs
             WHERE session = $1 AND owner = $2 AND number >= $3 AND NOT in_block",
            "DELETE FROM redactions
             WHERE session = $1 AND owner = $2 AND number >= $3 AND NOT in_block",
            "DELETE FROM messages WHERE session = $1 AND loop = $2 AND seq >= $3",
        ] {
            self.run(session, sql, &[&session, &loop_key.0, &seq])?;
        }
        let sql = "DELETE FROM turns WHERE session = $1 AND loop = $2 AND turn >= $3";
        self.run(session, sql, &[&session, &loop_key.0, &turn])?;
        Ok(())
    }
}

impl WriteRuns for PostgresTransaction<'_> {
    fn insert_run(&mut self, row: &RunRow) -> StoreResult<RunKey> {
        let session = row.session.0;
        let key = self.next_key("runs", session)?;
        let mut values = open_run_values(row)?;
        values.push(BoundValue::Integer(Some(key)));
        self.insert(session, "runs", &format!("{RUN_COLUMNS}, key"), &values)?;
        Ok(RunKey(key))
    }

    fn close_run(&mut self, row: &RunRow, was: Option<[u8; 32]>) -> StoreResult<()> {
        let session = row.session.0;
        let digest = digest::run(row, &self.part_digests(row.key)?);
        let kind = AuditKind::Run;
        self.write_audit(row.session, &AuditEntry { kind, digest, was })?;
        let mut values = run_values(row, Some(&digest))?;
        // The session must not be assigned: it determines the shard of the row.
        let (_, columns) = RUN_COLUMNS.split_once(',').unwrap_or_default();
        let places: Vec<String> = (2..=values.len()).map(|at| format!("${at}")).collect();
        let (places, key) = (places.join(", "), values.len() + 1);
        values.push(BoundValue::Integer(Some(row.key.0)));
        let sql = format!(
            "UPDATE runs SET ({columns}) = ROW ({places}) WHERE session = $1 AND key = ${key}"
        );
        let params: Vec<Param<'_>> = values.iter().map(param).collect();
        self.run(session, &sql, &params).map(drop)
    }

    fn note_audit(&mut self, session: SessionKey, entry: &AuditEntry) -> StoreResult<()> {
        self.write_audit(session, entry)
    }

    fn insert_flip(&mut self, session: SessionKey, row: &FlipRow) -> StoreResult<()> {
        let digest = digest::flip(row);
        self.write_audit(session, &AuditEntry::new(AuditKind::Flip, digest))?;
        let key = self.next_key("flips", session.0)?;
        let mut values = flip_values(&session, row, &digest)?;
        values.push(BoundValue::Integer(Some(key)));
        self.insert(session.0, "flips", &format!("{FLIP_COLUMNS}, key"), &values)
    }
}

impl WritePins for PostgresTransaction<'_> {
    fn insert_pin(&mut self, session: SessionKey, row: &PinRow) -> StoreResult<()> {
        let digest = digest::pin(row);
        self.write_audit(session, &AuditEntry::new(AuditKind::Pin, digest))?;
        let key = self.next_key("pins", session.0)?;
        let mut values = pin_values(&session, row, &digest)?;
        values.push(BoundValue::Integer(Some(key)));
        self.insert(session.0, "pins", &format!("{PIN_COLUMNS}, key"), &values)
    }
}

impl WriteHides for PostgresTransaction<'_> {
    fn insert_hide(&mut self, session: SessionKey, row: &HideRow) -> StoreResult<()> {
        self.restore_hide(session, row)?;
        let (was, id) = (row.was.as_str(), row.session_id.as_str());
        self.execute(
            "INSERT INTO session_names (session_id, session) VALUES ($1, $2)",
            &[&id, &session.0],
        )?;
        self.run(
            session.0,
            "UPDATE sessions SET session_id = $2 WHERE session = $1",
            &[&session.0, &id],
        )?;
        for sql in [
            "UPDATE session_names SET leaves = TRUE WHERE session = $1 AND session_id = $2",
            "DELETE FROM session_names WHERE session = $1 AND session_id = $2 AND leaves",
        ] {
            self.run(session.0, sql, &[&session.0, &was])?;
        }
        Ok(())
    }

    fn restore_hide(&mut self, session: SessionKey, row: &HideRow) -> StoreResult<()> {
        let digest = digest::hide(row);
        self.write_audit(session, &AuditEntry::new(AuditKind::Hide, digest))?;
        let key = self.next_key("hides", session.0)?;
        let mut values = hide_values(&session, row, &digest)?;
        values.push(BoundValue::Integer(Some(key)));
        self.insert(session.0, "hides", &format!("{HIDE_COLUMNS}, key"), &values)
    }

    fn insert_head(&mut self, row: &HeadRow) -> StoreResult<()> {
        self.execute(
            "INSERT INTO heads (sha256, taken_at, content) VALUES ($1, $2, $3)",
            &[&&row.sha256[..], &row.taken_at, &row.content],
        )
        .map(drop)
    }
}

impl WriteBlocks for PostgresTransaction<'_> {
    fn insert_block(&mut self, block: &NewBlock) -> StoreResult<BlockKey> {
        let session = session_of(block.row.loop_key.0);
        let key = self.next_key("blocks", session)?;
        let mut values = block_values(block)?;
        values.extend([session, key].map(|key| BoundValue::Integer(Some(key))));
        self.insert(
            session,
            "blocks",
            &format!("{BLOCK_COLUMNS}, session, key"),
            &values,
        )?;
        for (ordinal, message) in (0i64..).zip(&block.messages) {
            self.insert_block_message(key, ordinal, message)?;
        }
        self.insert_coverage(key, &block.coverage)?;
        self.refer_to_blobs(Owner::block(BlockKey(key), 0), &block.blobs)?;
        Ok(BlockKey(key))
    }
}

impl WriteManifests for PostgresTransaction<'_> {
    fn insert_manifest(&mut self, row: &ManifestRow) -> StoreResult<ManifestKey> {
        let session = row.session.0;
        let digest = digest::manifest(row);
        self.write_audit(row.session, &AuditEntry::new(AuditKind::Manifest, digest))?;
        let key = self.next_key("manifests", session)?;
        let mut values = manifest_values(row, &digest)?;
        values.push(BoundValue::Integer(Some(key)));
        self.insert(
            session,
            "manifests",
            &format!("{MANIFEST_COLUMNS}, key"),
            &values,
        )?;
        Ok(ManifestKey(key))
    }
}

impl StoreWrite for PostgresTransaction<'_> {}

impl PostgresTransaction<'_> {
    fn insert_block_message(
        &self,
        block: i64,
        ordinal: i64,
        message: &BlockMessage,
    ) -> StoreResult<()> {
        let session = session_of(block);
        let text = message.body.as_ref().and_then(|body| body.text.as_deref());
        let safe = escaped(text);
        let mut values = block_message_values(message)?;
        values.extend([
            BoundValue::Text(safe.as_deref().or(text)),
            BoundValue::Flag(safe.is_some()),
        ]);
        values.extend([session, block, ordinal].map(|key| BoundValue::Integer(Some(key))));
        let columns = format!("{BLOCK_MESSAGE_COLUMNS}, escaped, session, block, ordinal");
        self.insert(session, "block_messages", &columns, &values)
    }

    /// Adds the coverage of a block.
    fn insert_coverage(&self, block: i64, rows: &[CoverageRow]) -> StoreResult<()> {
        const MOST_ROWS: usize = 32;
        let session = session_of(block);
        let (from, to) = (|range: (u32, u32)| range.0, |range: (u32, u32)| range.1);
        let rows: Vec<_> = (0i64..)
            .zip(rows)
            .map(|(ordinal, row)| {
                (
                    ordinal,
                    row.loop_key.0,
                    [
                        wide(row.seqs.map(from)),
                        wide(row.seqs.map(to)),
                        wide(row.turns.map(from)),
                        wide(row.turns.map(to)),
                    ],
                    row.disposition.as_str(),
                )
            })
            .collect();
        for rows in rows.chunks(MOST_ROWS) {
            let mut params: Vec<Param<'_>> = vec![&session, &block];
            for (ordinal, loop_key, ranges, disposition) in rows {
                params.extend::<[Param<'_>; 2]>([ordinal, loop_key]);
                params.extend(ranges.iter().map(|end| end as Param<'_>));
                params.push(disposition);
            }
            let sql = format!(
                "INSERT INTO coverage (session, block, ordinal, loop, from_seq, to_seq, from_turn,
                     to_turn, disposition)
                 VALUES {}",
                rows_of_values(2, 7, rows.len())
            );
            self.run(session, &sql, &params)?;
        }
        Ok(())
    }
}
