//! Reading rows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::from_sqlite;
use crate::model::{LoopId, LoopStatus, SessionId};
use crate::store::codec::role_from_number;
use crate::store::error::{StoreError, StoreResult};
use crate::store::index::{IndexFilter, IndexQuery, IndexState, Match};
use crate::store::*;

/// A connection within a transaction: what both doors hand out.
pub(super) struct Reader<'a> {
    pub(super) connection: &'a Connection,
}

/// The key of the row `number` of a loop or block.
pub(super) fn packed(owner: i64, number: u32) -> i64 {
    (owner << 32) | i64::from(number)
}

pub(super) fn number(id: i64) -> u32 {
    // The mask leaves 32 bits.
    (id & 0xFFFF_FFFF) as u32
}

/// The keys of the rows in `range` of a loop or block, both ends inclusive.
fn span(owner: i64, range: &Range<u32>) -> Option<(i64, i64)> {
    (range.start < range.end).then(|| (packed(owner, range.start), packed(owner, range.end - 1)))
}

const SESSION: &str = "SELECT key, session_id, agent_id, title, created_at, last_active_at,
    current_loop, tick, source, meta FROM sessions";

// Columns stand in the order in which `loop_row` and its like read them.
const LOOP_COLUMNS: &str = "l.open_calls, l.parent_loop_id, l.key, l.session, l.loop_id, l.parent,
    l.parent_turn, l.kind, l.status, l.started_at, l.ended_at, l.tick, l.next_seq, l.sealed_seq,
    l.turns, l.complete, l.messages, l.tokens, l.bytes, l.system_tokens, l.generation,
    l.last_turn_index, l.chain";

const TURN: &str = "SELECT id, first_seq, messages, prompts, tokens, bytes, turn_index, answered,
    answers, tick, started_at, ended_at FROM turns";

pub(super) const RUN_COLUMNS: &str = "outcome, key, session, run_id, loop, turns, tick, trigger,
    strategy, round, fallback, error, scope, older_loops, counter, tokens_before, tokens_after,
    bytes_before, bytes_after, messages_before, messages_after, started_at, duration_ms, config,
    usage, plan, record, events";

pub(super) const BLOCK_COLUMNS: &str = "b.kind, b.key, b.loop, b.generation, b.run, b.extends,
    b.first_start, b.first_end, b.compacted_start, b.compacted_end, b.recent_start, b.recent_end,
    b.through, b.tokens_covered, b.tokens_block, b.bytes_block, b.messages_block, b.strategy,
    b.shaping, b.created_at, b.extra";

pub(super) const MANIFEST_COLUMNS: &str = "key, manifest_id, session, loop, tick, recorded_at,
    older_loops, parts, messages, tokens, bytes, counter, sha256";

/// A part of a manifest as it is stored: loop, section, block, first and last sequence, messages.
pub(super) type StoredPart = (i64, String, Option<i64>, Option<u32>, Option<u32>, u64);

/// A row read by column name, with damage reported instead of passed on.
pub(super) struct Fields<'r, 's> {
    row: &'r Row<'s>,
    places: &'r Places,
}

/// Where the columns of a query stand.
///
/// SQLite hands out names as C strings, and to look through those of a row for each value was a third of
/// a build. So the first row notes what was asked for in which order, and the others find it by that.
#[derive(Default)]
struct Places {
    known: RefCell<Vec<(&'static str, usize)>>,
    /// How many values were asked of this row.
    asked: Cell<usize>,
}

impl Places {
    /// Returns the place of a column, if the row before was asked for it at this point.
    fn known(&self, column: &'static str) -> Option<usize> {
        let known = self.known.borrow();
        let (name, at) = known.get(self.asked.get())?;
        std::ptr::eq(*name, column).then_some(*at)
    }

    /// Looks a column up. Most statements select in the order in which is read: the one after the last
    /// is tried first.
    fn find(&self, row: &Row<'_>, column: &'static str) -> rusqlite::Result<usize> {
        let statement = row.as_ref();
        let mut known = self.known.borrow_mut();
        known.truncate(self.asked.get());
        let next = known.last().map_or(0, |(_, at)| at + 1);
        let is_next = statement.column_name(next).is_ok_and(|name| name == column);
        let at = match is_next {
            true => next,
            false => statement.column_index(column)?,
        };
        known.push((column, at));
        Ok(at)
    }
}

impl Fields<'_, '_> {
    pub(super) fn get<T: FromSql>(&self, column: &'static str) -> StoreResult<T> {
        let places = self.places;
        let at = match places.known(column) {
            Some(at) => Ok(at),
            None => places.find(self.row, column),
        };
        places.asked.set(places.asked.get() + 1);
        let value = at.and_then(|at| self.row.get(at));
        value.map_err(|error| match error {
            rusqlite::Error::SqliteFailure(..) => from_sqlite(error),
            _ => StoreError::Damaged(error.to_string()),
        })
    }

