//! Sessions that one database hid or showed again: they get the same id in the other one.

use loopstore::extend::scan::StoreScan;
use loopstore::extend::{Database, HideRow, SessionRow, StoreRead, StoreResult, session};
use loopstore::internal::database;
use loopstore::model::SessionId;

use crate::document::SessionDocument;
use crate::document::SessionText;
use crate::peer::{PeerError, PeerResult};

fn hides_of(document: &SessionDocument) -> Vec<HideRow> {
    let lines = document.hides.iter().map(|line| HideRow {
        hidden: line.hidden,
        was: line.was.clone(),
        session_id: line.session.clone(),
        tick: line.tick,
        at: line.at.clone(),
    });
    lines.collect()
}

/// Returns the stored session with one of these ids, or that had one of them before it was hidden.
pub(crate) fn known_as(read: &dyn StoreRead, ids: &[&SessionId]) -> StoreResult<Vec<SessionRow>> {
    let mut found = Vec::new();
    for id in ids {
        found.extend(read.session(id)?);
        for key in read.renamed_from(id)? {
            found.push(read.session_by_key(key)?);
        }
    }
    Ok(found)
}

/// Returns the id under which a session of the other database is stored, if it was hidden or shown again since.
///
/// # Errors
/// If both databases hid it or showed it again, differently.
pub(crate) fn later_id(
    store: &dyn Database,
    document: &SessionDocument,
) -> PeerResult<Option<SessionId>> {
    let hides = hides_of(document);
    let id = &document.line.session;
    let mut ids = vec![id];
    ids.extend(hides.iter().map(|hide| &hide.was));
    let mut found = None;
    database::scan(store, |scan: &dyn StoreScan| {
        for row in known_as(scan, &ids)? {
            if row.session_id != *id && is_same(scan, row.key, document)? {
                found = Some((row.session_id, scan.hides(row.key)?));
            }
        }
        Ok(())
    })?;
    match found {
        Some((id, stored)) if stored.starts_with(&hides) => Ok(Some(id)),
        Some((other, stored)) if !hides.starts_with(&stored) => Err(PeerError::Session(format!(
            "it was hidden in both databases; it is `{other}` in the other one: show it again in one of them"
        ))),
        _ => Ok(None),
    }
}

/// Hides or shows a session as `text` of the other database says, if it is stored under an earlier id. Returns true if
/// it was.
pub(crate) fn follow(store: &dyn Database, text: &SessionText, id: &SessionId) -> PeerResult<bool> {
    let document = SessionDocument::parse(id, text).map_err(PeerError::Session)?;
    let hides = hides_of(&document);
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

/// True if a stored session and a document begin with the same loop and message. A state without the message may be
/// an earlier one of the other.
fn is_same(
    read: &dyn StoreRead,
    session: loopstore::extend::SessionKey,
    document: &SessionDocument,
) -> StoreResult<bool> {
    let (Some(stored), Some(one)) = (
        read.loops(session)?.into_iter().next(),
        document.loops.first(),
    ) else {
        let created = read.session_by_key(session)?.created_at;
        return Ok(created == document.line.created_at);
    };
    let line = &one.line;
    let begin = (&stored.loop_id, stored.tick, &stored.started_at);
    if begin != (&line.loop_id, line.tick, &line.started_at) {
        return Ok(false);
    }
    let mut digest = None;
    let first = 0..stored.totals.next_seq.min(1);
    read.messages(stored.key, first, &mut |row| {
        digest = Some(hex::encode(row.body.digest));
        Ok(std::ops::ControlFlow::Break(()))
    })?;
    let theirs = one.messages.first().map(|message| &message.digest);
    Ok(digest.is_none() || theirs.is_none() || theirs == digest.as_ref())
}
