//! The rows of the tables: which columns are read, and what is made of them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::fields::{Fields, damaged};
use super::read::number;
use crate::model::{LoopId, LoopStatus, SessionId};
use crate::store::codec::role_from_number;
use crate::store::error::StoreResult;
use crate::store::*;

const SESSION_COLUMNS: &str = "s.key, s.session_id, s.agent_id, s.title, s.created_at,
    s.last_active_at, s.current_loop, s.tick, s.source, s.meta";

pub(super) static SESSION: Sql = Sql::new(|| format!("SELECT {SESSION_COLUMNS} FROM sessions s"));

// Columns stand in the order in which `loop_row` and its like read them.
pub(super) static LOOP_COLUMNS: Sql = Sql::new(|| {
    format!(
        "l.key, {CORE_COLUMNS}, l.parent_loop_id, l.kind, l.started_at, l.ended_at, l.tick,
         {GROWTH_COLUMNS}"
    )
});

const GROWTH_COLUMNS: &str = "l.system_tokens, l.last_turn_index, l.open_calls, l.chain";

// Whoever walks a chain knows the keys of its loops.
const CORE_COLUMNS: &str = "l.session, l.loop_id, l.parent, l.parent_turn, l.status,
    l.next_seq, l.sealed_seq, l.turns, l.complete, l.messages, l.tokens, l.bytes, l.generation";

const TURN_COLUMNS: &str = "t.id, t.first_seq, t.messages, t.prompts, t.tokens, t.bytes,
    t.turn_index, t.answered, t.answers, t.tick, t.started_at, t.ended_at";

pub(super) static TURN: Sql = Sql::new(|| format!("SELECT {TURN_COLUMNS} FROM turns t"));

pub(super) const LEASE_COLUMNS: [&str; 7] = [
    "e.loop",
    "e.owner",
    "e.token",
    "e.ttl",
    "e.renewed_at",
    "e.expires_at",
    "e.released",
];

pub(super) const RUN_COLUMNS: &str = "outcome, key, session, run_id, loop, turns, tick, trigger,
    strategy, round, fallback, error, scope, older_loops, counter, tokens_before, tokens_after,
    bytes_before, bytes_after, messages_before, messages_after, started_at, duration_ms, config,
    usage, plan, record, events";

pub(super) static BLOCK_COLUMNS: Sql = Sql::new(|| {
    format!(
        "b.loop, {BLOCK_CORE_COLUMNS}, b.tokens_covered, b.strategy, b.shaping, b.created_at, b.extra"
    )
});

// Whoever looks for a block of a chain knows its loop.
const BLOCK_CORE_COLUMNS: &str = "b.kind, b.key, b.generation, b.run, b.extends, b.first_start,
    b.first_end, b.compacted_start, b.compacted_end, b.recent_start, b.recent_end, b.through,
    b.tokens_block, b.bytes_block, b.messages_block";

pub(super) const MANIFEST_COLUMNS: &str = "key, manifest_id, session, loop, tick, recorded_at,
    older_loops, parts, messages, tokens, bytes, counter, sha256";

/// A statement that is put together once.
type Sql = LazyLock<String>;

pub(super) static SESSION_BY_ID: Sql = Sql::new(|| format!("{} WHERE session_id = ?1", *SESSION));
pub(super) static SESSION_BY_KEY: Sql = Sql::new(|| format!("{} WHERE key = ?1", *SESSION));
pub(super) static LOOP_BY_KEY: Sql =
    Sql::new(|| format!("SELECT {} FROM loops l WHERE l.key = ?1", *LOOP_COLUMNS));
pub(super) static LOOP_BY_ID: Sql = Sql::new(|| {
    let columns = &*LOOP_COLUMNS;
    format!("SELECT {columns} FROM loops l WHERE l.session = ?1 AND l.loop_id = ?2")
});
pub(super) static TURN_BY_ID: Sql = Sql::new(|| format!("{} WHERE id = ?1", *TURN));
pub(super) static LEASE_OF_LOOP: Sql = Sql::new(|| {
    let lease = LEASE_COLUMNS.join(", ");
    format!("SELECT {lease} FROM leases e WHERE e.loop = ?1")
});
pub(super) static GROWING: Sql = Sql::new(|| {
    let lease = LEASE_COLUMNS.join(", ");
    format!(
        "SELECT l.key, {CORE_COLUMNS}, {GROWTH_COLUMNS}, s.last_active_at, s.current_loop, s.tick,
             e.loop IS NOT NULL AS has_lease, {lease}, t.id IS NOT NULL AS has_turn, {TURN_COLUMNS}
         FROM loops l CROSS JOIN sessions s ON s.key = l.session
             LEFT JOIN leases e ON e.loop = l.key
             LEFT JOIN turns t ON t.id = (l.key << 32) + l.turns - 1 AND l.turns > 0
         WHERE l.key = ?1"
    )
});