    pub(super) fn unsigned(&self, column: &'static str) -> StoreResult<u64> {
        let value: i64 = self.get(column)?;
        u64::try_from(value).map_err(|_| StoreError::Damaged(format!("{column} is {value}")))
    }

    pub(super) fn small(&self, column: &'static str) -> StoreResult<u32> {
        let value: i64 = self.get(column)?;
        u32::try_from(value).map_err(|_| StoreError::Damaged(format!("{column} is {value}")))
    }

    pub(super) fn maybe_small(&self, column: &'static str) -> StoreResult<Option<u32>> {
        let value: Option<i64> = self.get(column)?;
        value
            .map(u32::try_from)
            .transpose()
            .map_err(|_| StoreError::Damaged(format!("{column} is {value:?}")))
    }

    fn turns(&self, first: &'static str, last: &'static str) -> StoreResult<Option<Turns>> {
        Ok(match (self.maybe_small(first)?, self.maybe_small(last)?) {
            (Some(first), Some(last)) => Some(Turns { first, last }),
            _ => None,
        })
    }
}

fn damaged<E: std::fmt::Display>(error: E) -> StoreError {
    StoreError::Damaged(error.to_string())
}

fn session_row(row: &Fields<'_, '_>) -> StoreResult<SessionRow> {
    Ok(SessionRow {
        key: SessionKey(row.get("key")?),
        session_id: SessionId::new(row.get::<String>("session_id")?).map_err(damaged)?,
        agent_id: row.get("agent_id")?,
        title: row.get("title")?,
        created_at: row.get("created_at")?,
        last_active_at: row.get("last_active_at")?,
        current_loop: row.get::<Option<i64>>("current_loop")?.map(LoopKey),
        tick: row.get("tick")?,
        source: row.get("source")?,
        meta: row.get("meta")?,
    })
}

fn loop_row(row: &Fields<'_, '_>) -> StoreResult<LoopRow> {
    let open_calls: Option<String> = row.get("open_calls")?;
    let open_calls: BTreeMap<String, u32> = match open_calls {
        Some(json) => serde_json::from_str(&json).map_err(damaged)?,
        None => BTreeMap::new(),
    };
    let parent_loop_id: Option<String> = row.get("parent_loop_id")?;
    Ok(LoopRow {
        key: LoopKey(row.get("key")?),
        session: SessionKey(row.get("session")?),
        loop_id: LoopId::new(row.get::<String>("loop_id")?).map_err(damaged)?,
        parent: row.get::<Option<i64>>("parent")?.map(LoopKey),
        parent_loop_id: parent_loop_id
            .map(LoopId::new)
            .transpose()
            .map_err(damaged)?,
        parent_turn: row.maybe_small("parent_turn")?,
        kind: row.get("kind")?,
        status: LoopStatus::from(row.get::<String>("status")?),
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        tick: row.get("tick")?,
        totals: LoopTotals {
            next_seq: row.small("next_seq")?,
            sealed_seq: row.small("sealed_seq")?,
            turns: row.small("turns")?,
            complete: row.small("complete")?,
            messages: row.unsigned("messages")?,
            tokens: row.unsigned("tokens")?,
            bytes: row.unsigned("bytes")?,
            system_tokens: row.unsigned("system_tokens")?,
            generation: row.small("generation")?,
            last_turn_index: row.get("last_turn_index")?,
            open_calls,
            chain: row.get("chain")?,
        },
    })
}

fn call_sites(row: &Fields<'_, '_>) -> StoreResult<Vec<CallSite>> {
    let json: Option<String> = row.get("answers")?;
    let Some(json) = json else {
        return Ok(Vec::new());
    };
    let pairs: Vec<(i64, u32)> = serde_json::from_str(&json).map_err(damaged)?;
    let site = |(key, turn)| CallSite {
        in_loop: LoopKey(key),
        turn,
    };
    Ok(pairs.into_iter().map(site).collect())
}

fn turn_row(row: &Fields<'_, '_>) -> StoreResult<TurnRow> {
    Ok(TurnRow {
        turn: number(row.get("id")?),
        first_seq: row.small("first_seq")?,
        messages: row.unsigned("messages")?,
        prompts: row.unsigned("prompts")?,
        tokens: row.unsigned("tokens")?,
        bytes: row.unsigned("bytes")?,
        turn_index: row.get("turn_index")?,
        answered: row.get("answered")?,
        answers: call_sites(row)?,
        tick: row.get("tick")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
    })
}

fn stored_message(row: &Fields<'_, '_>, lines: Option<u32>) -> StoreResult<StoredMessage> {
    Ok(StoredMessage {
        role: role_from_number(row.get("role")?)?,
        tokens: row.unsigned("tokens")?,
        bytes: row.unsigned("bytes")?,
        lines,
        text_block: row.maybe_small("body_block")?,
        salt: row.get("salt")?,
        digest: row.get("digest")?,
        head: row.get("head")?,
        text: row.get("body")?,
    })
}

fn message_row(row: &Fields<'_, '_>) -> StoreResult<MessageRow> {
    let lines = row.maybe_small("lines")?;
    Ok(MessageRow {
        seq: number(row.get("id")?),
        turn: row.maybe_small("turn")?,
        tick: row.get("tick")?,
        body: stored_message(row, lines)?,
        created_at: row.get("created_at")?,
        origin: row.get("origin")?,
        chain: row.get("chain")?,
    })
}

fn message_size(row: &Fields<'_, '_>) -> StoreResult<MessageSize> {
    Ok(MessageSize {
        seq: number(row.get("id")?),
        turn: row.maybe_small("turn")?,
        role: role_from_number(row.get("role")?)?,
        size: Size {
            tokens: row.unsigned("tokens")?,
            bytes: row.unsigned("bytes")?,
            messages: 1,
        },
        lines: row.maybe_small("lines")?,
    })
}

pub(super) fn run_row(row: &Fields<'_, '_>) -> StoreResult<RunRow> {
    let size =
        |tokens: &'static str, bytes: &'static str, messages: &'static str| -> StoreResult<Size> {
            Ok(Size {
                tokens: row.unsigned(tokens)?,
                bytes: row.unsigned(bytes)?,
                messages: row.unsigned(messages)?,
            })
        };
    let outcome: String = row.get("outcome")?;
    Ok(RunRow {
        key: RunKey(row.get("key")?),
        session: SessionKey(row.get("session")?),
        run_id: row.get("run_id")?,
        point: Point {
            in_loop: LoopKey(row.get("loop")?),
            turns: row.small("turns")?,
        },
        tick: row.get("tick")?,
        trigger: row.get("trigger")?,
        strategy: row.get("strategy")?,
        round: row.small("round")?,
        outcome: Outcome::from_word(&outcome).ok_or_else(|| damaged(outcome))?,
        fallback: row.get("fallback")?,
        error: row.get("error")?,
        scope: row.get("scope")?,
        older_loops: row.get("older_loops")?,
        counter: row.get("counter")?,
        before: size("tokens_before", "bytes_before", "messages_before")?,
        after: size("tokens_after", "bytes_after", "messages_after")?,
        started_at: row.get("started_at")?,
        duration_ms: row.unsigned("duration_ms")?,
        config: row.get("config")?,
        usage: row.get("usage")?,
        plan: row.get("plan")?,
        record: row.get("record")?,
        events: row.get("events")?,
    })
}

