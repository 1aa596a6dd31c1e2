//! The repair of a session whose provider rejects its own compaction, or has lost it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use serde::Serialize;

use super::originals::{ChainText, OriginalsLocation, find_originals_before, replace_compaction};
use super::{
    CompactReport, CompactRequest, CompactTrigger, compact_session_loops, flips,
    record_appended_compactions,
};
use crate::context::{BuildError, BuildOptions, build_context_from_session, leaf_of, session_of};
use crate::model::{Role, SealingProvider, SessionId};
use crate::overlay::{SealedRecord, has_originals};
use crate::store::active_blocks::{self, ActiveBlocks, ChainView};
use crate::store::append::AppendedCompaction;
use crate::store::{
    self, LoopKey, RunRow, SessionStore, StoreError, StoreRead, StoreResult, decode,
};

/// The result of a repair.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// The session.
    pub session_id: String,
    /// The ids of the runs that were undone, newest first.
    pub undone: Vec<String>,
    /// The run that compacted the originals; `None` if nothing was undone, or if the originals need no compaction.
    pub run_id: Option<String>,
    /// The number of undone compactions whose originals were never stored: their content is lost.
    pub missing: u64,
    /// The location of the originals, if an earlier import has them on another chain.
    pub originals: Option<OriginalsLocation>,
    /// The report of the compaction of the originals.
    #[serde(skip)]
    pub compaction: Option<CompactReport>,
}

impl RepairReport {
    /// Originals that were found elsewhere are not missing.
    fn settle(&mut self) {
        self.missing = self
            .missing
            .saturating_sub(u64::from(self.originals.is_some()));
    }
}

/// Recovers a session whose provider rejects or has lost its own compaction. Undoes the compactions of
/// `request.policy.provider`, or of all providers if it is `None`, that are live from the leaf, and compacts the originals
/// as `request` specifies. If there is no such compaction, nothing is done.
///
/// If a transcript was rewritten so that it begins with the compaction, the originals are on another chain: earlier
/// messages of the session, or messages of an earlier import of the same file. They are compacted on that chain, and
/// the messages that the chain then shows replace the compaction.
///
/// # Errors
/// If the session or the loop does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::provider::{self, Form};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?"), Message::assistant("It will.")])?;
/// let compaction = serde_json::json!([{"type": "compaction", "encrypted_content": "…"}]);
/// chat.append(provider::read(Form::OpenAiResponses, &compaction)?)?;
/// let report = repair_session(store.database(), chat.id(), &CompactRequest::default())?;
/// assert_eq!((report.undone.len(), report.missing), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn repair_session(
    store: &dyn SessionStore,
    session: &SessionId,
    request: &CompactRequest,
) -> StoreResult<RepairReport> {
    let (mut report, mut has_orphans) = (RepairReport::default(), false);
    let found = store::read(store, |read| {
        let owner = session_of(read, session)?;
        let leaf = leaf_of(read, &owner, request.leaf.as_ref())?;
        report.session_id = owner.session_id.to_string();
        has_orphans = !orphans(read, leaf.key, request.policy.provider)?.is_empty();
        let found = live_provider_runs(read, leaf.key, request.policy.provider)?;
        if found.iter().any(|(_, has)| !has) {
            report.originals = find_originals_before(read, leaf.key)?;
        }
        Ok(found)
    })?;
    if request.dry_run || (found.is_empty() && !has_orphans) {
        report.undone = found.iter().map(|(run, _)| run.run_id.clone()).collect();
        report.missing = found.iter().filter(|(_, has)| !has).count() as u64;
        report.settle();
        return Ok(report);
    }
    let mut compact = CompactRequest {
        trigger: CompactTrigger::Length,
        ..request.clone()
    };
    compact.policy.provider = None;
    let from = report.originals.take();
    let text = from
        .as_ref()
        .map(|from| text_elsewhere(store, from, &compact))
        .transpose()?;
    store::write(store, |write| {
        let mut owner = session_of(write, session)?;
        let leaf = leaf_of(write, &owner, request.leaf.as_ref())?;
        // A compaction without a run gets one, which is undone with the others.
        let orphans = orphans(write, leaf.key, request.policy.provider)?;
        if !orphans.is_empty() {
            record_appended_compactions(write, store.counter(), &orphans)?;
            owner = session_of(write, session)?;
        }
        // Another program may have undone them meanwhile.
        let found = live_provider_runs(write, leaf.key, request.policy.provider)?;
        report.missing = found.iter().filter(|(_, has)| !has).count() as u64;
        report.undone = found.iter().map(|(run, _)| run.run_id.clone()).collect();
        let bare = found.iter().find(|(_, has)| !has).map(|(run, _)| run.key);
        for (run, _) in found {
            flips::write_flip(
                write,
                (&mut owner, &leaf),
                run.key,
                false,
                Some("repair".into()),
            )?;
        }
        if let (Some(run), Some(from), Some(text)) = (bare, &from, &text) {
            let strategy = request.strategy().name();
            let place = (leaf.key, run);
            let is_done = replace_compaction(
                write,
                store.counter(),
                place,
                (strategy, from),
                text.clone(),
            )?;
            report.originals = is_done.then(|| from.clone());
        }
        Ok(())
    })?;
    report.settle();
    let done = compact_session_loops(store, session, &compact)?;
    report.run_id = done.run.clone();
    report.compaction = Some(done);
    Ok(report)
}

