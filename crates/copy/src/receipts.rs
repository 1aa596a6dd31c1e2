//! The receipts of removals: each is copied with its session, or alone if the session is gone. Its content
//! stays the same, and it gets a new seal of the target, since the seal of the source names the session by a
//! key of the source.

use std::collections::HashSet;

use loopstore::extend::receipt::{Receipt, is_genuine};
use loopstore::extend::{ReceiptRow, SessionKey, SessionRow, StoreError, StoreResult, StoreWrite};
use loopstore::internal::{database, seal};
use loopstore::model::SessionId;

use crate::{CopyError, SessionCopier};

/// The identity of a receipt in both databases: its kind, the time it was opened, and its session.
type Name = (String, String, SessionId);

fn name_of(row: &ReceiptRow) -> Option<Name> {
    let session = Receipt::read(row)?.session;
    Some((row.kind.clone(), row.opened_at.clone(), session))
}

/// Copies the missing receipts, and records the sessions of the target that were removed in the source. A
/// receipt that is open or was changed is not copied.
pub(super) fn copy_receipts(copy: &mut SessionCopier<'_>) -> Result<(), CopyError> {
    let here = database::scan(copy.from, |scan| scan.receipts())?;
    if here.is_empty() {
        return Ok(());
    }
    let there = database::scan(copy.to, |scan| scan.receipts())?;
    let there: HashSet<Name> = there.iter().filter_map(name_of).collect();
    for row in &here {
        let Some(name) = name_of(row).filter(|_| is_genuine(row) == Some(true)) else {
            continue;
        };
        if there.contains(&name) {
            continue;
        }
        let id = name.2;
        let is_removal = matches!(row.kind.as_str(), "erase" | "prune");
        let is_here = database::scan(copy.from, |scan| Ok(scan.session(&id)?.is_some()))?;
        let came = database::removing(copy.to, |write| match write.session(&id)? {
            Some(session) if !is_removal => seal_again(write, session.key, row),
            Some(_) if is_removal && !is_here => Ok(false),
            _ if is_removal => seal_alone(write, row),
            _ => Ok(false),
        })?;
        match came {
            true => copy.report.receipts += 1,
            false if is_removal && !copy.report.erased.contains(&id) => copy.report.erased.push(id),
            false => {}
        }
    }
    Ok(())
}

/// Stores the receipt of a session that is gone. The key that the session would have had is used up, so that no
/// other session ever gets it.
///
/// # Errors
/// If the store fails.
pub fn seal_alone(write: &mut dyn StoreWrite, row: &ReceiptRow) -> StoreResult<bool> {
    let key = write.insert_session(&empty_session()?)?;
    let opened = write.open_receipt(key, &row.kind, &row.opened_at)?;
    write.remove_session(key)?;
    seal(write, (opened, key), row)
}

/// Stores a receipt of a session that exists.
///
/// # Errors
/// If the store fails.
pub fn seal_again(
    write: &mut dyn StoreWrite,
    session: SessionKey,
    row: &ReceiptRow,
) -> StoreResult<bool> {
    let opened = write.open_receipt(session, &row.kind, &row.opened_at)?;
    seal(write, (opened, session), row)
}

/// Returns the row of an empty session.
fn empty_session() -> StoreResult<SessionRow> {
    let id = SessionId::new(loopstore_model::clock::new_uuid().to_string());
    Ok(SessionRow {
        key: SessionKey::default(),
        session_id: id.map_err(|error| StoreError::Other(error.into()))?,
        agent_id: None,
        title: None,
        created_at: None,
        last_active_at: None,
        current_loop: None,
        tick: 0,
        source: None,
        project: None,
        meta: "{}".into(),
    })
}
