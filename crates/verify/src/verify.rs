//! The check of a whole store.
//!
//! All rows are read in one snapshot, session by session and loop by loop; of a loop only the current message,
//! its turn and the calls without a result are in memory.

use loopstore::extend::{
    Database, ReceiptRow, SessionKey, StoreError, StoreResult, scan::StoreScan,
};
use loopstore::internal::{database, missing_from_index};
use loopstore::{SqliteStore, TokenCounter};
use loopstore_files::copies::unfinished_copies;

use super::cuts::ChainCuts;
use super::report::{Findings, Problem, ProblemKind, Subject, VerifyReport};
use super::{blobs, receipts, sessions, sources};

/// The number of orphaned rows that are listed of each table.
const MAX_STRAYS: u32 = 100;

/// The state that all checks share.
pub(super) struct Verify<'a> {
    pub(super) scan: &'a dyn StoreScan,
    pub(super) counter: &'a dyn TokenCounter,
    pub(super) receipts: &'a [ReceiptRow],
    /// True if the audit chains are checked.
    pub(super) audits: bool,
    pub(super) cuts: ChainCuts,
    pub(super) found: Findings,
}

impl Verify<'_> {
    /// Returns true if content of a session was removed with a receipt of one of these kinds.
    pub(super) fn has_receipt(&self, session: SessionKey, kinds: &[&str]) -> bool {
        let fits = |receipt: &ReceiptRow| {
            receipt.session == session && kinds.contains(&receipt.kind.as_str())
        };
        self.receipts.iter().any(fits)
    }
}

/// Derives every digest, total, order and range again and compares them with what is stored.
///
/// Damage of any kind is listed in the report. Nothing is repaired.
///
/// # Errors
/// If the store cannot be read for another reason than damage, for example because it is busy.
///
/// # Examples
/// ```
/// let store = loopstore::Store::in_memory()?;
/// let report = loopstore_verify::verify(store.database())?;
/// assert!(report.ok, "{:?}", report.problems);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify(store: &dyn Database) -> StoreResult<VerifyReport> {
    let mut found = Findings::default();
    own_checks(&mut found, ProblemKind::Sqlite, store.integrity_problems())?;
    own_checks(&mut found, ProblemKind::Schema, store.schema_problems())?;
    found.index = match store.index_problems() {
        Err(StoreError::Damaged(detail)) => vec![detail],
        lines => lines?,
    };
    if found.index.is_empty() {
        found.index = match missing_from_index(store) {
            // Reported below, if the record is damaged.
            Err(StoreError::Damaged(_)) => Vec::new(),
            Err(StoreError::IndexDamaged(detail)) => vec![detail],
            Err(StoreError::ForeignSchema(_)) => Vec::new(),
            lines => lines?,
        };
    }
    let mut kept = Some(found);
    let scanned = database::scan(store, |scan| {
        let mut verify = Verify {
            scan,
            counter: store.counter(),
            receipts: &[],
            audits: true,
            cuts: ChainCuts::default(),
            found: kept.take().unwrap_or_default(),
        };
        let receipts = receipts::check(&mut verify)?;
        verify.receipts = &receipts;
        sessions::check(&mut verify)?;
        blobs::check(&mut verify)?;
        sources::check(&mut verify)?;
        receipts::explain(&mut verify)?;
        strays(&mut verify)?;
        Ok(verify.found)
    });
    let left = |report: VerifyReport| VerifyReport {
        // A file that cannot be read this far is reported as damaged.
        unscrubbed: SqliteStore::downcast(store)
            .is_some_and(|store| store.needs_scrub().unwrap_or_default()),
        copies: (SqliteStore::downcast(store).and_then(SqliteStore::path))
            .map(unfinished_copies)
            .unwrap_or_default(),
        ..report
    };
    match scanned {
        Ok(found) => Ok(left(found.into_report())),
        // The snapshot itself failed: the header or the schema is damaged.
        Err(StoreError::Damaged(detail)) => {
            let mut found = kept.unwrap_or_default();
            found.add(ProblemKind::Sqlite, "database", detail);
            Ok(left(found.into_report()))
        }
        // A view in place of a table may be endless.
        Err(error @ StoreError::ForeignSchema(_)) => {
            let mut found = Findings::default();
            own_checks(&mut found, ProblemKind::Schema, store.schema_problems())?;
            let detail = format!("the record could not be read in time: {error}");
            found.add(ProblemKind::Schema, "database", detail);
            Ok(found.into_report())
        }
        Err(error) => Err(error),
    }
}

/// Checks one session as [`verify`] does, except the source files that it was imported from.
///
/// # Errors
/// If the store cannot be read for another reason than damage.
pub fn verify_session(
    scan: &dyn StoreScan,
    counter: &dyn TokenCounter,
    session: SessionKey,
) -> StoreResult<VerifyReport> {
    let receipts = scan.receipts()?;
    let mut verify = Verify {
        scan,
        counter,
        receipts: &receipts,
        audits: true,
        cuts: ChainCuts::default(),
        found: Findings::default(),
    };
    sessions::check_session(&mut verify, session)?;
    Ok(verify.found.into_report())
}

/// The part of a database that is checked for faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CheckedPart {
    Receipts,
    Blobs,
    Session(SessionKey),
    Sources,
}

/// Checks a part of a database as [`verify`] does, except the audit chains, and returns each problem with its row.
///
/// # Errors
/// If the store cannot be read for another reason than damage.
pub fn faults(
    scan: &dyn StoreScan,
    counter: &dyn TokenCounter,
    part: CheckedPart,
) -> StoreResult<Vec<(Subject, Problem)>> {
    let receipts = scan.receipts()?;
    let mut verify = Verify {
        scan,
        counter,
        receipts: &receipts,
        audits: false,
        cuts: ChainCuts::default(),
        found: Findings::default(),
    };
    match part {
        CheckedPart::Receipts => receipts::check(&mut verify).map(drop)?,
        CheckedPart::Blobs => blobs::check(&mut verify)?,
        CheckedPart::Session(key) => sessions::check_session(&mut verify, key)?,
        CheckedPart::Sources => sources::check(&mut verify)?,
    }
    Ok(verify.found.into_faults())
}

/// Adds the results of the backend's own checks.
fn own_checks(
    found: &mut Findings,
    kind: ProblemKind,
    lines: StoreResult<Vec<String>>,
) -> StoreResult<()> {
    match lines {
        Ok(lines) => lines
            .iter()
            .for_each(|line| found.add(kind, "database", line)),
        Err(StoreError::Damaged(detail)) => found.add(ProblemKind::Sqlite, "database", detail),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn strays(verify: &mut Verify<'_>) -> StoreResult<()> {
    let strays = verify.scan.strays(MAX_STRAYS);
    let strays = verify.found.readable("database", strays)?;
    for place in strays.into_iter().flatten() {
        let detail = "the row belongs to nothing";
        verify.found.add(ProblemKind::Stray, place, detail);
    }
    Ok(())
}
