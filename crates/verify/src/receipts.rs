//! Receipts: none is open or changed, and each explains content that is missing.

use std::collections::BTreeSet;

use loopstore::extend::audit::RECEIPTS;
use loopstore::extend::receipt::is_genuine;
use loopstore::extend::{
    ReceiptRow, SessionKey, StoreResult,
    audit::AuditKind,
    receipt::{self, Receipt},
};
use loopstore::internal::AuditedDigests;
use loopstore::model::{LoopId, Session, SessionId};

use super::audit;
use super::report::{ProblemKind, Subject};
use super::verify::Verify;

/// A receipt, and its row.
type ReadReceipt<'a> = (Receipt, &'a ReceiptRow);

/// Checks the receipts and returns them.
pub(super) fn check(verify: &mut Verify<'_>) -> StoreResult<Vec<ReceiptRow>> {
    let rows = verify.scan.receipts();
    let rows = verify.found.readable("receipts", rows)?.unwrap_or_default();
    let mut audited = AuditedDigests::default();
    if verify.audits {
        let chains = verify.scan.receipt_chains();
        let chains = verify.found.readable("receipts", chains)?;
        for chain in chains.into_iter().flatten() {
            audit::walk(verify, RECEIPTS, "receipts", &chain, &mut audited);
        }
    }
    for row in &rows {
        verify.found.checked.receipts += 1;
        verify.found.subject = Subject::Receipt(row.key);
        let place = format!("receipt {}", row.key);
        if row.closed_at.is_none() {
            let detail = format!(
                "{} of session {} is still open, so its content is not protected",
                row.kind, row.session.0
            );
            verify.found.add(ProblemKind::Receipt, place, detail);
        } else if is_genuine(row) != Some(true) {
            let detail = "it does not say what it said when it was closed";
            verify.found.add(ProblemKind::Receipt, place, detail);
        } else if let Some(digest) = receipt::digest(row) {
            audit::take(verify, &mut audited, AuditKind::Receipt, digest, &place);
        }
    }
    audit::missing(verify, &audited, "receipts");
    Ok(rows)
}

/// Reports the sessions that refer to erased or pruned ones.
pub(super) fn explain(verify: &mut Verify<'_>) -> StoreResult<()> {
    let gone: Vec<ReadReceipt<'_>> = verify
        .receipts
        .iter()
        .filter(|row| matches!(row.kind.as_str(), "erase" | "prune"))
        .filter_map(|row| Some((Receipt::read(row)?, row)))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let keys = verify.scan.session_keys();
    let keys = verify.found.readable("sessions", keys)?;
    for key in keys.into_iter().flatten() {
        explain_session(verify, key, &gone)?;
    }
    Ok(())
}

fn explain_session(
    verify: &mut Verify<'_>,
    key: SessionKey,
    gone: &[ReadReceipt<'_>],
) -> StoreResult<()> {
    // A session that cannot be read is reported elsewhere.
    let Ok(row) = verify.scan.session_by_key(key) else {
        return Ok(());
    };
    let mut named = BTreeSet::new();
    if let Ok(session) = serde_json::from_str::<Session>(&row.meta) {
        named.extend(
            session
                .parent_spawn_ref
                .map(|spawn| spawn.parent_session_id),
        );
    }
    for key in verify.scan.loop_keys(key).unwrap_or_default() {
        if let Ok(row) = verify.scan.loop_by_key(key)
            && row.parent.is_none()
        {
            named.extend(row.parent_loop_id.and_then(|id| owner_of(gone, &id)));
        }
        let meta = verify.scan.loop_meta(key).map(|meta| meta.meta);
        let record = meta.ok().and_then(|text| loop_of(&text));
        let refs = record.into_iter().flat_map(|record| record.child_loop_refs);
        named.extend(refs.filter_map(|one| one.child_session_id));
    }
    named.remove(&row.session_id);
    for name in named {
        let receipt = gone
            .iter()
            .rev()
            .find(|(receipt, _)| receipt.session == name);
        let Some((_, receipt)) = receipt else {
            continue;
        };
        if verify
            .scan
            .session(&name)
            .is_ok_and(|found| found.is_some())
        {
            continue;
        }
        let (kind, at) = (
            &receipt.kind,
            receipt.closed_at.as_deref().unwrap_or_default(),
        );
        let done = if kind == "prune" { "pruned" } else { "erased" };
        verify.found.explained.push(format!(
            "session {} names session {name}, {done} at {at} (receipt {})",
            row.session_id, receipt.key
        ));
    }
    Ok(())
}

/// Returns the session with which a loop was removed.
fn owner_of(gone: &[ReadReceipt<'_>], id: &LoopId) -> Option<SessionId> {
    let has_it = |receipt: &Receipt| receipt.loops.iter().any(|one| one.loop_id == *id);
    let found = gone.iter().rev().find(|(receipt, _)| has_it(receipt));
    found.map(|(receipt, _)| receipt.session.clone())
}

fn loop_of(text: &str) -> Option<loopstore::model::LoopRecord> {
    serde_json::from_str(text).ok()
}
