//! Loops and their turns.

use crate::store::codec::to_json;
use crate::store::columns::Columns;
use crate::store::values::signed;
use crate::store::{
    CallSite, LoopCore, LoopKey, LoopMeta, LoopProgress, LoopRow, LoopTotals, ReportedTokens,
    StoreResult, TurnRow,
};

/// Reads a loop from its columns.
pub fn loop_row(row: &impl Columns) -> StoreResult<LoopRow> {
    Ok(LoopRow {
        core: loop_core(row, row.get("key")?)?,
        parent_loop_id: row.get("parent_loop_id")?,
        kind: row.get("kind")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        tick: row.get("tick")?,
        progress: loop_progress(row)?,
    })
}

/// Reads the core of a loop whose key is known.
pub fn loop_core(row: &impl Columns, key: LoopKey) -> StoreResult<LoopCore> {
    Ok(LoopCore {
        key,
        session: row.get("session")?,
        loop_id: row.get("loop_id")?,
        parent: row.get("parent")?,
        parent_turn: row.get("parent_turn")?,
        parent_seq: row.get("parent_seq")?,
        status: row.get("status")?,
        totals: LoopTotals {
            next_seq: row.get("next_seq")?,
            sealed_seq: row.get("sealed_seq")?,
            turns: row.get("turns")?,
            complete: row.get("complete")?,
            messages: row.get("messages")?,
            tokens: row.get("tokens")?,
            bytes: row.get("bytes")?,
            generation: row.get("generation")?,
            reported: reported(row)?,
        },
        edits: row.get("edits")?,
    })
}

fn reported(row: &impl Columns) -> StoreResult<Option<ReportedTokens>> {
    let seq: Option<u32> = row.get("reported_seq")?;
    let tokens: Option<u64> = row.get("reported_tokens")?;
    let both = seq.zip(tokens);
    Ok(both.map(|(seq, tokens)| ReportedTokens { seq, tokens }))
}

/// Reads the progress of a loop from its columns.
pub fn loop_progress(row: &impl Columns) -> StoreResult<LoopProgress> {
    Ok(LoopProgress {
        system_tokens: row.get("system_tokens")?,
        last_turn_index: row.get("last_turn_index")?,
        open_calls: row.json("open_calls")?,
        chain: row.get("chain")?,
    })
}

/// Returns the stored form of the tokens that the provider of the last answer reported.
pub fn reported_tokens(totals: &LoopTotals) -> StoreResult<Option<i64>> {
    totals
        .reported
        .map(|reported| signed(reported.tokens))
        .transpose()
}

/// Returns the stored form of the calls without a result.
pub fn open_calls_json(progress: &LoopProgress) -> StoreResult<Option<String>> {
    if progress.open_calls.is_empty() {
        return Ok(None);
    }
    to_json(&progress.open_calls).map(Some)
}

/// Reads the metadata of a loop from its columns.
pub fn loop_meta(row: &impl Columns) -> StoreResult<LoopMeta> {
    Ok(LoopMeta {
        meta: row.get("meta")?,
        history: row.get("history")?,
    })
}

/// Reads a turn from its columns.
pub fn turn_row(row: &impl Columns) -> StoreResult<TurnRow> {
    Ok(TurnRow {
        turn: row.number("turn")?,
        first_seq: row.get("first_seq")?,
        messages: row.get("messages")?,
        prompts: row.get("prompts")?,
        tokens: row.get("tokens")?,
        bytes: row.get("bytes")?,
        turn_index: row.get("turn_index")?,
        answered: row.get("answered")?,
        answers: call_sites(row)?,
        tick: row.get("tick")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
    })
}

/// Reads a turn and the calls of other turns that it answers.
pub fn turn_answers(row: &impl Columns) -> StoreResult<(u32, Vec<CallSite>)> {
    Ok((row.number("turn")?, call_sites(row)?))
}

fn call_sites(row: &impl Columns) -> StoreResult<Vec<CallSite>> {
    let pairs: Vec<(i64, u32)> = row.json("answers")?;
    let site = |(key, turn)| CallSite {
        loop_key: LoopKey(key),
        turn,
    };
    Ok(pairs.into_iter().map(site).collect())
}

/// Returns the stored form of the calls that a turn answers.
pub fn answers_json(sites: &[CallSite]) -> StoreResult<Option<String>> {
    if sites.is_empty() {
        return Ok(None);
    }
    let pair = |site: &CallSite| (site.loop_key.0, site.turn);
    let pairs: Vec<(i64, u32)> = sites.iter().map(pair).collect();
    to_json(&pairs).map(Some)
}
