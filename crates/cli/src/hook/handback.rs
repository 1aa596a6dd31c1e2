//! What an agent is told of the record when it compacts. The only place that says so.

use std::ops::ControlFlow;

use loopstore::compact::handback;
use loopstore::compaction::Placed;
use loopstore::extend::active_blocks::{View, chain};
use loopstore::extend::compaction::{DigestInput, Digester};
use loopstore::extend::{self as store, Outcome, StoreResult, leaf_of, session_of};
use loopstore::{Database, Role, SessionId};

use crate::error::CliError;

/// What stands before what is handed back.
const INTRODUCTION: &str = "The conversation was just compacted. This is the working state from the record \
    kept by loopstore, which the summary may lack:\n\n";
/// The newest tokens of a session that are read: as many as take a part of the time that a hook has.
const MAX_READ_TOKENS: u64 = 1_000_000;
/// A session of fewer messages fits its summary.
const MIN_MESSAGES: usize = 10;

/// Returns what a session's agent is handed back after a compaction, in at most so many tokens; `None` if
/// there is nothing to say.
pub fn after_compaction(
    store: &dyn Database,
    session: &SessionId,
    max_tokens: u64,
) -> Result<Option<String>, CliError> {
    let spent = store.counter().text_tokens(INTRODUCTION);
    let left = max_tokens.saturating_sub(spent);
    // Claude Code writes its summary into the transcript only behind this hook: then nothing is known of it.
    let state = match is_recorded(store, session)? {
        true => handback(store, session, None, left)?.map(|back| back.text),
        false => digest(store, session, left, Digester::new().beside([]))?,
    };
    Ok(state.map(|state| format!("{INTRODUCTION}{state}")))
}

/// Returns the working state of a session in at most so many tokens, in place of a summary.
pub fn working_state(
    store: &dyn Database,
    session: &SessionId,
    max_tokens: u64,
) -> Result<Option<String>, CliError> {
    digest(store, session, max_tokens, Digester::new())
}

fn digest(
    store: &dyn Database,
    session: &SessionId,
    max_tokens: u64,
    mut digester: Digester,
) -> Result<Option<String>, CliError> {
    let parts = recorded(store, session)?;
    let messages = parts.iter().map(|part| match part {
        DigestInput::Messages { messages, .. } => messages.len(),
        DigestInput::Summary { .. } => 0,
    });
    if messages.sum::<usize>() < MIN_MESSAGES {
        return Ok(None);
    }
    parts.into_iter().for_each(|part| digester.add(part));
    let text = digester.finish(max_tokens, store.counter()).text;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Whether the agent's compaction stands in the record: nothing was said since the newest.
fn is_recorded(store: &dyn Database, session: &SessionId) -> StoreResult<bool> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        if owner.current_loop.is_none() {
            return Ok(false);
        }
        let leaf = leaf_of(read, &owner, None)?;
        let mut is_last = false;
        read.runs(owner.key, &mut |run| {
            if run.outcome != Outcome::Committed {
                return Ok(ControlFlow::Continue(()));
            }
            is_last = run.point.loop_key == leaf.key && run.point.turns == leaf.totals.turns;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(is_last)
    })
}

/// Reads the newest messages of a session's current chain as they were recorded, loop by loop.
fn recorded(store: &dyn Database, session: &SessionId) -> StoreResult<Vec<DigestInput>> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        if owner.current_loop.is_none() {
            return Ok(Vec::new());
        }
        let leaf = leaf_of(read, &owner, None)?;
        let raw = View {
            raw: true,
            ..View::default()
        };
        let links = chain(read, leaf.key, raw)?;
        let all: u64 = links.iter().map(|link| link.row.totals.tokens).sum();
        let skipped = all.saturating_sub(MAX_READ_TOKENS);
        let (mut parts, mut seen) = (Vec::new(), 0);
        let has_names = links.len() > 1;
        for link in links {
            if seen + link.row.totals.tokens <= skipped {
                seen += link.row.totals.tokens;
                continue;
            }
            let mut messages = Vec::new();
            read.messages(link.row.key, 0..link.end_seq, &mut |row| {
                seen += row.body.tokens;
                if let (Some(turn), true) = (row.turn, row.body.role != Role::Extension)
                    && seen > skipped
                {
                    messages.push(Placed {
                        turn,
                        seq: row.seq,
                        message: store::decode(read, row.body)?,
                    });
                }
                Ok(ControlFlow::Continue(()))
            })?;
            let of = has_names.then(|| link.row.loop_id.to_string());
            parts.push(DigestInput::Messages { of, messages });
        }
        Ok(parts)
    })
}
