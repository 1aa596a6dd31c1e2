//! Contexts that are compacted for the next model call, and compactions on request.

use loopstore::{CancelFlag, CompactRequest, CompactTrigger, Policy, SessionHandle};
use serde_json::json;

use crate::errors::CallError;
use crate::hooks::with_hooks;
use crate::messages;

/// Returns the context of the next model call in a form, and a description of it, both as JSON.
pub fn prepare(
    session: &SessionHandle,
    form: &str,
    for_length: bool,
    cancel: CancelFlag,
) -> Result<(Vec<u8>, Vec<u8>), CallError> {
    let trigger = match for_length {
        true => CompactTrigger::Length,
        false => CompactTrigger::Policy,
    };
    let prepared = with_hooks(&cancel.clone(), || Ok(session.prepare_by(trigger, cancel)?))?;
    let about = json!({
        "loop_id": prepared.context.leaf,
        "tokens": prepared.context.tokens,
        "bytes": prepared.context.bytes,
        "faults": prepared.context.faults,
        "open_calls": prepared.context.open_calls(),
        "mended": messages::mended(form, &prepared.context)?,
        "cleared": prepared.cleared,
        "not_cleared": prepared.not_cleared,
        "compactions": prepared.compactions,
        "was_compacted": prepared.was_compacted(),
    });
    Ok((
        messages::write(form, &prepared.context)?,
        serde_json::to_vec(&about)?,
    ))
}

/// Compacts with a policy, the session's own if `None`; returns the report as JSON.
pub fn compact(
    session: &SessionHandle,
    force: bool,
    dry_run: bool,
    policy: Option<Policy>,
    cancel: CancelFlag,
) -> Result<Vec<u8>, CallError> {
    let policy = policy.as_ref().unwrap_or_else(|| session.policy());
    let request = CompactRequest {
        trigger: match force {
            true => CompactTrigger::Force,
            false => CompactTrigger::Policy,
        },
        dry_run,
        cancel,
        ..policy.request()
    };
    let report = with_hooks(&request.cancel, || Ok(session.compact(&request)?))?;
    Ok(serde_json::to_vec(&report)?)
}