pub(super) fn flip_row(row: &Fields<'_, '_>) -> StoreResult<FlipRow> {
    Ok(FlipRow {
        run: RunKey(row.get("run")?),
        redo: row.get::<String>("kind")? == "redo",
        point: Point {
            in_loop: LoopKey(row.get("loop")?),
            turns: row.small("turns")?,
        },
        tick: row.get("tick")?,
        at: row.get("at")?,
        reason: row.get("reason")?,
    })
}

pub(super) fn block_row(row: &Fields<'_, '_>) -> StoreResult<BlockRow> {
    let kind: String = row.get("kind")?;
    Ok(BlockRow {
        key: BlockKey(row.get("key")?),
        in_loop: LoopKey(row.get("loop")?),
        generation: row.small("generation")?,
        run: RunKey(row.get("run")?),
        kind: BlockKind::from_word(&kind).ok_or_else(|| damaged(kind))?,
        extends: row.get::<Option<i64>>("extends")?.map(BlockKey),
        layout: Layout {
            first: row.turns("first_start", "first_end")?,
            compacted: row.turns("compacted_start", "compacted_end")?,
            recent: row.turns("recent_start", "recent_end")?,
        },
        through: row.small("through")?,
        tokens_covered: row.unsigned("tokens_covered")?,
        size: Size {
            tokens: row.unsigned("tokens_block")?,
            bytes: row.unsigned("bytes_block")?,
            messages: row.unsigned("messages_block")?,
        },
        strategy: row.get("strategy")?,
        shaping: row.get("shaping")?,
        created_at: row.get("created_at")?,
        extra: row.get("extra")?,
    })
}

