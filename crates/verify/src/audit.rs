//! Audit chains: each entry continues the one before, the chain ends where its session records the end, and its
//! digests are exactly those of the stored rows.

use loopstore::extend::audit::AuditEnd;
use loopstore::extend::{
    SessionKey, StoreResult,
    audit::{AuditChain, AuditKind},
};
use loopstore::internal::AuditedDigests;

use super::report::{ProblemKind, short};
use super::verify::Verify;

/// Reads the chain of a session and records the digests in it.
pub(super) fn session(
    verify: &mut Verify<'_>,
    key: SessionKey,
    place: &str,
) -> StoreResult<AuditedDigests> {
    let mut audited = AuditedDigests::default();
    if verify.audits {
        let chain = verify.scan.audit_chain(key);
        if let Some(chain) = verify.found.readable(place, chain)? {
            walk(verify, key, place, &chain, &mut audited);
        }
    }
    Ok(audited)
}

/// Checks a chain entry by entry.
pub(super) fn walk(
    verify: &mut Verify<'_>,
    session: SessionKey,
    place: &str,
    chain: &AuditChain,
    audited: &mut AuditedDigests,
) {
    let mut end = AuditEnd::default();
    for row in &chain.rows {
        verify.found.checked.audit += 1;
        let next = end.with(session, &row.entry);
        let (seq, kind) = (row.end.seq, row.entry.kind.as_str());
        if row.end != next {
            let detail = format!("row {seq} of its audit chain, of a {kind}, does not follow");
            verify.found.add(ProblemKind::Audit, place, detail);
        }
        if !audited.apply(&row.entry) {
            let detail = format!("row {seq} of its audit chain changes a {kind} that is not there");
            verify.found.add(ProblemKind::Audit, place, detail);
        }
        end = row.end;
    }
    if end != chain.end {
        let (ends, should) = (end.seq, chain.end.seq);
        let (found, named) = (short(&end.chain), short(&chain.end.chain));
        let detail =
            format!("its audit chain ends at row {ends} ({found}), not at {should} ({named})");
        verify.found.add(ProblemKind::Audit, place, detail);
    }
}

/// Checks that the chain contains a stored row.
pub(super) fn take(
    verify: &mut Verify<'_>,
    audited: &mut AuditedDigests,
    kind: AuditKind,
    digest: [u8; 32],
    place: &str,
) {
    if verify.audits && !audited.take(kind, digest) {
        let detail = "it is not in the audit chain";
        verify.found.add(ProblemKind::Audit, place, detail);
    }
}

/// Reports the rows that the chain contains and the store does not.
pub(super) fn missing(verify: &mut Verify<'_>, audited: &AuditedDigests, place: &str) {
    for (kind, digest, count) in audited.rest() {
        let (kind, digest) = (kind.as_str(), short(&digest));
        for _ in 0..count {
            let detail = format!("a {kind} of its audit chain is missing ({digest})");
            verify.found.add(ProblemKind::Audit, place, detail);
        }
    }
}
