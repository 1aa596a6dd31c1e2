//! Runs, undos and redos, manifests, and the audit chain.

use crate::store::audit::{AuditEnd, AuditEntry, AuditRow};
use crate::store::codec::to_json;
use crate::store::columns::Columns;
use crate::store::values::{BoundValue, values};
use crate::store::{
    BlockKey, FlipRow, HideRow, LoopKey, ManifestPart, ManifestRow, Outcome, PinRow, Point, RunRow,
    RunSummary, SessionKey, StoreResult,
};

/// Reads a compaction run from its columns.
pub fn run_row(row: &impl Columns) -> StoreResult<RunRow> {
    Ok(RunRow {
        key: row.get("key")?,
        session: row.get("session")?,
        run_id: row.get("run_id")?,
        point: point(row)?,
        tick: row.get("tick")?,
        trigger: row.get("trigger")?,
        strategy: row.get("strategy")?,
        round: row.get("round")?,
        outcome: row.get("outcome")?,
        fallback: row.get("fallback")?,
        error: row.get("error")?,
        scope: row.get("scope")?,
        older_loops: row.get("older_loops")?,
        counter: row.get("counter")?,
        before: row.size("tokens_before", "bytes_before", "messages_before")?,
        after: row.size("tokens_after", "bytes_after", "messages_after")?,
        started_at: row.get("started_at")?,
        duration_ms: row.get("duration_ms")?,
        config: row.get("config")?,
        usage: row.get("usage")?,
        plan: row.get("plan")?,
        record: row.get("record")?,
        events: row.get("events")?,
        reached: row.get("reached")?,
    })
}

/// Reads the end of an audit chain from its columns.
pub fn audit_end(row: &impl Columns) -> StoreResult<AuditEnd> {
    Ok(AuditEnd {
        seq: row.get("audit_seq")?,
        chain: row.get("chain")?,
    })
}

/// Reads a row of an audit chain from its columns.
pub fn audit_row(row: &impl Columns) -> StoreResult<AuditRow> {
    Ok(AuditRow {
        end: audit_end(row)?,
        entry: AuditEntry {
            kind: row.get("kind")?,
            digest: row.get("digest")?,
            was: row.get("was")?,
        },
    })
}

fn point(row: &impl Columns) -> StoreResult<Point> {
    Ok(Point {
        loop_key: row.get("loop")?,
        turns: row.get("turns")?,
    })
}

/// Reads a compaction run without most of its texts from its columns.
pub fn run_summary(row: &impl Columns) -> StoreResult<RunSummary<'_>> {
    Ok(RunSummary {
        key: row.get("key")?,
        point: point(row)?,
        tick: row.get("tick")?,
        round: row.get("round")?,
        is_committed: row.text("outcome")? == Some(Outcome::Committed.as_str()),
        is_flipped: row.get("is_flipped")?,
        has_no_settings: row.get("has_no_settings")?,
        older_loops: row.get("older_loops")?,
    })
}

/// Reads an undo or redo from its columns.
pub fn flip_row(row: &impl Columns) -> StoreResult<FlipRow> {
    Ok(FlipRow {
        run: row.get("run")?,
        redo: row.get::<&str>("kind")? == "redo",
        point: point(row)?,
        tick: row.get("tick")?,
        at: row.get("at")?,
        reason: row.get("reason")?,
    })
}

/// Reads a pin from its columns.
pub fn pin_row(row: &impl Columns) -> StoreResult<PinRow> {
    Ok(PinRow {
        loop_key: row.get("message_loop")?,
        seq: row.get("seq")?,
        pinned: row.get::<&str>("kind")? == "pin",
        point: point(row)?,
        tick: row.get("tick")?,
        at: row.get("at")?,
    })
}

/// Reads a row of `hides` from its columns.
pub fn hide_row(row: &impl Columns) -> StoreResult<HideRow> {
    Ok(HideRow {
        hidden: row.get::<&str>("kind")? == "hide",
        was: row.get("was")?,
        session_id: row.get("session_id")?,
        tick: row.get("tick")?,
        at: row.get("at")?,
    })
}

/// The stored form of a part of a manifest: loop, section, block, first and last sequence, messages.
type StoredPart = (i64, String, Option<i64>, Option<u32>, Option<u32>, u64);

/// Reads a manifest from its columns.
pub fn manifest_row(row: &impl Columns) -> StoreResult<ManifestRow> {
    let parts: Vec<StoredPart> = row.json("parts")?;
    let part = |(loop_key, section, block, from, to, messages): StoredPart| ManifestPart {
        loop_key: LoopKey(loop_key),
        section,
        block: block.map(BlockKey),
        seqs: from.zip(to),
        messages,
    };
    Ok(ManifestRow {
        key: row.get("key")?,
        manifest_id: row.get("manifest_id")?,
        session: row.get("session")?,
        leaf: row.get("loop")?,
        tick: row.get("tick")?,
        recorded_at: row.get("recorded_at")?,
        older_loops: row.get("older_loops")?,
        parts: parts.into_iter().map(part).collect(),
        size: row.size("tokens", "bytes", "messages")?,
        counter: row.get("counter")?,
        sha256: row.get("sha256")?,
    })
}