fn block_message(row: &Fields<'_, '_>) -> StoreResult<BlockMessage> {
    let body = match row.get::<Option<i64>>("role")? {
        None => None,
        Some(_) => Some(stored_message(row, None)?),
    };
    let section: i64 = row.get("section")?;
    Ok(BlockMessage {
        section: if section == 1 {
            Section::Compacted
        } else {
            Section::Recent
        },
        replaces: row.maybe_small("replaces")?,
        body,
    })
}

fn coverage_row(row: &Fields<'_, '_>) -> StoreResult<CoverageRow> {
    let pair = |from: &'static str, to: &'static str| -> StoreResult<Option<(u32, u32)>> {
        Ok(row.turns(from, to)?.map(|range| (range.first, range.last)))
    };
    let disposition: String = row.get("disposition")?;
    Ok(CoverageRow {
        in_loop: LoopKey(row.get("loop")?),
        seqs: pair("from_seq", "to_seq")?,
        turns: pair("from_turn", "to_turn")?,
        disposition: Disposition::from_word(&disposition).ok_or_else(|| damaged(disposition))?,
    })
}

pub(super) fn manifest_row(row: &Fields<'_, '_>) -> StoreResult<ManifestRow> {
    let parts: String = row.get("parts")?;
    let parts: Vec<StoredPart> = serde_json::from_str(&parts).map_err(damaged)?;
    let part = |(in_loop, section, block, from, to, messages): StoredPart| ManifestPart {
        in_loop: LoopKey(in_loop),
        section,
        block: block.map(BlockKey),
        seqs: from.zip(to),
        messages,
    };
    Ok(ManifestRow {
        key: ManifestKey(row.get("key")?),
        manifest_id: row.get("manifest_id")?,
        session: SessionKey(row.get("session")?),
        leaf: LoopKey(row.get("loop")?),
        tick: row.get("tick")?,
        recorded_at: row.get("recorded_at")?,
        older_loops: row.get("older_loops")?,
        parts: parts.into_iter().map(part).collect(),
        size: Size {
            tokens: row.unsigned("tokens")?,
            bytes: row.unsigned("bytes")?,
            messages: row.unsigned("messages")?,
        },
        counter: row.get("counter")?,
        sha256: row.get("sha256")?,
    })
}

