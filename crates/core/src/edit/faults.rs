//! The faults that edits, or their undo, would bring into a context.

use std::ops::ControlFlow;

use crate::context::{ContextFault, faults_of, originals_of};
use crate::store::active_blocks::{ActiveBlocks, ChainView, PendingEdits};
use crate::store::{EditRefusal, LoopRow, StoreRead, StoreResult};

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
    let mut links = Vec::new();
    let mut walk = ActiveBlocks::new(read, leaf.key, raw).with_pending(pending);
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
pub fn check_faults(before: &[ContextFault], after: &[ContextFault]) -> StoreResult<()> {
    let count = |list: &[ContextFault], of: &ContextFault| {
        let is_same =
            |other: &&ContextFault| other.kind == of.kind && other.tool_call_id == of.tool_call_id;
        list.iter().filter(is_same).count()
    };
    match after
        .iter()
        .find(|fault| count(after, fault) > count(before, fault))
    {
        None => Ok(()),
        Some(fault) => Err(EditRefusal::Fault {
            kind: format!("{:?}", fault.kind),
            message: fault.message,
        }
        .into()),
    }
}
