//! Sessions that were hidden or unhidden since they were copied: they get the id that they have in the source,
//! so that their former id is free in the target too.

use loopstore::extend::{
    self as store, LoopRow, SessionRow, SessionStore, StoreRead, StoreResult, session,
};
use loopstore::model::SessionId;

/// Hides or unhides a session in the target, as the source did.
pub(super) fn follow(
    from: &dyn SessionStore,
    to: &dyn SessionStore,
    id: &SessionId,
) -> StoreResult<()> {
    let found = store::read(from, |read| {
        let Some(row) = read.session(id)? else {
            return Ok(None);
        };
        let hides = read.hides(row.key)?;
        match hides.is_empty() {
            true => Ok(None),
            false => Ok(Some((hides, Beginning::of(read, &row)?))),
        }
    })?;
    let Some((hides, beginning)) = found else {
        return Ok(());
    };
    let is_there = store::read(to, |read| Ok(read.session(id)?.is_some()))?;
    if is_there {
        return Ok(());
    }
    store::write(to, |write| {
        // The newest id of the session that is in the target decides which rows are missing there.
        for (at, hide) in hides.iter().enumerate().rev() {
            let Some(row) = write.session(&hide.was)? else {
                continue;
            };
            let is_behind = write.hides(row.key)? == hides[..at];
            if is_behind && Beginning::of(write, &row)?.is_of(&beginning) {
                return apply_hides(write, row, &hides[at..]);
            }
        }
        Ok(())
    })
}

fn apply_hides(
    write: &mut dyn store::StoreWrite,
    mut row: SessionRow,
    hides: &[store::HideRow],
) -> StoreResult<()> {
    for hide in hides {
        let tick = row.tick.max(hide.tick);
        session::apply_hide(write, row.clone(), hide, tick)?;
        row = write.session_by_key(row.key)?;
    }
    Ok(())
}

/// The beginning of a session: equal in a copy of it, and different in every other session.
#[derive(PartialEq)]
struct Beginning {
    created_at: Option<String>,
    /// Its first loop, and the digest of the first message in it.
    first: Option<(String, i64, Option<[u8; 32]>)>,
}

impl Beginning {
    fn of(read: &dyn StoreRead, row: &SessionRow) -> StoreResult<Self> {
        let first = read.loops(row.key)?.into_iter().next();
        let first = first.map(|first| {
            let digest = first_digest(read, &first)?;
            Ok::<_, store::StoreError>((first.core.loop_id.to_string(), first.tick, digest))
        });
        Ok(Self {
            created_at: row.created_at.clone(),
            first: first.transpose()?,
        })
    }

    /// True if a session with this beginning may be an earlier state of one that began as `later`.
    fn is_of(&self, later: &Self) -> bool {
        let loop_is = |own: &(String, i64, Option<[u8; 32]>)| {
            later.first.as_ref().is_some_and(|later| {
                (&own.0, own.1) == (&later.0, later.1) && (own.2.is_none() || own.2 == later.2)
            })
        };
        self.created_at == later.created_at && self.first.as_ref().is_none_or(loop_is)
    }
}

fn first_digest(read: &dyn StoreRead, row: &LoopRow) -> StoreResult<Option<[u8; 32]>> {
    let mut digest = None;
    read.messages(row.key, 0..row.totals.next_seq.min(1), &mut |message| {
        digest = Some(message.body.digest);
        Ok(std::ops::ControlFlow::Break(()))
    })?;
    Ok(digest)
}
