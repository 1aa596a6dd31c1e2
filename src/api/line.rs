//! The line of loops of a handle.

use std::sync::{Arc, Mutex, PoisonError};

use crate::model::{LoopId, Session, SessionId};
use crate::store::append::end_of_line;
use crate::store::{LoopKey, SessionKey, StoreRead, StoreResult, StoreWrite, session};

/// The line of loops that a handle follows: the session's current loop when it is first used, then that
/// loop's default children. Clones of a handle share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LoopLineage(Arc<Mutex<Option<LastSeen>>>);

/// The last loop of a line when it was read last.
#[derive(Clone, Debug)]
struct LastSeen {
    key: LoopKey,
    id: LoopId,
}

/// The session of a line, and its last loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineEnd {
    pub(super) session: SessionKey,
    /// `None` if the session has no loop yet.
    pub(super) leaf: Option<LoopKey>,
}

impl LoopLineage {
    /// Returns a line that ends in a loop.
    pub(super) fn at(key: LoopKey, id: LoopId) -> Self {
        let line = Self::default();
        line.reached(key, id);
        line
    }

    /// Sets the last loop of the line.
    pub(super) fn reached(&self, key: LoopKey, id: LoopId) {
        // The value is consistent also after a panic of another thread.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(LastSeen { key, id });
    }

    /// Finds the session and the last loop of the line; `None` if there is no such session.
    pub(super) fn find(
        &self,
        read: &dyn StoreRead,
        id: &SessionId,
    ) -> StoreResult<Option<LineEnd>> {
        let Some((session, current)) = read.current(id)? else {
            let row = read.session(id)?;
            return Ok(row.map(|row| LineEnd {
                session: row.key,
                leaf: None,
            }));
        };
        let seen = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let leaf = match seen {
            Some(seen) if seen.key != current => match read.loop_by_id(session, &seen.id)? {
                Some(row) => end_of_line(read, row.key)?,
                // The session was erased and began again.
                None => current,
            },
            _ => current,
        };
        Ok(Some(LineEnd {
            session,
            leaf: Some(leaf),
        }))
    }
}

/// Begins a session, which has no loop yet.
pub(super) fn begin_session(write: &mut dyn StoreWrite, id: &SessionId) -> StoreResult<LineEnd> {
    let session = Session {
        agent_id: None,
        ..Session::new(id.clone(), "")
    };
    Ok(LineEnd {
        session: session::create_session(write, &session, None, None)?,
        leaf: None,
    })
}
