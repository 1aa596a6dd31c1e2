//! Edits of messages, and their undo.

use crate::compact::{FlipReport, FlipRequest, undo_edits};
use crate::model::{LoopId, SessionId};
use crate::store::{self, SessionStore, StoreResult};

use loopstore_core::edit::runs_to_undo;
pub use loopstore_core::edit::{
    ClearToolResults, EditFilter, EditReport, EditRequest, EditTarget, EditedMessage,
    SkippedMessage, edit,
};

/// Restores messages or parts of messages: undoes the live runs of edits that have these targets. A run that edits only
/// other parts of a message stays.
///
/// # Errors
/// [`StoreError::EditRefused`](crate::StoreError::EditRefused) if no live edit has these targets, or if one of the runs
/// has other targets too. Also if the session or the loop does not exist, or the store fails.
pub fn restore(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<&LoopId>,
    targets: &[EditTarget],
) -> StoreResult<Vec<FlipReport>> {
    store::write(store, |write| {
        let runs = runs_to_undo(write, session, leaf, targets)?;
        let flip = FlipRequest {
            leaf: leaf.cloned(),
            ..FlipRequest::default()
        };
        undo_edits(write, session, &flip, &runs)
    })
}