// The rows come as the recursion makes them, so a visit that breaks stops the walk. Keys that fall
// from child to parent cannot go round in a circle.
const CHAIN: &str = "WITH RECURSIVE chain (loop, parent, session) AS (
        SELECT key, parent, session FROM loops WHERE key = ?1
        UNION ALL
        SELECT p.key, p.parent, p.session FROM chain c JOIN loops p ON p.key = c.parent
        WHERE p.key < c.loop AND p.session = c.session
    )";

pub(super) static WALK: Sql = Sql::new(|| {
    let columns = &*LOOP_COLUMNS;
    format!("{CHAIN} SELECT {columns} FROM chain c CROSS JOIN loops l ON l.key = c.loop")
});

// The newest generation is looked up, not taken from the loop: a noted number is no promise.
pub(super) static STANDING: Sql = Sql::new(|| {
    let columns = &*GENERATION_COLUMNS;
    format!(
        "SELECT {CORE_COLUMNS}, CASE WHEN b.key IS NOT NULL THEN
                 r.key IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM flips f WHERE f.run = b.run)
             END AS is_settled, {columns}
         FROM loops l
             LEFT JOIN blocks b ON b.loop = l.key
             LEFT JOIN runs r ON r.key = b.run AND r.outcome = 'committed'
         WHERE l.key = ?1 ORDER BY b.generation DESC LIMIT 1"
    )
});

pub(super) static GENERATIONS: Sql = Sql::new(|| {
    let columns = &*GENERATION_COLUMNS;
    format!(
        "SELECT {columns} FROM blocks b JOIN runs r ON r.key = b.run
         WHERE b.loop = ?1 AND r.outcome = 'committed' ORDER BY b.generation DESC"
    )
});

static GENERATION_COLUMNS: Sql = Sql::new(|| {
    format!("{BLOCK_CORE_COLUMNS}, r.loop AS run_loop, r.turns AS run_turns, r.tick AS run_tick")
});

pub(super) const SAID: &str = "SELECT id, turn, role, tokens, bytes, body_block, head, body
    FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
pub(super) const SAID_WITH_PROOF: &str =
    "SELECT id, turn, role, tokens, bytes, body_block, head, body, salt, digest
    FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id";

/// A part of a manifest as it is stored: loop, section, block, first and last sequence, messages.
pub(super) type StoredPart = (i64, String, Option<i64>, Option<u32>, Option<u32>, u64);

