//! Edits: messages, or parts of them, that contexts show in another form or not at all.
//!
//! An edit is a row of a run and changes no message. A run of edits counts, is undone and redone, and is read as of a
//! moment like a run of compaction. [`edit`] resolves its targets against the chain of a leaf: the other halves of
//! pairs and the content that a provider bound to a part are added there, so that a read needs no more than the rows.
//!
//! `targets` and `old_results` find the messages, `resolve` adds what belongs to them, `rows` makes the rows and their
//! sizes. `applied` writes the edits that a provider or an agent reports, which `sent` and `select` find.

mod applied;
mod chain_messages;
mod clear_tool_results;
mod faults;
mod old_results;
mod report;
mod request;
mod resolve;
mod restore;
mod rows;
mod select;
mod sent;
mod targets;

use crate::context::{BuildOptions, Chain, leaf_of, session_of};
use crate::model::{EditAction, SessionId, Time};
use crate::overlay;
use crate::store::active_blocks::{ActiveBlocks, ChainLink, ChainView, PendingEdits};
use crate::store::{
    self, BlockKey, EDIT_TRIGGER, EditRefusal, LoopRow, Outcome, Point, RunKey, RunRow, SessionRow,
    SessionStore, Size, StoreError, StoreRead, StoreResult, StoreWrite, codec,
};

pub use applied::{
    AppliedRun, ImportedEdits, ReportedEdits, by_reports, record_applied_edits, record_report,
    unreadable_note,
};
use chain_messages::ChainMessages;
pub use clear_tool_results::ClearToolResults;
use faults::check_faults;
pub use faults::{check_flipped, faults_with};
pub use report::{EditReport, EditedMessage, SkippedMessage};
pub use request::{EditFilter, EditRequest, EditTarget};
use resolve::Selection;
pub use restore::runs_to_undo;

/// Edits messages of the chain of a leaf: removes, clears or replaces them or parts of them in contexts. The messages
/// themselves are unchanged, and an undo of the run takes the edits back.
///
/// The result of a removed call is removed too, and the call of a removed result, wherever on the chain they are.
/// Signed thinking and items that only a provider can read are removed from an answer of which a part is edited.
///
/// # Errors
/// [`StoreError::EditRefused`] if a target cannot be edited or nothing is left to edit. Also if the session or the loop
/// does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let call = Message::assistant("I look.").with_tool_call("c1", "forecast", Json::parse("{}")?);
/// chat.append([Message::user("Will it rain?"), call])?;
/// chat.append([Message::tool_result("c1", "rain, ".repeat(900)), Message::assistant("Yes.")])?;
/// let before = chat.context()?.messages;
/// let target = EditTarget::Call("c1".into());
/// let report = chat.edit(&EditRequest::new(EditAction::Cleared, [target]))?;
/// assert!(report.tokens_after < report.tokens_before);
/// assert_eq!(chat.context()?.messages.len(), before.len());
/// chat.undo()?;
/// assert_eq!(chat.context()?.messages, before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn edit(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &EditRequest,
) -> StoreResult<EditReport> {
    if !request.dry_run {
        return store::write(store, |write| apply(write, store, session, request));
    }
    // A dry run is written and taken back, so that its figures are those of the contexts.
    let mut report = None;
    let done = store.write(Box::new(|write| {
        report = Some(apply(write, store, session, request)?);
        Err(StoreError::Invalid("a dry run".into()))
    }));
    match (report, done) {
        (Some(mut report), _) => {
            report.run_id = None;
            Ok(report)
        }
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(StoreError::Invalid(
            "the store did not run the write".into(),
        )),
    }
}

