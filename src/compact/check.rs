//! The checks of a draft and a candidate before anything is written: sections in order, pairs together,
//! signed thinking where a provider requires it, and no fault that the originals do not have.

use std::ops::ControlFlow;

use super::candidate::CompactionCandidate;
use super::snapshot::Snapshot;
use crate::compaction::{Draft, StrategyError, Summary};
use crate::context::{
    ContextFault, faults_of, introduced, messages_with, originals_of, shown_messages,
};
use crate::model::{AgentMessage, Content, Layout, Message};
use crate::overlay::turn_seqs;
use crate::store::active_blocks::{ChainView, chain};
use crate::store::{self, NewBlock, SessionStore, StoreResult};

/// Checks a draft of a loop against the plan: its sections, its summary by itself, and each replaced
/// message against its original.
pub(super) fn check_draft(
    store: &dyn SessionStore,
    snapshot: &Snapshot,
    depth: usize,
    through: u32,
    planned: &Layout,
    draft: &Draft,
) -> Result<(), StrategyError> {
    check_sections(&draft.layout(), planned, snapshot, depth).map_err(StrategyError::Failed)?;
    if let Some((_, summary)) = &draft.compacted {
        check_summary(summary)?;
    }
    let Some(recent) = draft
        .recent
        .as_ref()
        .filter(|recent| !recent.replaced.is_empty())
    else {
        return Ok(());
    };
    let (key, current) = (
        snapshot.chain.links[depth].row.key,
        snapshot.current_cycle(depth),
    );
    let edits = snapshot.chain.links[depth].edits.as_deref();
    let is_edited = |seq: u32| edits.is_some_and(|edits| edits.at(seq).is_some());
    store::read(store, |read| {
        let section = turn_seqs(read, key, recent.turns, through)?;
        // A block shortens no message with edits.
        let replaced = recent.replaced.iter().filter(|(seq, _)| !is_edited(*seq));
        for (seq, shown) in replaced {
            if !section.contains(seq) {
                return Ok(Err(format!("message {seq} is not in the section")));
            }
            let mut stands = true;
            read.messages(key, *seq..seq.saturating_add(1), &mut |row| {
                let original = store::decode(read, row.body)?;
                stands = stands_for(&original, shown.as_ref(), *seq >= current);
                Ok(ControlFlow::Break(()))
            })?;
            if !stands {
                return Ok(Err(format!(
                    "the replacement of message {seq} has not its role, its calls or its thinking"
                )));
            }
        }
        Ok(Ok(()))
    })?
    .map_err(StrategyError::Failed)
}

/// Checks that sections follow each other from the first turn to the last planned one, and separate no call
/// from its result.
fn check_sections(
    layout: &Layout,
    planned: &Layout,
    snapshot: &Snapshot,
    depth: usize,
) -> Result<(), String> {
    if layout == planned {
        return Ok(());
    }
    let mut next = 0;
    for turns in layout.sections().into_iter().flatten() {
        if turns.first != next || turns.last < turns.first {
            let first = turns.first;
            return Err(format!(
                "a section begins at turn {first} where {next} follows"
            ));
        }
        next = turns.end();
    }
    if next != planned.end() {
        let end = planned.end();
        return Err(format!("the sections end at turn {next} of {end}"));
    }
    let answers = snapshot.chain.facts[depth].answers.iter();
    for answer in answers.filter(|answer| answer.call.depth == depth) {
        let (call, result) = (answer.call.turn, answer.turn);
        if layout.replaces(result) != layout.replaces(call) {
            return Err(format!(
                "a call in turn {call} is parted from its result in {result}"
            ));
        }
    }
    Ok(())
}

/// Checks that a summary has nothing that a provider would reject: a call without its
/// result, a result without its call.
pub(super) fn check_summary(summary: &Summary) -> Result<(), StrategyError> {
    let failed = |reason| Err(StrategyError::Failed(reason));
    if summary.messages.iter().any(|m| m.message().is_none()) {
        return failed("a summary holds an extension message, which no context shows".to_owned());
    }
    match faults_of(&summary.messages, false).first() {
        None => Ok(()),
        Some(fault) => {
            let (at, kind) = (fault.message, fault.kind);
            failed(format!("message {at} of a summary has a fault: {kind:?}"))
        }
    }
}

/// True if a message may replace another one: it has the same role and the same
/// calls or result, and with `signed` the same signed thinking. No message replaces an extension.
fn stands_for(original: &AgentMessage, shown: Option<&AgentMessage>, signed: bool) -> bool {
    let marks = |message: Option<&AgentMessage>| {
        let inner = message.and_then(AgentMessage::message)?;
        let ids: Vec<String> = match inner {
            Message::ToolResult(result) => vec![result.tool_call_id.clone()],
            _ => inner.tool_calls().map(|call| call.id.clone()).collect(),
        };
        let thinking: Vec<Content> = inner
            .content()
            .iter()
            .filter_map(|block| match block {
                block if signed && block.is_signed_thinking() => Some(block.clone()),
                _ => None,
            })
            .collect();
        Some((ids, thinking))
    };
    match (marks(Some(original)), shown) {
        (None, _) => false,
        (Some((ids, thinking)), None) => ids.is_empty() && thinking.is_empty(),
        (own, Some(shown)) => shown.role() == original.role() && own == marks(Some(shown)),
    }
}

/// Returns a fault that the blocks of a candidate would introduce. The originals are read only if the
/// context has faults at all.
pub(super) fn introduced_fault(
    store: &dyn SessionStore,
    snapshot: &Snapshot,
    candidate: &CompactionCandidate,
) -> StoreResult<Option<String>> {
    let fresh: Vec<&NewBlock> = candidate
        .blocks
        .iter()
        .map(|placed| &placed.block)
        .collect();
    let in_flight = !snapshot.leaf().row.status.is_ended();
    store::read(store, |read| {
        let shown = messages_with(read, &candidate.chain, &fresh)?;
        if faults_of(&shown, in_flight).is_empty() {
            return Ok(None);
        }
        let raw = ChainView {
            raw: true,
            ..ChainView::default()
        };
        let originals = originals_of(read, &chain(read, snapshot.leaf, raw)?)?;
        // A fault that an overlay of another tool brought in before is not a fault of this run.
        let mut now = Vec::new();
        for link in chain(read, snapshot.leaf, ChainView::default())? {
            now.extend(
                shown_messages(read, &link, true)?
                    .into_iter()
                    .map(|(_, shown)| shown),
            );
        }
        let known = introduced(&originals, &now, in_flight);
        let is_known = |fault: &ContextFault| {
            let same =
                |a: &ContextFault| a.kind == fault.kind && a.tool_call_id == fault.tool_call_id;
            known.iter().any(same)
        };
        let new = introduced(&originals, &shown, in_flight);
        let new = new.into_iter().find(|fault| !is_known(fault));
        Ok(new.map(|fault| format!("{:?} at message {}", fault.kind, fault.message)))
    })
}
