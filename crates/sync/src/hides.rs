//! Sessions that one database hid or showed again: they get the same id in the other one.

use loopstore::extend::{Database, HideRow, StoreRead, StoreResult, session};
use loopstore::internal::database;
use loopstore::model::SessionId;

use crate::document::SessionDocument;
use crate::document::SessionText;
use crate::peer::{PeerError, PeerResult};

/// Hides or shows a session as `text` of the other database says, if it is stored under an earlier id. Returns true if
/// it was.
pub(crate) fn follow(store: &dyn Database, text: &SessionText, id: &SessionId) -> PeerResult<bool> {
    let document = SessionDocument::parse(id, text).map_err(PeerError::Session)?;
    let hides: Vec<HideRow> = document
        .hides
        .iter()
        .map(|line| HideRow {
            hidden: line.hidden,
            was: line.was.clone(),
            session_id: line.session.clone(),
            tick: line.tick,
            at: line.at.clone(),
        })
        .collect();
    Ok(database::removing(store, |write| {
        for (at, hide) in hides.iter().enumerate().rev() {
            let Some(mut row) = write.session(&hide.was)? else {
                continue;
            };
            if write.hides(row.key)? != hides[..at] || !is_same(write, row.key, &document)? {
                return Ok(false);
            }
            for hide in &hides[at..] {
                let (key, tick) = (row.key, row.tick.max(hide.tick));
                session::apply_hide(write, row, hide, tick)?;
                row = write.session_by_key(key)?;
            }
            return Ok(true);
        }
        Ok(false)
    })?)
}

/// True if a stored session and a document begin with the same loop and message.
fn is_same(
    read: &dyn StoreRead,
    session: loopstore::extend::SessionKey,
    document: &SessionDocument,
) -> StoreResult<bool> {
    let (Some(stored), Some(one)) = (
        read.loops(session)?.into_iter().next(),
        document.loops.first(),
    ) else {
        return Ok(document.loops.is_empty());
    };
    if stored.loop_id != one.line.loop_id || stored.tick != one.line.tick {
        return Ok(false);
    }
    let mut digest = None;
    let first = 0..stored.totals.next_seq.min(1);
    read.messages(stored.key, first, &mut |row| {
        digest = Some(hex::encode(row.body.digest));
        Ok(std::ops::ControlFlow::Break(()))
    })?;
    let theirs = one.messages.first().map(|message| &message.digest);
    Ok(digest.is_none() || theirs == digest.as_ref())
}
