//! Finding a session, a loop or a run by its id or the beginning of it.
//!
//! An id that is given whole wins over longer ids that begin with it.

use std::ops::ControlFlow;

use super::{LoopRow, RunRow, SessionKey, SessionRow, StoreError, StoreRead, StoreResult};
use crate::model::{LoopId, SessionId};

/// How many ids an error lists.
const LISTED: usize = 4;

/// Returns the session with this id, or the only one whose id begins with it.
///
/// # Errors
/// If there is none, or several begin with it.
pub fn session(read: &dyn StoreRead, given: &str) -> StoreResult<SessionRow> {
    if let Ok(id) = SessionId::new(given)
        && let Some(row) = read.session(&id)?
    {
        return Ok(row);
    }
    let fits = read
        .sessions()?
        .into_iter()
        .filter(|row| row.session_id.as_str().starts_with(given))
        .collect();
    only(
        given,
        fits,
        |row| row.session_id.to_string(),
        StoreError::NoSession,
    )
}

/// Returns the loop of a session with this id, or the only one whose id begins with it.
///
/// # Errors
/// If there is none, or several begin with it.
pub fn loop_of(read: &dyn StoreRead, session: SessionKey, given: &str) -> StoreResult<LoopRow> {
    if let Ok(id) = LoopId::new(given)
        && let Some(row) = read.loop_by_id(session, &id)?
    {
        return Ok(row);
    }
    let fits = read
        .loops(session)?
        .into_iter()
        .filter(|row| row.loop_id.as_str().starts_with(given))
        .collect();
    only(
        given,
        fits,
        |row| row.loop_id.to_string(),
        StoreError::NoLoop,
    )
}

/// Returns the run of a session with this id, or the only one whose id begins with it.
///
/// # Errors
/// If there is none, or several begin with it.
pub fn run(read: &dyn StoreRead, session: SessionKey, given: &str) -> StoreResult<RunRow> {
    let (mut whole, mut fits) = (None, Vec::new());
    read.runs(session, &mut |row| {
        if row.run_id == given {
            whole = Some(row);
            return Ok(ControlFlow::Break(()));
        }
        if row.run_id.starts_with(given) {
            fits.push(row);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match whole {
        Some(row) => Ok(row),
        None => only(given, fits, |row| row.run_id.clone(), StoreError::NoRun),
    }
}

/// Returns the only row that fits.
fn only<T>(
    given: &str,
    mut fits: Vec<T>,
    id: impl Fn(&T) -> String,
    none: impl Fn(String) -> StoreError,
) -> StoreResult<T> {
    if given.is_empty() {
        return Err(none(String::new()));
    }
    match (fits.len(), fits.pop()) {
        (1, Some(row)) => Ok(row),
        (_, None) => Err(none(given.to_owned())),
        (count, Some(last)) => {
            fits.push(last);
            let mut ids: Vec<String> = fits.iter().map(id).collect();
            ids.sort();
            ids.truncate(LISTED);
            Err(StoreError::Ambiguous {
                given: given.to_owned(),
                count,
                ids,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Session;
    use crate::store::sqlite::SqliteStore;
    use crate::store::{self, session::create_session};

    fn found(store: &SqliteStore, given: &str) -> StoreResult<String> {
        store::read(store, |read| {
            session(read, given).map(|row| row.session_id.to_string())
        })
    }

    #[test]
    fn a_whole_id_wins_over_longer_ones_and_a_beginning_must_be_unique() {
        let store = SqliteStore::in_memory().unwrap();
        store::write(&store, |write| {
            for id in ["ab", "abc", "abd", "x%", "xy"] {
                let session = Session::new(SessionId::new(id).unwrap(), "agent");
                create_session(write, &session, None, None)?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(found(&store, "ab").unwrap(), "ab");
        assert_eq!(found(&store, "abd").unwrap(), "abd");
        assert_eq!(found(&store, "xy").unwrap(), "xy");
        assert_eq!(
            found(&store, "a").unwrap_err().to_string(),
            "`a` fits 3 ids: `ab`, `abc`, `abd`; give more of it"
        );
        for missing in ["", "%", "abcd", "x_"] {
            let error = found(&store, missing).unwrap_err();
            assert!(matches!(error, StoreError::NoSession(_)), "{error}");
        }
    }
}
