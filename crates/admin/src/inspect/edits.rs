//! The edits of runs, with the turns of their messages.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use loopstore::context::AsOf;
use loopstore::extend::{
    self as store, EditRow, LoopRow, RunKey, SessionStore, StoreRead, StoreResult,
    active_blocks::{ChainView, chain},
    leaf_of, moment_of, session_of,
};
use loopstore::model::{EditAction, LoopId, SessionId};
use serde::Serialize;

/// The edits of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunEdits {
    /// The run.
    pub run_id: String,
    /// The time of the run, as ISO-8601 text.
    pub at: String,
    /// The reason, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The edits in order.
    pub edits: Vec<RecordedEdit>,
}

/// An edit: messages that are removed, or a part of one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedEdit {
    /// The action, which says what contexts show instead.
    pub action: EditAction,
    /// The loop.
    pub loop_id: LoopId,
    /// The turn of the first message.
    pub from_turn: u32,
    /// The turn of the last message.
    pub to_turn: u32,
    /// The sequence of the first message.
    pub from_seq: u32,
    /// The sequence of the last message.
    pub to_seq: u32,
    /// The part of the message; `None` if messages are removed as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// Tokens of the messages or the part as recorded.
    pub tokens_before: u64,
    /// Tokens of what is shown instead.
    pub tokens_after: u64,
}

/// Returns the edits that are live in the context of a leaf, or of a moment, oldest run first.
///
/// # Errors
/// If the session, the loop or the moment does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::*;
/// use loopstore_admin::inspect::live_edits;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?"), Message::assistant("Yes.")])?;
/// chat.append([Message::user("And tomorrow?"), Message::assistant("No.")])?;
/// # let loop_id = chat.context()?.leaf;
/// let mut request = EditRequest::remove([EditTarget::Turns(loop_id, 0..=0)]);
/// request.reason = Some("asked by mistake".into());
/// chat.edit(&request)?;
/// let found = live_edits(store.database(), chat.id(), None, None)?;
/// assert_eq!(found[0].reason.as_deref(), Some("asked by mistake"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn live_edits(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<&LoopId>,
    as_of: Option<&AsOf>,
) -> StoreResult<Vec<RunEdits>> {
    store::read(store, |read| {
        let owner = session_of(read, session)?;
        let (leaf, view) = match as_of {
            Some(as_of) => moment_of(read, &owner, as_of)?,
            None => (leaf_of(read, &owner, leaf)?, ChainView::default()),
        };
        let runs = live_runs(read, &leaf, view)?;
        runs.into_iter().map(|run| edits_of(read, run)).collect()
    })
}

/// Returns the runs whose edits are live on a chain, in order.
pub(super) fn live_runs(
    read: &dyn StoreRead,
    leaf: &LoopRow,
    view: ChainView,
) -> StoreResult<BTreeSet<RunKey>> {
    let whole = ChainView { raw: true, ..view };
    let links = chain(read, leaf.key, whole)?;
    let edits = links.iter().filter_map(|link| link.edits.as_ref());
    Ok(edits.flat_map(|edits| edits.runs()).copied().collect())
}

/// Returns the edits of a run.
pub(super) fn edits_of(read: &dyn StoreRead, run: RunKey) -> StoreResult<RunEdits> {
    let row = read.run_by_key(run)?;
    Ok(RunEdits {
        reason: row.edit_reason(),
        edits: recorded(read, run)?,
        run_id: row.run_id,
        at: row.started_at,
    })
}

/// Returns the edits of a run with the turns of their messages.
pub(crate) fn recorded(read: &dyn StoreRead, run: RunKey) -> StoreResult<Vec<RecordedEdit>> {
    let rows = read.edits_of_run(run)?;
    rows.iter().map(|row| with_turns(read, row)).collect()
}

fn with_turns(read: &dyn StoreRead, row: &EditRow) -> StoreResult<RecordedEdit> {
    let turn_of = |seq: u32| -> StoreResult<u32> {
        let mut turn = 0;
        read.sizes(row.loop_key, seq..seq.saturating_add(1), &mut |message| {
            turn = message.turn.unwrap_or(0);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(turn)
    };
    Ok(RecordedEdit {
        action: row.action,
        loop_id: read.loop_by_key(row.loop_key)?.core.loop_id,
        from_turn: turn_of(row.seqs.0)?,
        to_turn: turn_of(row.seqs.1)?,
        from_seq: row.seqs.0,
        to_seq: row.seqs.1,
        part: row.part.map(|part| part.number),
        tokens_before: row.before.tokens,
        tokens_after: row.after.tokens,
    })
}
