//! Finds a session, a loop, a run or a blob by its id or the beginning of its id.
//!
//! A whole id takes precedence over longer ids that begin with it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::codec::unhex;
use super::{LoopRow, RunRow, SessionKey, SessionRow, StoreError, StoreRead, StoreResult};
use crate::model::{LoopId, SessionId};

/// The number of ids that an error lists.
const LISTED: usize = 4;
/// The number of ids that are read at once.
const PAGE: u32 = 1_000;

/// Returns the session with this id, or the only one whose id begins with it. A session comes before its
/// own sub-agents, whose ids begin with its id.
///
/// # Errors
/// If there is none, or several begin with it.
///
/// # Examples
/// ```
/// use loopstore::extend as store;
/// use loopstore::extend::lookup;
/// use loopstore::*;
///
/// # use loopstore::extend::{append, session};
/// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
/// # let new = Session::new(id.clone(), "agent");
/// # let mut first = LoopRecord::new(LoopId::generate(), None);
/// # first.status = LoopStatus::Completed;
/// # store::write(&store, |write| {
/// #     let key = session::create_session(write, &new, None, None)?;
/// #     let loop_key = session::create_loop(write, key, &first)?;
/// #     let message = AgentMessage::from(Message::user("Will it rain?"));
/// #     append::append(write, loop_key, vec![message.into()], &HeuristicTokenCounter)
/// # })?;
/// let found = store::read(&store, |read| lookup::session(read, "wea"))?;
/// assert_eq!(found.session_id, id);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn session(read: &dyn StoreRead, prefix: &str) -> StoreResult<SessionRow> {
    if let Ok(id) = SessionId::new(prefix)
        && let Some(row) = read.session(&id)?
    {
        return Ok(row);
    }
    let fits = match prefix {
        "" => Vec::new(),
        _ => sessions_beginning(read, prefix, u32::MAX)?,
    };
    if let Some(row) = above_all(read, &fits)? {
        return Ok(row);
    }
    let id = only(prefix, fits, ToString::to_string, StoreError::NoSession)?;
    let row = read.session(&id)?;
    row.ok_or_else(|| StoreError::NoSession(prefix.to_owned()))
}

/// Returns the session that all others are sub-agents of, if their ids begin with its own.
fn above_all(read: &dyn StoreRead, fits: &[SessionId]) -> StoreResult<Option<SessionRow>> {
    // In the order of their bytes the shortest comes first.
    let Some((first, others)) = fits.split_first() else {
        return Ok(None);
    };
    let is_below = |id: &SessionId| id.as_str().starts_with(first.as_str());
    if others.is_empty() || !others.iter().all(is_below) {
        return Ok(None);
    }
    let Some(row) = read.session(first)? else {
        return Ok(None);
    };
    let (mut known, mut ahead) = (HashSet::from([row.key]), vec![row.key]);
    let mut left: HashSet<&SessionId> = others.iter().collect();
    while let Some(key) = ahead.pop() {
        for key in read.started_by(key)? {
            if known.insert(key) {
                left.remove(&read.session_by_key(key)?.session_id);
                ahead.push(key);
            }
        }
    }
    Ok(left.is_empty().then_some(row))
}

/// Returns at most `limit` ids of sessions with this beginning, in the order of their bytes; hidden
/// sessions are found by their whole ids alone.
///
/// # Errors
/// If the database cannot be read.
pub fn sessions_beginning(
    read: &dyn StoreRead,
    prefix: &str,
    limit: u32,
) -> StoreResult<Vec<SessionId>> {
    let hidden = read.hidden_sessions()?.into_iter();
    let hidden = hidden.map(|key| Ok(read.session_by_key(key)?.session_id));
    let hidden: HashSet<SessionId> = hidden.collect::<StoreResult<_>>()?;
    let wanted = limit.saturating_add(u32::try_from(hidden.len()).unwrap_or(u32::MAX));
    let page_size = wanted.saturating_add(1).min(PAGE);
    let mut found: Vec<SessionId> = Vec::new();
    loop {
        // The page begins with the last id of the page before, which is known.
        let known = found.len();
        let first = found.last().map_or(prefix, SessionId::as_str);
        let page = read.session_ids(first, page_size)?;
        let new = page.into_iter().skip(usize::from(known > 0));
        found.extend(new.take_while(|id| id.as_str().starts_with(prefix)));
        let is_last = found.len() - known + usize::from(known > 0) < page_size as usize;
        if is_last || found.len() >= wanted as usize {
            found.retain(|id| !hidden.contains(id));
            found.truncate(limit as usize);
            return Ok(found);
        }
    }
}

/// Returns the loop of a session with this id, or the only one whose id begins with it.
///
/// # Errors
/// If there is none, or several begin with it.
pub fn loop_of(read: &dyn StoreRead, session: SessionKey, prefix: &str) -> StoreResult<LoopRow> {
    if let Ok(id) = LoopId::new(prefix)
        && let Some(row) = read.loop_by_id(session, &id)?
    {
        return Ok(row);
    }
    let fits = read
        .loops(session)?
        .into_iter()
        .filter(|row| row.loop_id.as_str().starts_with(prefix))
        .collect();
    only(
        prefix,
        fits,
        |row| row.loop_id.to_string(),
        StoreError::NoLoop,
    )
}

/// Returns the run of a session with this id, or the only one whose id begins with it.
///
/// # Errors
/// If there is none, or several begin with it.
pub fn run(read: &dyn StoreRead, session: SessionKey, prefix: &str) -> StoreResult<RunRow> {
    let (mut whole, mut fits) = (None, Vec::new());
    read.runs(session, &mut |row| {
        if row.run_id == prefix {
            whole = Some(row);
            return Ok(ControlFlow::Break(()));
        }
        if row.run_id.starts_with(prefix) {
            fits.push(row);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match whole {
        Some(row) => Ok(row),
        None => only(prefix, fits, |row| row.run_id.clone(), StoreError::NoRun),
    }
}

/// Returns the name of the blob with this id (its SHA-256 in hexadecimal digits), or of the only one
/// whose id begins with it.
///
/// # Errors
/// If there is none, or several begin with it.
pub fn blob(read: &dyn StoreRead, prefix: &str) -> StoreResult<[u8; 32]> {
    let padded = |digit: &str| {
        let missing = 64_usize.saturating_sub(prefix.len());
        unhex(&(prefix.to_owned() + &digit.repeat(missing)))
    };
    let fits = match (padded("0"), padded("f")) {
        (Some(first), Some(last)) => read.blob_names(&first, &last)?,
        _ => Vec::new(),
    };
    only(prefix, fits, |name| hex::encode(name), StoreError::NoBlob)
}

/// Returns the only row that matches.
fn only<T>(
    prefix: &str,
    mut fits: Vec<T>,
    id: impl Fn(&T) -> String,
    none: impl Fn(String) -> StoreError,
) -> StoreResult<T> {
    if prefix.is_empty() {
        return Err(none(String::new()));
    }
    match (fits.len(), fits.pop()) {
        (1, Some(row)) => Ok(row),
        (_, None) => Err(none(prefix.to_owned())),
        (count, Some(last)) => {
            fits.push(last);
            let mut ids: Vec<String> = fits.iter().map(id).collect();
            ids.sort();
            ids.truncate(LISTED);
            Err(StoreError::Ambiguous {
                given: prefix.to_owned(),
                count,
                ids,
            })
        }
    }
}
