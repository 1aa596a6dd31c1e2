//! Manifests: each context is derived again from the state at its point in time.

use loopstore::extend::{ManifestKey, ManifestRow, StoreResult, audit::AuditKind, digest};
use loopstore::internal::{derive, was_replaced};

use super::audit;
use super::report::{ProblemKind, Subject, short};
use super::sessions::SessionScope;
use super::verify::Verify;

/// Checks the manifests of a session.
pub(super) fn check(verify: &mut Verify<'_>, scope: &mut SessionScope) -> StoreResult<()> {
    let keys = verify.scan.manifest_keys(scope.key);
    let keys = verify.found.readable(&scope.place, keys)?;
    for key in keys.into_iter().flatten() {
        check_manifest(verify, scope, key)?;
    }
    Ok(())
}

fn check_manifest(
    verify: &mut Verify<'_>,
    scope: &mut SessionScope,
    key: ManifestKey,
) -> StoreResult<()> {
    verify.found.checked.manifests += 1;
    verify.found.subject = Subject::Manifest(key);
    let place = format!("{}, manifest with key {}", scope.place, key.0);
    let row = verify.scan.manifest_and_digest(key);
    let Some((row, stored)) = verify.found.readable(&place, row)? else {
        return Ok(());
    };
    let place = format!("{}, manifest {}", scope.place, row.manifest_id);
    audit::take(
        verify,
        &mut scope.audited,
        AuditKind::Manifest,
        stored,
        &place,
    );
    let derived = digest::manifest(&row);
    if stored != derived {
        let detail = format!("{} should be {}", short(&stored), short(&derived));
        verify.found.add(ProblemKind::Digest, &place, detail);
        return Ok(());
    }
    if row.tick > scope.tick || row.tick < 0 {
        let detail = format!("tick {} is outside of 0 to {}", row.tick, scope.tick);
        verify.found.add(ProblemKind::Tick, &place, detail);
    }
    check_leaf(verify, scope, &place, &row)?;
    check_context(verify, scope, &place, &row)
}

fn check_leaf(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    place: &str,
    row: &ManifestRow,
) -> StoreResult<()> {
    let leaf = verify.scan.loop_by_key(row.leaf);
    let leaf = verify.found.readable(place, leaf)?;
    if let Some(leaf) = leaf.filter(|leaf| leaf.session != scope.key) {
        let detail = format!("its loop {} is in another session", leaf.loop_id);
        verify.found.add(ProblemKind::Manifest, place, detail);
    }
    Ok(())
}

/// Builds the context at that point in time again and compares.
fn check_context(
    verify: &mut Verify<'_>,
    scope: &SessionScope,
    place: &str,
    row: &ManifestRow,
) -> StoreResult<()> {
    let outline = derive(verify.scan, row);
    let Some(outline) = verify.found.readable(place, outline)? else {
        return Ok(());
    };
    let sha256 = outline.sha256();
    let is_same = outline.parts == row.parts && sha256 == row.sha256;
    // Pruned blocks are missing from the new context.
    if is_same || verify.has_receipt(scope.key, &["prune"]) {
        return Ok(());
    }
    let replaced = was_replaced(verify.scan, row);
    if verify.found.readable(place, replaced)? != Some(false) {
        return Ok(());
    }
    let detail = if outline.parts == row.parts {
        let (stored, derived) = (short(&row.sha256), short(&sha256));
        format!("the hash of its messages is {stored} and should be {derived}")
    } else {
        let (named, found) = (row.size.messages, outline.size.messages);
        format!("it names {named} messages, the context of that moment has {found} or others")
    };
    verify.found.add(ProblemKind::Manifest, place, detail);
    Ok(())
}