/// Compacts originals on the chain that has them, and returns the text of its context.
fn text_elsewhere(
    store: &dyn SessionStore,
    from: &OriginalsLocation,
    request: &CompactRequest,
) -> StoreResult<ChainText> {
    let session =
        SessionId::new(&from.session_id).map_err(|error| StoreError::Damaged(error.to_string()))?;
    let there = CompactRequest {
        leaf: Some(from.loop_id.clone()),
        ..request.clone()
    };
    compact_session_loops(store, &session, &there)?;
    let options = BuildOptions {
        leaf: Some(from.loop_id.clone()),
        ..BuildOptions::default()
    };
    match build_context_from_session(store, &session, &options) {
        Ok(context) => Ok(ChainText::of(&context)),
        Err(BuildError::Store(error)) => Err(error),
        Err(error) => Err(StoreError::Invalid(error.to_string())),
    }
}

/// Returns the messages of a chain with a provider's compaction that no run records.
fn orphans(
    read: &dyn StoreRead,
    leaf: LoopKey,
    provider: Option<SealingProvider>,
) -> StoreResult<Vec<AppendedCompaction>> {
    let mut recorded = HashSet::new();
    read.runs(read.loop_by_key(leaf)?.session, &mut |run| {
        let record = SealedRecord::of(&run);
        recorded.extend(record.map(|record| (record.loop_id, record.seq)));
        Ok(ControlFlow::Continue(()))
    })?;
    let raw = ChainView {
        raw: true,
        ..ChainView::default()
    };
    let mut found = Vec::new();
    for link in active_blocks::chain(read, leaf, raw)? {
        read.messages(link.row.key, 0..link.end_seq, &mut |row| {
            if row.body.role != Role::Assistant || row.body.head.is_none() {
                return Ok(ControlFlow::Continue(()));
            }
            let (loop_key, seq) = (link.row.key, row.seq);
            let by = decode(read, row.body)?.last_compaction();
            let by = by.map(|(_, by)| by);
            let by = by.filter(|by| provider.is_none_or(|provider| provider == *by));
            if let Some(provider) = by
                && !recorded.contains(&(link.row.loop_id.clone(), seq))
            {
                found.push(AppendedCompaction {
                    loop_key,
                    seq,
                    provider,
                });
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(found)
}

/// Returns the compactions of providers that are live from a leaf, newest first, each with `true` if the originals
/// that it replaces are stored.
fn live_provider_runs(
    read: &dyn StoreRead,
    leaf: LoopKey,
    provider: Option<SealingProvider>,
) -> StoreResult<Vec<(RunRow, bool)>> {
    let mut found = Vec::new();
    ActiveBlocks::new(read, leaf, ChainView::default()).runs(&mut |walk, run| {
        let by = run.sealed_by();
        let is_wanted = by.is_some() && (provider.is_none() || by == provider);
        if is_wanted && walk.is_live(run.key)? {
            let mut has = true;
            for block in read.blocks_of_run(run.key)? {
                has &= has_originals(read, &block.core)?;
            }
            found.push((run, has));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}
