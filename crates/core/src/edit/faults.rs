//! The faults that edits, or their undo, would bring into a context.

use std::ops::ControlFlow;

use crate::context::{ContextFault, faults_of, originals_of};
use crate::store::active_blocks::{ActiveBlocks, ChainView, PendingEdits};
use crate::store::{EditRefusal, LoopRow, StoreError, StoreRead, StoreResult};

/// Returns the faults of the originals of a chain, with the edits of a run that is still open.
///
/// # Errors
/// If the store fails.
pub fn faults_with(
    read: &dyn StoreRead,
    leaf: &LoopRow,
    pending: Option<PendingEdits<'_>>,
) -> StoreResult<Vec<ContextFault>> {
    let raw = ChainView {
        raw: true,
        ..ChainView::default()
    };
    faults_along(
        read,
        leaf,
        ActiveBlocks::new(read, leaf.key, raw).with_pending(pending),
    )
}

fn faults_along(
    read: &dyn StoreRead,
    leaf: &LoopRow,
    mut walk: ActiveBlocks<'_>,
) -> StoreResult<Vec<ContextFault>> {
    let mut links = Vec::new();
    walk.run(&mut |link| {
        links.push(link);
        Ok(ControlFlow::Continue(()))
    })?;
    links.reverse();
    Ok(faults_of(
        &originals_of(read, &links)?,
        !leaf.status.is_ended(),
    ))
}

/// Fails if there is a fault that was not there before.
///
/// # Errors
/// [`EditRefusal::Fault`] if there is one.
pub(super) fn check_faults(before: &[ContextFault], after: &[ContextFault]) -> StoreResult<()> {
    match new_fault(after, &[before]) {
        None => Ok(()),
        Some(fault) => Err(refusal(fault)),
    }
}

/// Fails if the originals of a chain, with the edits that are live now, have a fault that they had neither before nor
/// as they were recorded: the record can always be brought back, whatever its faults.
///
/// # Errors
/// [`EditRefusal::Fault`] if there is one. Also if the store fails.
pub fn check_flipped(
    read: &dyn StoreRead,
    leaf: &LoopRow,
    before: &[ContextFault],
) -> StoreResult<()> {
    let after = faults_with(read, leaf, None)?;
    if new_fault(&after, &[before]).is_none() {
        return Ok(());
    }
    let recorded = ChainView {
        raw: true,
        without_edits: true,
        ..ChainView::default()
    };
    let walk = ActiveBlocks::new(read, leaf.key, recorded);
    let recorded = faults_along(read, leaf, walk)?;
    match new_fault(&after, &[before, &recorded]) {
        None => Ok(()),
        Some(fault) => Err(refusal(fault)),
    }
}

/// Returns the first fault that is in none of the known lists as often.
fn new_fault<'a>(after: &'a [ContextFault], known: &[&[ContextFault]]) -> Option<&'a ContextFault> {
    let count = |list: &[ContextFault], of: &ContextFault| {
        let is_same =
            |other: &&ContextFault| other.kind == of.kind && other.tool_call_id == of.tool_call_id;
        list.iter().filter(is_same).count()
    };
    after.iter().find(|fault| {
        let most = known.iter().map(|list| count(list, fault)).max();
        count(after, fault) > most.unwrap_or(0)
    })
}

fn refusal(fault: &ContextFault) -> StoreError {
    StoreError::EditRefused(EditRefusal::Fault {
        kind: format!("{:?}", fault.kind),
        message: fault.message,
    })
}
