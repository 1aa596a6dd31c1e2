//! Blobs: the name of each is the digest of its bytes.

use loopstore::extend::StoreResult;
use sha2::{Digest as _, Sha256};

use super::report::{ProblemKind, Subject, short};
use super::verify::Verify;

/// Checks every blob.
pub(super) fn check(verify: &mut Verify<'_>) -> StoreResult<()> {
    let mut after = i64::MIN;
    loop {
        let next = verify.scan.next_blob(after);
        let Some(Some(key)) = verify.found.readable("blobs", next)? else {
            return Ok(());
        };
        check_blob(verify, key)?;
        after = key;
    }
}

fn check_blob(verify: &mut Verify<'_>, key: i64) -> StoreResult<()> {
    verify.found.checked.blobs += 1;
    verify.found.subject = Subject::Blob(key);
    let place = format!("blob {key}");
    let row = verify.scan.blob_row(key);
    let Some(row) = verify.found.readable(&place, row)? else {
        return Ok(());
    };
    let derived: [u8; 32] = Sha256::digest(&row.data).into();
    let (found, kind) = (&mut verify.found, ProblemKind::Blob);
    let (stored, derived) = (short(&row.sha256), short(&derived));
    found.compare(kind, &place, "its name", &stored, &derived);
    let length = row.data.len() as u64;
    found.compare(kind, &place, "its length", &row.bytes, &length);
    Ok(())
}