fn apply(
    write: &mut dyn StoreWrite,
    store: &dyn SessionStore,
    session: &SessionId,
    request: &EditRequest,
) -> StoreResult<EditReport> {
    let owner = session_of(write, session)?;
    let leaf = leaf_of(write, &owner, request.leaf.as_ref())?;
    let before = ShownContext::load(write, (&owner, &leaf), None)?;
    let resolved = {
        let mut messages = ChainMessages::load(write, &owner, leaf.key)?;
        let selection = Selection::of(&mut messages, request)?;
        rows::make(&mut messages, selection, (&owner, store.counter()))?
    };
    if resolved.rows.is_empty() {
        return Err(refused(EditRefusal::NoMatch {
            skipped: resolved.report.skipped.len(),
        }));
    }
    let faults = faults_with(write, &leaf, None)?;
    let mut run = run_of(
        write,
        (&owner, &leaf, store.counter().name()),
        request,
        before.size,
    )?;
    overlay::begin_edits(write, &mut run, &resolved.rows)?;
    let pending = PendingEdits {
        run: &run,
        rows: &resolved.rows,
    };
    let after = ShownContext::load(write, (&owner, &leaf), Some(pending))?;
    if after.size.messages == 0 {
        return Err(refused(EditRefusal::Everything));
    }
    let freed = before.size.tokens.saturating_sub(after.size.tokens);
    if freed < request.at_least {
        let at_least = request.at_least;
        return Err(refused(EditRefusal::TooLittle { freed, at_least }));
    }
    check_faults(&faults, &faults_with(write, &leaf, Some(pending))?)?;
    let stale = before.stale(write, &after)?;
    run.after = after.size;
    write.close_run(&run, None)?;
    Ok(EditReport {
        run_id: Some(run.run_id),
        stale,
        tokens_before: before.size.tokens,
        tokens_after: after.size.tokens,
        messages_before: before.size.messages,
        messages_after: after.size.messages,
        ..resolved.report
    })
}

fn refused(why: EditRefusal) -> StoreError {
    StoreError::EditRefused(why)
}

/// The context of a leaf as numbers.
struct ShownContext {
    size: Size,
    /// The active blocks with their runs.
    blocks: Vec<(BlockKey, RunKey)>,
}

impl ShownContext {
    /// Reads the context of a leaf with the edits of a run that is still open.
    fn load(
        read: &dyn StoreRead,
        (owner, leaf): (&SessionRow, &LoopRow),
        pending: Option<PendingEdits<'_>>,
    ) -> StoreResult<Self> {
        let (view, options) = (ChainView::default(), BuildOptions::default());
        let walk = ActiveBlocks::new(read, leaf.key, view).with_pending(pending);
        let shown = Chain::load_active_along(read, owner.key, walk, &options)?;
        let block = |link: &ChainLink| link.block.as_ref().map(|block| (block.key, block.run));
        let blocks = shown.links.iter().filter_map(block);
        Ok(Self {
            size: shown.size(),
            blocks: blocks.collect(),
        })
    }

    /// Returns the ids of the runs of which a block is not active any more.
    fn stale(&self, read: &dyn StoreRead, after: &Self) -> StoreResult<Vec<String>> {
        let gone = self
            .blocks
            .iter()
            .filter(|block| !after.blocks.contains(block));
        let mut runs: Vec<RunKey> = gone.map(|(_, run)| *run).collect();
        runs.sort_unstable();
        runs.dedup();
        let id = |run: RunKey| Ok(read.run_by_key(run)?.run_id);
        runs.into_iter().map(id).collect()
    }
}

/// The configuration of a run of edits.
#[derive(serde::Serialize)]
struct EditConfig<'a> {
    action: EditAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// Returns the run of an edit at a leaf, with the counter of the store.
fn run_of(
    read: &dyn StoreRead,
    (owner, leaf, counter): (&SessionRow, &LoopRow, &str),
    request: &EditRequest,
    before: Size,
) -> StoreResult<RunRow> {
    let config = EditConfig {
        action: request.action,
        reason: request.reason.as_deref(),
    };
    Ok(RunRow {
        key: RunKey::default(),
        session: owner.key,
        run_id: crate::clock::new_uuid().to_string(),
        point: Point {
            loop_key: leaf.key,
            turns: leaf.totals.complete,
        },
        tick: 0,
        trigger: EDIT_TRIGGER.into(),
        strategy: request.strategy().into(),
        // Edits are no round of compaction.
        round: overlay::next_round(read, owner.key, leaf.key)?.saturating_sub(1),
        outcome: Outcome::Committed,
        fallback: None,
        error: None,
        scope: "none".into(),
        older_loops: "rollup".into(),
        counter: counter.to_owned(),
        before,
        after: before,
        started_at: Time::now().as_str().to_owned(),
        duration_ms: 0,
        config: codec::to_json(&config)?,
        usage: None,
        plan: [0; 32],
        record: None,
        events: None,
        reached: None,
    })
}
