//! The statements of the hot paths, each put together once, and the columns that others select.
//!
//! Columns stand in the order in which the mappers read them.

use std::sync::LazyLock;

use super::row::SqliteRow;
use crate::store::columns::Columns;
use crate::store::mapping::*;
use crate::store::{AppendState, LoopKey, LoopWithBlock, StoreResult, StoredMessageRef};

const SESSION_COLUMNS: &str = "s.key, s.session_id, s.agent_id, s.title, s.created_at,
    s.last_active_at, s.current_loop, s.tick, s.source, s.project, s.meta";

pub(super) static SESSION: Sql = Sql::new(|| format!("SELECT {SESSION_COLUMNS} FROM sessions s"));

pub(super) const HIDDEN_SESSIONS: &str = "SELECT h.session FROM hides h
    WHERE h.kind = 'hide'
        AND h.key = (SELECT max(n.key) FROM hides n WHERE n.session = h.session)";

pub(super) static LOOP_COLUMNS: Sql = Sql::new(|| {
    format!(
        "l.key, {CORE_COLUMNS}, l.parent_loop_id, l.kind, l.started_at, l.ended_at, l.tick,
         {PROGRESS_COLUMNS}"
    )
});

const PROGRESS_COLUMNS: &str = "l.system_tokens, l.last_turn_index, l.open_calls, l.chain";

// Whoever walks a chain knows the keys of its loops.
const CORE_COLUMNS: &str = "l.session, l.loop_id, l.parent, l.parent_turn, l.parent_seq, l.status,
    l.next_seq, l.sealed_seq, l.turns, l.complete, l.messages, l.tokens, l.bytes, l.generation,
    l.reported_seq, l.reported_tokens, l.edits";

const TURN_COLUMNS: &str = "t.id AS turn, t.first_seq, t.messages, t.prompts, t.tokens, t.bytes,
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

// Whoever looks for a block of a chain knows its loop.
const BLOCK_CORE_COLUMNS: &str = "b.key, b.generation, b.run, b.kind, b.extends, b.first_start,
    b.first_end, b.compacted_start, b.compacted_end, b.recent_start, b.recent_end, b.through,
    b.tokens_block, b.bytes_block, b.messages_block";

const RUN_POINT_COLUMNS: &str = "r.loop AS run_loop, r.turns AS run_turns, r.tick AS run_tick";

/// A statement that is put together once.
type Sql = LazyLock<String>;