/// Returns the stored form of the parts of a manifest.
fn parts_json(row: &ManifestRow) -> StoreResult<String> {
    let part = |part: &ManifestPart| -> StoredPart {
        (
            part.loop_key.0,
            part.section.clone(),
            part.block.map(|block| block.0),
            part.seqs.map(|(from, _)| from),
            part.seqs.map(|(_, to)| to),
            part.messages,
        )
    };
    let parts: Vec<StoredPart> = row.parts.iter().map(part).collect();
    to_json(&parts)
}

/// The columns of the values of a compaction run.
pub const RUN_COLUMNS: &str = "session, run_id, loop, turns, tick, trigger, strategy,
    round, outcome, fallback, error, scope, older_loops, counter, tokens_before, tokens_after,
    bytes_before, bytes_after, messages_before, messages_after, started_at, duration_ms, config,
    usage, plan, record, events, reached, digest";

/// Returns the values of an open run, with the outcome of a running one.
pub fn open_run_values(row: &RunRow) -> StoreResult<Vec<BoundValue<'_>>> {
    let mut values = run_values(row, None)?;
    values[OUTCOME_PLACE] = BoundValue::Text(Some(Outcome::Running.as_str()));
    Ok(values)
}

/// The index of the outcome in [`RUN_COLUMNS`].
const OUTCOME_PLACE: usize = 8;

/// Returns the values of a run.
pub fn run_values<'a>(
    row: &'a RunRow,
    digest: Option<&'a [u8; 32]>,
) -> StoreResult<Vec<BoundValue<'a>>> {
    let mut values = values![
        &row.session,
        &row.run_id,
        &row.point.loop_key,
        &row.point.turns,
        &row.tick,
        &row.trigger,
        &row.strategy,
        &row.round,
        &row.outcome,
        &row.fallback,
        &row.error,
        &row.scope,
        &row.older_loops,
        &row.counter,
        &row.before.tokens,
        &row.after.tokens,
        &row.before.bytes,
        &row.after.bytes,
        &row.before.messages,
        &row.after.messages,
        &row.started_at,
        &row.duration_ms,
        &row.config,
        &row.usage,
        &row.plan,
        &row.record,
        &row.events,
        &row.reached,
    ];
    values.push(BoundValue::Bytes(digest.map(|digest| &digest[..])));
    Ok(values)
}

/// The columns of the values of an undo or redo.
pub const FLIP_COLUMNS: &str = "session, run, kind, loop, turns, tick, at, reason, digest";

/// Returns the values of an undo or redo, in the order of [`FLIP_COLUMNS`].
pub fn flip_values<'a>(
    session: &'a SessionKey,
    row: &'a FlipRow,
    digest: &'a [u8; 32],
) -> StoreResult<Vec<BoundValue<'a>>> {
    let mut values = values![
        session,
        &row.run,
        if row.redo { "redo" } else { "undo" },
        &row.point.loop_key,
        &row.point.turns,
        &row.tick,
        &row.at,
        &row.reason,
    ];
    values.extend(values![digest]);
    Ok(values)
}

/// The columns of the values of a pin.
pub const PIN_COLUMNS: &str = "session, kind, message_loop, seq, loop, turns, tick, at, digest";

/// Returns the values of a pin, in the order of [`PIN_COLUMNS`].
pub fn pin_values<'a>(
    session: &'a SessionKey,
    row: &'a PinRow,
    digest: &'a [u8; 32],
) -> StoreResult<Vec<BoundValue<'a>>> {
    let mut values = values![
        session,
        if row.pinned { "pin" } else { "unpin" },
        &row.loop_key,
        &row.seq,
        &row.point.loop_key,
        &row.point.turns,
        &row.tick,
        &row.at,
    ];
    values.extend(values![digest]);
    Ok(values)
}

/// The columns of the values of a row of `hides`.
pub const HIDE_COLUMNS: &str = "session, kind, was, session_id, tick, at, digest";

/// Returns the values of a row of `hides`, in the order of [`HIDE_COLUMNS`].
pub fn hide_values<'a>(
    session: &'a SessionKey,
    row: &'a HideRow,
    digest: &'a [u8; 32],
) -> StoreResult<Vec<BoundValue<'a>>> {
    Ok(values![
        session,
        if row.hidden { "hide" } else { "unhide" },
        row.was.as_str(),
        row.session_id.as_str(),
        &row.tick,
        &row.at,
        digest,
    ])
}

/// The columns of the values of a manifest.
pub const MANIFEST_COLUMNS: &str = "manifest_id, session, loop, tick, recorded_at,
    older_loops, messages, tokens, bytes, counter, sha256, parts, digest";

/// Returns the values of a manifest, in the order of [`MANIFEST_COLUMNS`].
pub fn manifest_values<'a>(
    row: &'a ManifestRow,
    digest: &'a [u8; 32],
) -> StoreResult<Vec<BoundValue<'a>>> {
    let mut values = values![
        &row.manifest_id,
        &row.session,
        &row.leaf,
        &row.tick,
        &row.recorded_at,
        &row.older_loops,
        &row.size.messages,
        &row.size.tokens,
        &row.size.bytes,
        &row.counter,
        &row.sha256,
    ];
    values.push(BoundValue::Json(parts_json(row)?));
    values.extend(values![digest]);
    Ok(values)
}
