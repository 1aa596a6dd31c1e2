//! Which loop a handle goes on from.

use std::sync::{Arc, Mutex, PoisonError};

use crate::model::{LoopId, SessionId};
use crate::store::append::end_of_line;
use crate::store::{LoopKey, SessionKey, StoreRead, StoreResult};

/// The line of loops that a handle goes along: the session's current loop when it is first used, then that
/// loop's default children. Clones of a handle share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LoopLineage(Arc<Mutex<Option<LastSeen>>>);

/// The loop that a line had come to.
#[derive(Clone, Debug)]
struct LastSeen {
    key: LoopKey,
    id: LoopId,
}

/// A session, and the loop in which a line of it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) session: SessionKey,
    /// `None`: the session has no loop yet.
    pub(super) leaf: Option<LoopKey>,
}

impl LoopLineage {
    /// A line that has come to a loop.
    pub(super) fn at(key: LoopKey, id: LoopId) -> Self {
        let line = Self::default();
        line.reached(key, id);
        line
    }

    /// Notes where the line has come to.
    pub(super) fn reached(&self, key: LoopKey, id: LoopId) {
        // What is kept is whole also after a panic of another thread.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(LastSeen { key, id });
    }

    /// Finds the session and where the line ends in it; `None` if there is no such session.
    pub(super) fn find(
        &self,
        read: &dyn StoreRead,
        id: &SessionId,
    ) -> StoreResult<Option<Position>> {
        let Some((session, current)) = read.current(id)? else {
            let row = read.session(id)?;
            return Ok(row.map(|row| Position {
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
        Ok(Some(Position {
            session,
            leaf: Some(leaf),
        }))
    }
}