/// Returns a statement without the line breaks and the indentation of the source: the cache of statements hashes
/// and compares the whole text of each, at every use.
fn on_one_line(sql: String) -> String {
    sql.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

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
pub(super) static APPEND_STATE: Sql = Sql::new(|| {
    let lease = LEASE_COLUMNS.join(", ");
    on_one_line(format!(
        "SELECT l.key, {CORE_COLUMNS}, {PROGRESS_COLUMNS}, s.last_active_at, s.current_loop, s.tick,
             e.loop IS NOT NULL AS has_lease, {lease}, t.id IS NOT NULL AS has_turn, {TURN_COLUMNS}
         FROM loops l CROSS JOIN sessions s ON s.key = l.session
             LEFT JOIN leases e ON e.loop = l.key
             LEFT JOIN turns t ON t.id = (l.key << 32) + l.turns - 1 AND l.turns > 0
         WHERE l.key = ?1"
    ))
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

pub(super) static LOOP_OF_CHAIN: Sql = Sql::new(|| {
    on_one_line(format!(
        "SELECT {CORE_COLUMNS} FROM loops l WHERE l.key = ?1"
    ))
});

// The newest generation is looked up, not taken from the loop: a noted number is no promise. A settled block has no
// edits, so that the last of its columns is not looked for in the row.
pub(super) static LOOP_WITH_BLOCK: Sql = Sql::new(|| {
    on_one_line(format!(
        "SELECT {CORE_COLUMNS}, CASE WHEN b.key IS NOT NULL THEN
                 r.key IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM flips f WHERE f.run = b.run)
                 AND l.edits = 0
                 AND (b.kind IN ('current', 'earlier')
                     OR (SELECT s.edits FROM sessions s WHERE s.key = l.session) = 0)
             END AS is_settled, {BLOCK_CORE_COLUMNS}, NULL AS edits, {RUN_POINT_COLUMNS}
         FROM loops l
             LEFT JOIN blocks b ON b.loop = l.key
             LEFT JOIN runs r ON r.key = b.run AND r.outcome = 'committed'
         WHERE l.key = ?1 ORDER BY b.generation DESC LIMIT 1"
    ))
});

pub(super) static GENERATIONS: Sql = Sql::new(|| {
    on_one_line(format!(
        "SELECT {BLOCK_CORE_COLUMNS}, b.edits, {RUN_POINT_COLUMNS} FROM blocks b JOIN runs r ON r.key = b.run
         WHERE b.loop = ?1 AND r.outcome = 'committed' ORDER BY b.generation DESC"
    ))
});

pub(super) const MESSAGE_REFS: &str =
    "SELECT id AS seq, turn, role, tokens, bytes, body_block, head, body
    FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
const RUN_SUMMARY: &str = "SELECT r.key, r.loop, r.turns, r.tick, r.round, r.outcome,
        EXISTS (SELECT 1 FROM flips f WHERE f.run = r.key) AS is_flipped,
        r.trigger = 'edit' OR (r.strategy >= 'provider:' AND r.strategy < 'provider;') AS has_no_settings,
        r.older_loops";
pub(super) static RUN_SUMMARIES: Sql = Sql::new(|| {
    on_one_line(format!(
        "{RUN_SUMMARY} FROM runs r WHERE r.session = ?1 ORDER BY r.tick DESC, r.key DESC"
    ))
});
pub(super) static COMPACTION_SUMMARIES: Sql = Sql::new(|| {
    on_one_line(format!(
        "{RUN_SUMMARY} FROM runs r INDEXED BY runs_compactions
         WHERE r.session = ?1 AND r.trigger <> 'edit' ORDER BY r.tick DESC, r.key DESC"
    ))
});

/// The texts of the messages of which the bit of ?3 is set are left out. A bit is counted from the first message.
pub(super) const MESSAGE_REFS_AS_NEEDED: &str =
    "SELECT id AS seq, turn, role, tokens, bytes, body_block, head,
        CASE WHEN (?3 >> (id - ?1)) & 1 THEN NULL ELSE body END AS body
    FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
pub(super) const MESSAGE_REFS_AS_NEEDED_WITH_PROOF: &str =
    "SELECT id AS seq, turn, role, tokens, bytes, body_block, head,
        CASE WHEN (?3 >> (id - ?1)) & 1 THEN NULL ELSE body END AS body, salt, digest
    FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
pub(super) const MESSAGE_REFS_WITH_TIME: &str =
    "SELECT id AS seq, turn, role, tokens, bytes, body_block, head, body, created_at
    FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
pub(super) const MESSAGE_REFS_WITH_PROOF: &str =
    "SELECT id AS seq, turn, role, tokens, bytes, body_block, head, body, salt, digest
    FROM messages WHERE id BETWEEN ?1 AND ?2 ORDER BY id";

// Loop by loop, in the order of their keys: nothing is sorted, and the first that are found are enough.
pub(super) const PROMPTS_OF_SESSION: &str = "SELECT l.session, l.key AS loop, m.id AS seq
    FROM loops l INDEXED BY loops_session CROSS JOIN messages m INDEXED BY messages_prompts
        ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32 AND m.role = 0 AND m.author < 2
    WHERE l.session = ?1 AND l.key > 0 AND m.author = ?3 ORDER BY l.key, m.id LIMIT ?2";
pub(super) const PROMPTS_OF_LOOP: &str = "SELECT l.session, l.key AS loop, m.id AS seq
    FROM loops l CROSS JOIN messages m INDEXED BY messages_prompts
        ON m.id >= l.key << 32 AND m.id < (l.key + 1) << 32 AND m.role = 0 AND m.author < 2
    WHERE l.session = ?1 AND l.key = ?3 ORDER BY m.author, m.id LIMIT ?2";
pub(super) const FIRST_PROMPTS_OF_LOOPS: &str = "SELECT session, seq >> 32 AS loop, seq
    FROM (
        SELECT l.session, (
            SELECT m.id FROM messages m INDEXED BY messages_prompts
            WHERE m.id >= l.key << 32 AND m.id < (l.key + 1) << 32 AND m.role = 0 AND m.author < 2
            ORDER BY m.author, m.id LIMIT 1
        ) AS seq
        FROM loops l WHERE l.session = ?1
    )
    WHERE seq IS NOT NULL";

pub(super) fn append_state(row: &SqliteRow<'_, '_>) -> StoreResult<AppendState> {
    let key = row.get("key")?;
    let (of_loop, progress) = (loop_core(row, key)?, loop_progress(row)?);
    let session = session_activity(row, of_loop.session)?;
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

pub(super) fn loop_and_newest_block(
    row: &SqliteRow<'_, '_>,
    key: LoopKey,
) -> StoreResult<LoopWithBlock> {
    let core = loop_core(row, key)?;
    let is_settled: Option<bool> = row.get("is_settled")?;
    Ok(LoopWithBlock {
        newest: match is_settled {
            Some(true) => Some(generation(row, key)?),
            _ => None,
        },
        row: core,
        is_disputed: is_settled == Some(false),
    })
}

/// Reads what a message says, behind the columns of its place.
pub(super) fn stored_message_ref<'a>(
    row: &'a SqliteRow<'_, '_>,
    with_proof: bool,
) -> StoreResult<StoredMessageRef<'a>> {
    let message = StoredMessageRef {
        role: row.get("role")?,
        tokens: row.get("tokens")?,
        bytes: row.get("bytes")?,
        text_block: row.get("body_block")?,
        head: row.text("head")?,
        text: row.text("body")?,
        proof: None,
    };
    let proof = with_proof.then(|| proof(row)).transpose()?;
    Ok(StoredMessageRef { proof, ..message })
}
