//! Kept source files: each has all its parts, and the name of each part is the digest of its bytes.

use loopstore::extend::source::SourceError;
use loopstore::extend::source::write_out;
use loopstore::extend::{SourceKey, StoreError, StoreResult};

use super::report::{ProblemKind, Subject};
use super::verify::Verify;

/// Checks every kept file.
pub(super) fn check(verify: &mut Verify<'_>) -> StoreResult<()> {
    let keys = verify.scan.source_keys();
    let keys = verify.found.readable("sources", keys)?;
    for key in keys.into_iter().flatten() {
        check_source(verify, key)?;
    }
    Ok(())
}

fn check_source(verify: &mut Verify<'_>, key: SourceKey) -> StoreResult<()> {
    verify.found.checked.sources += 1;
    verify.found.subject = Subject::Source(key);
    let place = format!("source {}", key.0);
    let row = verify.scan.source_row(key);
    let Some(row) = verify.found.readable(&place, row)? else {
        return Ok(());
    };
    match write_out(verify.scan, &row, &mut std::io::sink()) {
        Ok(_) => Ok(()),
        Err(SourceError::Store(StoreError::Damaged(detail))) => {
            verify.found.add(ProblemKind::Source, place, detail);
            Ok(())
        }
        Err(SourceError::Store(error)) => Err(error),
        Err(SourceError::Io(error)) => Err(StoreError::Other(Box::new(error))),
    }
}