pub(super) fn session_row(row: &Fields<'_, '_>) -> StoreResult<SessionRow> {
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

pub(super) fn loop_row(row: &Fields<'_, '_>) -> StoreResult<LoopRow> {
    let key = LoopKey(row.get("key")?);
    let core = loop_core(row, key)?;
    let parent_loop_id: Option<String> = row.get("parent_loop_id")?;
    Ok(LoopRow {
        core,
        parent_loop_id: parent_loop_id
            .map(LoopId::new)
            .transpose()
            .map_err(damaged)?,
        kind: row.get("kind")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        tick: row.get("tick")?,
        progress: loop_growth(row)?,
    })
}

fn loop_growth(row: &Fields<'_, '_>) -> StoreResult<LoopProgress> {
    Ok(LoopProgress {
        system_tokens: row.unsigned("system_tokens")?,
        last_turn_index: row.get("last_turn_index")?,
        open_calls: match row.text("open_calls")? {
            Some(json) => serde_json::from_str(json).map_err(damaged)?,
            None => BTreeMap::new(),
        },
        chain: row.get("chain")?,
    })
}

fn loop_core(row: &Fields<'_, '_>, key: LoopKey) -> StoreResult<LoopCore> {
    Ok(LoopCore {
        key,
        session: SessionKey(row.get("session")?),
        loop_id: LoopId::new(row.get::<String>("loop_id")?).map_err(damaged)?,
        parent: row.get::<Option<i64>>("parent")?.map(LoopKey),
        parent_turn: row.maybe_small("parent_turn")?,
        status: LoopStatus::from(row.word("status")?),
        totals: LoopTotals {
            next_seq: row.small("next_seq")?,
            sealed_seq: row.small("sealed_seq")?,
            turns: row.small("turns")?,
            complete: row.small("complete")?,
            messages: row.unsigned("messages")?,
            tokens: row.unsigned("tokens")?,
            bytes: row.unsigned("bytes")?,
            generation: row.small("generation")?,
        },
    })
}

pub(super) fn call_sites(row: &Fields<'_, '_>) -> StoreResult<Vec<CallSite>> {
    let json: Option<String> = row.get("answers")?;
    let Some(json) = json else {
        return Ok(Vec::new());
    };
    let pairs: Vec<(i64, u32)> = serde_json::from_str(&json).map_err(damaged)?;
    let site = |(key, turn)| CallSite {
        loop_key: LoopKey(key),
        turn,
    };
    Ok(pairs.into_iter().map(site).collect())
}

pub(super) fn turn_row(row: &Fields<'_, '_>) -> StoreResult<TurnRow> {
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

pub(super) fn lease_row(row: &Fields<'_, '_>) -> StoreResult<LeaseRow> {
    Ok(LeaseRow {
        loop_key: LoopKey(row.get("loop")?),
        owner: row.get("owner")?,
        token: row.get("token")?,
        ttl: row.get("ttl")?,
        renewed_at: row.get("renewed_at")?,
        expires_at: row.get("expires_at")?,
        released: row.get("released")?,
    })
}

pub(super) fn append_state(row: &Fields<'_, '_>) -> StoreResult<AppendState> {
    let key = LoopKey(row.get("key")?);
    let (of_loop, progress) = (loop_core(row, key)?, loop_growth(row)?);
    let session = SessionActivity {
        key: of_loop.session,
        last_active_at: row.get("last_active_at")?,
        current_loop: row.get::<Option<i64>>("current_loop")?.map(LoopKey),
        tick: row.get("tick")?,
    };
    let lease = match row.get("has_lease")? {
        true => Some(lease_row(row)?),
        false => {
            row.skip(LEASE_COLUMNS.len());
            None
        }
    };
    let has_turn: bool = row.get("has_turn")?;
    Ok(AppendState {
        row: of_loop,
        progress,
        session,
        lease,
        last: has_turn.then(|| turn_row(row)).transpose()?,
    })
}

pub(super) fn stored_message(
    row: &Fields<'_, '_>,
    role: i64,
    lines: Option<u32>,
) -> StoreResult<StoredMessage> {
    Ok(StoredMessage {
        role: role_from_number(role)?,
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

pub(super) fn message_row(row: &Fields<'_, '_>) -> StoreResult<MessageRow> {
    let lines = row.maybe_small("lines")?;
    Ok(MessageRow {
        seq: number(row.get("id")?),
        turn: row.maybe_small("turn")?,
        tick: row.get("tick")?,
        body: stored_message(row, row.get("role")?, lines)?,
        created_at: row.get("created_at")?,
        origin: row.get("origin")?,
        chain: row.get("chain")?,
    })
}

/// Reads what a message says, behind the columns of its place.
pub(super) fn said<'a>(
    row: &'a Fields<'_, '_>,
    with_proof: bool,
) -> StoreResult<StoredMessageRef<'a>> {
    let said = StoredMessageRef {
        role: role_from_number(row.get("role")?)?,
        tokens: row.unsigned("tokens")?,
        bytes: row.unsigned("bytes")?,
        text_block: row.maybe_small("body_block")?,
        head: row.text("head")?,
        text: row.text("body")?,
        proof: None,
    };
    let proof = with_proof.then(|| proof(row)).transpose()?;
    Ok(StoredMessageRef { proof, ..said })
}

fn proof(row: &Fields<'_, '_>) -> StoreResult<Proof> {
    Ok(Proof {
        salt: row.get("salt")?,
        digest: row.get("digest")?,
    })
}

pub(super) fn message_size(row: &Fields<'_, '_>) -> StoreResult<MessageSize> {
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
    let outcome = row.word("outcome")?;
    let outcome = Outcome::from_word(outcome).ok_or_else(|| damaged(outcome))?;
    Ok(RunRow {
        key: RunKey(row.get("key")?),
        session: SessionKey(row.get("session")?),
        run_id: row.get("run_id")?,
        point: Point {
            loop_key: LoopKey(row.get("loop")?),
            turns: row.small("turns")?,
        },
        tick: row.get("tick")?,
        trigger: row.get("trigger")?,
        strategy: row.get("strategy")?,
        round: row.small("round")?,
        outcome,
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

pub(super) fn run_mark<'a>(row: &'a Fields<'_, '_>) -> StoreResult<RunSummary<'a>> {
    Ok(RunSummary {
        key: RunKey(row.get("key")?),
        point: Point {
            loop_key: LoopKey(row.get("loop")?),
            turns: row.small("turns")?,
        },
        tick: row.get("tick")?,
        round: row.small("round")?,
        is_committed: row.text("outcome")? == Some(Outcome::Committed.as_str()),
        is_flipped: row.get("is_flipped")?,
        older_loops: row.word("older_loops")?,
    })
}

pub(super) fn flip_row(row: &Fields<'_, '_>) -> StoreResult<FlipRow> {
    Ok(FlipRow {
        run: RunKey(row.get("run")?),
        redo: row.word("kind")? == "redo",
        point: Point {
            loop_key: LoopKey(row.get("loop")?),
            turns: row.small("turns")?,
        },
        tick: row.get("tick")?,
        at: row.get("at")?,
        reason: row.get("reason")?,
    })
}

pub(super) fn block_row(row: &Fields<'_, '_>) -> StoreResult<BlockRow> {
    let loop_key = LoopKey(row.get("loop")?);
    Ok(BlockRow {
        core: block_core(row, loop_key)?,
        tokens_covered: row.unsigned("tokens_covered")?,
        strategy: row.get("strategy")?,
        shaping: row.get("shaping")?,
        created_at: row.get("created_at")?,
        extra: row.get("extra")?,
    })
}

fn block_core(row: &Fields<'_, '_>, loop_key: LoopKey) -> StoreResult<BlockCore> {
    let kind = row.word("kind")?;
    let kind = BlockKind::from_word(kind).ok_or_else(|| damaged(kind))?;
    Ok(BlockCore {
        key: BlockKey(row.get("key")?),
        loop_key,
        generation: row.small("generation")?,
        run: RunKey(row.get("run")?),
        kind,
        extends: row.get::<Option<i64>>("extends")?.map(BlockKey),
        layout: Layout {
            first: row.turns("first_start", "first_end")?,
            compacted: row.turns("compacted_start", "compacted_end")?,
            recent: row.turns("recent_start", "recent_end")?,
        },
        through: row.small("through")?,
        size: Size {
            tokens: row.unsigned("tokens_block")?,
            bytes: row.unsigned("bytes_block")?,
            messages: row.unsigned("messages_block")?,
        },
    })
}

pub(super) fn generation(row: &Fields<'_, '_>, loop_key: LoopKey) -> StoreResult<Generation> {
    Ok(Generation {
        block: block_core(row, loop_key)?,
        point: Point {
            loop_key: LoopKey(row.get("run_loop")?),
            turns: row.small("run_turns")?,
        },
        tick: row.get("run_tick")?,
    })
}

pub(super) fn standing(row: &Fields<'_, '_>, key: LoopKey) -> StoreResult<LoopWithBlock> {
    let loop_key = loop_core(row, key)?;
    let is_settled: Option<bool> = row.get("is_settled")?;
    Ok(LoopWithBlock {
        newest: match is_settled {
            Some(true) => Some(generation(row, key)?),
            _ => None,
        },
        row: loop_key,
        is_disputed: is_settled == Some(false),
    })
}

pub(super) fn block_message(row: &Fields<'_, '_>) -> StoreResult<BlockMessage> {
    let section: i64 = row.get("section")?;
    Ok(BlockMessage {
        section: if section == 1 {
            Section::Compacted
        } else {
            Section::Recent
        },
        replaces: row.maybe_small("replaces")?,
        body: match row.get("role")? {
            None => None,
            Some(role) => Some(stored_message(row, role, None)?),
        },
    })
}

pub(super) fn coverage_row(row: &Fields<'_, '_>) -> StoreResult<CoverageRow> {
    let pair = |from: &'static str, to: &'static str| -> StoreResult<Option<(u32, u32)>> {
        Ok(row.turns(from, to)?.map(|range| (range.first, range.last)))
    };
    let disposition = row.word("disposition")?;
    Ok(CoverageRow {
        loop_key: LoopKey(row.get("loop")?),
        seqs: pair("from_seq", "to_seq")?,
        turns: pair("from_turn", "to_turn")?,
        disposition: Disposition::from_word(disposition).ok_or_else(|| damaged(disposition))?,
    })
}

pub(super) fn manifest_row(row: &Fields<'_, '_>) -> StoreResult<ManifestRow> {
    let parts: String = row.get("parts")?;
    let parts: Vec<StoredPart> = serde_json::from_str(&parts).map_err(damaged)?;
    let part = |(loop_key, section, block, from, to, messages): StoredPart| ManifestPart {
        loop_key: LoopKey(loop_key),
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