impl Reader<'_> {
    /// Visits the rows of a query.
    pub(super) fn each<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        from_row: fn(&Fields<'_, '_>) -> StoreResult<T>,
        visit: &mut Visit<'_, T>,
    ) -> StoreResult<()> {
        let mut statement = self.connection.prepare_cached(sql).map_err(from_sqlite)?;
        let mut rows = statement.query(params).map_err(from_sqlite)?;
        let places = &Places::default();
        while let Some(row) = rows.next().map_err(from_sqlite)? {
            places.asked.set(0);
            if visit(from_row(&Fields { row, places })?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        from_row: fn(&Fields<'_, '_>) -> StoreResult<T>,
    ) -> StoreResult<Vec<T>> {
        let mut rows = Vec::new();
        self.each(sql, params, from_row, &mut |row| {
            rows.push(row);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    pub(super) fn first<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        from_row: fn(&Fields<'_, '_>) -> StoreResult<T>,
    ) -> StoreResult<Option<T>> {
        let mut found = None;
        self.each(sql, params, from_row, &mut |row| {
            found = Some(row);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

impl StoreRead for Reader<'_> {
    fn session(&self, id: &SessionId) -> StoreResult<Option<SessionRow>> {
        self.first(
            &format!("{SESSION} WHERE session_id = ?1"),
            [id.as_str()],
            session_row,
        )
    }

    fn sessions(&self) -> StoreResult<Vec<SessionRow>> {
        let sql = format!("{SESSION} ORDER BY last_active_at DESC, key DESC");
        self.all(&sql, [], session_row)
    }

    fn session_by_key(&self, key: SessionKey) -> StoreResult<SessionRow> {
        self.first(&format!("{SESSION} WHERE key = ?1"), [key.0], session_row)?
            .ok_or_else(|| StoreError::Damaged(format!("session {} is missing", key.0)))
    }

    fn loop_by_id(&self, session: SessionKey, id: &LoopId) -> StoreResult<Option<LoopRow>> {
        let sql =
            format!("SELECT {LOOP_COLUMNS} FROM loops l WHERE l.session = ?1 AND l.loop_id = ?2");
        self.first(&sql, params![session.0, id.as_str()], loop_row)
    }

    fn loop_by_key(&self, key: LoopKey) -> StoreResult<LoopRow> {
        let sql = format!("SELECT {LOOP_COLUMNS} FROM loops l WHERE l.key = ?1");
        self.first(&sql, [key.0], loop_row)?
            .ok_or_else(|| StoreError::Damaged(format!("loop {} is missing", key.0)))
    }

    fn loops(&self, session: SessionKey) -> StoreResult<Vec<LoopRow>> {
        let sql = format!("SELECT {LOOP_COLUMNS} FROM loops l WHERE l.session = ?1 ORDER BY l.key");
        self.all(&sql, [session.0], loop_row)
    }

    fn loop_meta(&self, key: LoopKey) -> StoreResult<LoopMeta> {
        let meta = self.first(
            "SELECT meta, history FROM loops WHERE key = ?1",
            [key.0],
            |row| {
                Ok(LoopMeta {
                    meta: row.get("meta")?,
                    history: row.get("history")?,
                })
            },
        )?;
        meta.ok_or_else(|| StoreError::Damaged(format!("loop {} is missing", key.0)))
    }

    fn walk(&self, leaf: LoopKey, visit: &mut Visit<'_, LoopRow>) -> StoreResult<()> {
        // The rows come as the recursion makes them, so a visit that breaks stops the walk. Keys
        // that fall from child to parent cannot go round in a circle.
        let sql = format!(
            "WITH RECURSIVE chain (loop) AS (
                 SELECT ?1
                 UNION ALL
                 SELECT p.key
                 FROM chain c JOIN loops l ON l.key = c.loop JOIN loops p ON p.key = l.parent
                 WHERE p.key < l.key AND p.session = l.session
             )
             SELECT {LOOP_COLUMNS} FROM chain c CROSS JOIN loops l ON l.key = c.loop"
        );
        self.each(&sql, [leaf.0], loop_row, visit)
    }

    fn turn(&self, in_loop: LoopKey, turn: u32) -> StoreResult<Option<TurnRow>> {
        self.first(
            &format!("{TURN} WHERE id = ?1"),
            [packed(in_loop.0, turn)],
            turn_row,
        )
    }

    fn turns(&self, in_loop: LoopKey, turns: Range<u32>) -> StoreResult<Vec<TurnRow>> {
        let Some((first, last)) = span(in_loop.0, &turns) else {
            return Ok(Vec::new());
        };
        let sql = format!("{TURN} WHERE id BETWEEN ?1 AND ?2 ORDER BY id");
        self.all(&sql, [first, last], turn_row)
    }

    fn answers(
        &self,
        in_loop: LoopKey,
        turns: Range<u32>,
    ) -> StoreResult<Vec<(u32, Vec<CallSite>)>> {
        let Some((first, last)) = span(in_loop.0, &turns) else {
            return Ok(Vec::new());
        };
        self.all(
            "SELECT id, answers FROM turns
             WHERE answers IS NOT NULL AND id BETWEEN ?1 AND ?2 ORDER BY id",
            [first, last],
            |row| Ok((number(row.get("id")?), call_sites(row)?)),
        )
    }

    fn messages(
        &self,
        in_loop: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageRow>,
    ) -> StoreResult<()> {
        let Some((first, last)) = span(in_loop.0, &seqs) else {
            return Ok(());
        };
        self.each(
            "SELECT lines, id, turn, tick, role, tokens, bytes, body_block, salt, digest, head,
                 body, created_at, origin, chain
             FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
            [first, last],
            message_row,
            visit,
        )
    }

    fn sizes(
        &self,
        in_loop: LoopKey,
        seqs: Range<u32>,
        visit: &mut Visit<'_, MessageSize>,
    ) -> StoreResult<()> {
        let Some((first, last)) = span(in_loop.0, &seqs) else {
            return Ok(());
        };
        self.each(
            "SELECT id, turn, role, tokens, bytes, lines
             FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
            [first, last],
            message_size,
            visit,
        )
    }

    fn length_at(&self, in_loop: LoopKey, tick: Tick) -> StoreResult<u32> {
        // Ticks rise with the sequence: the newest message that is old enough ends the search.
        let last: Option<i64> = self
            .connection
            .prepare_cached(
                "SELECT id FROM messages WHERE id BETWEEN ?1 AND ?2 AND tick <= ?3
                 ORDER BY id DESC LIMIT 1",
            )
            .map_err(from_sqlite)?
            .query_row(
                params![packed(in_loop.0, 0), packed(in_loop.0, u32::MAX), tick],
                |row| row.get(0),
            )
            .optional()
            .map_err(from_sqlite)?;
        Ok(last.map_or(0, |id| number(id) + 1))
    }

    fn blob(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        self.first(
            "SELECT data FROM blobs WHERE sha256 = ?1",
            [sha256],
            |row| row.get("data"),
        )
    }

    fn blob_names(&self, first: &[u8; 32], last: &[u8; 32]) -> StoreResult<Vec<[u8; 32]>> {
        let mut names = Vec::new();
        self.each(
            "SELECT sha256 FROM blobs WHERE sha256 BETWEEN ?1 AND ?2 ORDER BY sha256",
            [first, last],
            |row| row.get("sha256"),
            &mut |name| {
                names.push(name);
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(names)
    }

    fn generations(&self, in_loop: LoopKey, visit: &mut Visit<'_, Generation>) -> StoreResult<()> {
        let sql = format!(
            "SELECT {BLOCK_COLUMNS}, r.loop AS run_loop, r.turns AS run_turns, r.tick AS run_tick
             FROM blocks b JOIN runs r ON r.key = b.run
             WHERE b.loop = ?1 AND r.outcome = 'committed' ORDER BY b.generation DESC"
        );
        let from_row = |row: &Fields<'_, '_>| {
            Ok(Generation {
                block: block_row(row)?,
                point: Point {
                    in_loop: LoopKey(row.get("run_loop")?),
                    turns: row.small("run_turns")?,
                },
                tick: row.get("run_tick")?,
            })
        };
        self.each(&sql, [in_loop.0], from_row, visit)
    }

    fn flips(&self, run: RunKey) -> StoreResult<Vec<FlipRow>> {
        self.all(
            "SELECT run, kind, loop, turns, tick, at, reason FROM flips WHERE run = ?1
             ORDER BY tick, key",
            [run.0],
            flip_row,
        )
    }

    fn runs(&self, session: SessionKey, visit: &mut Visit<'_, RunRow>) -> StoreResult<()> {
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM runs WHERE session = ?1 ORDER BY tick DESC, key DESC"
        );
        self.each(&sql, [session.0], run_row, visit)
    }

    fn run_by_key(&self, key: RunKey) -> StoreResult<RunRow> {
        self.first(
            &format!("SELECT {RUN_COLUMNS} FROM runs WHERE key = ?1"),
            [key.0],
            run_row,
        )?
        .ok_or_else(|| StoreError::Damaged(format!("run {} is missing", key.0)))
    }

    fn blocks_of_run(&self, run: RunKey) -> StoreResult<Vec<BlockRow>> {
        let sql =
            format!("SELECT {BLOCK_COLUMNS} FROM blocks b WHERE b.run = ?1 ORDER BY b.loop, b.key");
        self.all(&sql, [run.0], block_row)
    }

    fn blocks_of_loop(&self, in_loop: LoopKey) -> StoreResult<Vec<BlockRow>> {
        let sql =
            format!("SELECT {BLOCK_COLUMNS} FROM blocks b WHERE b.loop = ?1 ORDER BY b.generation");
        self.all(&sql, [in_loop.0], block_row)
    }

    fn block_by_key(&self, key: BlockKey) -> StoreResult<BlockRow> {
        let sql = format!("SELECT {BLOCK_COLUMNS} FROM blocks b WHERE b.key = ?1");
        self.first(&sql, [key.0], block_row)?
            .ok_or_else(|| StoreError::Damaged(format!("block {} is missing", key.0)))
    }

    fn block_messages(&self, block: BlockKey) -> StoreResult<Vec<BlockMessage>> {
        self.all(
            "SELECT role, tokens, bytes, body_block, salt, digest, head, body, section, replaces
             FROM block_messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
            [packed(block.0, 0), packed(block.0, u32::MAX)],
            block_message,
        )
    }

    fn coverage(&self, block: BlockKey) -> StoreResult<Vec<CoverageRow>> {
        self.all(
            "SELECT loop, from_seq, to_seq, from_turn, to_turn, disposition
             FROM coverage WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
            [packed(block.0, 0), packed(block.0, u32::MAX)],
            coverage_row,
        )
    }

    fn manifests(
        &self,
        session: SessionKey,
        visit: &mut Visit<'_, ManifestRow>,
    ) -> StoreResult<()> {
        let sql = format!(
            "SELECT {MANIFEST_COLUMNS} FROM manifests WHERE session = ?1 ORDER BY key DESC"
        );
        self.each(&sql, [session.0], manifest_row, visit)
    }

    fn import_key(&self) -> StoreResult<Vec<u8>> {
        self.first(
            "SELECT value FROM store_meta WHERE name = 'import_key'",
            [],
            |row| row.get("value"),
        )?
        .ok_or_else(|| StoreError::Damaged("the import key is missing".into()))
    }

    fn imported(
        &self,
        format: &str,
        file_name: &str,
        record_key: &str,
    ) -> StoreResult<Vec<SessionKey>> {
        self.all(
            "SELECT DISTINCT session FROM imports
             WHERE format = ?1 AND file_name = ?2 AND record_key = ?3 ORDER BY session",
            [format, file_name, record_key],
            |row| Ok(SessionKey(row.get("session")?)),
        )
    }

    fn index_state(&self) -> StoreResult<IndexState> {
        self.read_index_state()
    }

    fn unindexed(&self) -> StoreResult<Vec<LoopKey>> {
        self.read_unindexed()
    }

    fn unindexed_seqs(&self, in_loop: LoopKey) -> StoreResult<Range<u32>> {
        self.read_unindexed_seqs(in_loop)
    }

    fn find(
        &self,
        query: &IndexQuery,
        filter: &IndexFilter,
        visit: &mut Visit<'_, Match>,
    ) -> StoreResult<()> {
        self.find_in_index(query, filter, visit)
    }

    fn sources(&self, session: SessionKey) -> StoreResult<Vec<SourceRow>> {
        self.sources_of(session)
    }

    fn source_parts(&self, source: SourceKey) -> StoreResult<Vec<SourcePart>> {
        self.parts_of(source)
    }

    fn source_piece(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>> {
        self.piece(sha256)
    }

    fn lease(&self, in_loop: LoopKey) -> StoreResult<Option<LeaseRow>> {
        self.read_lease(in_loop)
    }

    fn loops_at_work(&self, session: Option<SessionKey>) -> StoreResult<Vec<LoopKey>> {
        self.read_loops_at_work(session)
    }

    fn open_calls(&self, session: Option<SessionKey>) -> StoreResult<Vec<CallRow>> {
        self.read_open_calls(session)
    }

    fn calls(&self, in_loop: LoopKey, call_id: &str) -> StoreResult<Vec<CallRow>> {
        self.read_calls(in_loop, call_id)
    }

    fn calls_of_loop(&self, in_loop: LoopKey) -> StoreResult<Vec<CallRow>> {
        self.read_calls_of_loop(in_loop)
    }

    fn notes(&self, in_loop: LoopKey) -> StoreResult<Vec<Note>> {
        self.read_notes(in_loop)
    }

    fn usage(&self, session: SessionKey) -> StoreResult<Vec<UsageRow>> {
        self.read_usage(session)
    }

    fn started_by(&self, session: SessionKey) -> StoreResult<Vec<SessionKey>> {
        self.read_started_by(session)
    }

    fn flags(&self, session: SessionKey) -> StoreResult<SessionFlags> {
        self.read_flags(session)
    }
}
