//! Cold loops: loops that have ended, are not the current work of a session, and are in no context.

use std::collections::{HashMap, HashSet};

use loopstore::context::BuildOptions;
use loopstore::extend::{
    LoopKey, LoopRow, SessionKey, SessionRow, StoreError, StoreRead, StoreResult,
    active_blocks::{ChainLink, ChainView},
    lease,
    scan::StoreScan,
};
use loopstore::internal::Chain;
use loopstore::model::{LoopId, SessionId, Time};
use loopstore_model::clock::now;

use super::{ArchiveRequest, SkipReason, SkippedLoop};

/// A loop that is to be archived.
#[derive(Clone, Debug)]
pub(super) struct ColdLoop {
    pub(super) key: LoopKey,
    pub(super) loop_id: LoopId,
    /// True if the loop is archived even while it is the current one.
    pub(super) also_current: bool,
}

/// The loops of a session.
pub(super) struct ColdLoops {
    pub(super) session: SessionRow,
    pub(super) cold: Vec<ColdLoop>,
    pub(super) kept: Vec<SkippedLoop>,
}

/// Returns the sessions that the request selects.
pub(super) fn sessions(
    scan: &dyn StoreScan,
    named: Option<&SessionId>,
) -> StoreResult<Vec<SessionKey>> {
    let Some(id) = named else {
        return scan.session_keys();
    };
    let row = scan.session(id)?;
    let row = row.ok_or_else(|| StoreError::NoSession(id.to_string()))?;
    Ok(vec![row.key])
}

/// Returns a session with those of the selected loops that have archived content.
pub(super) fn archived(
    scan: &dyn StoreScan,
    key: SessionKey,
    named: &[LoopId],
) -> StoreResult<Option<(SessionRow, Vec<ColdLoop>)>> {
    let Some(session) = session_of(scan, key)? else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for row in named_or_all(scan, key, named)? {
        if scan.next_pack(row.key, 0)?.is_some() {
            found.push(ColdLoop {
                key: row.key,
                loop_id: row.core.loop_id,
                also_current: true,
            });
        }
    }
    Ok(Some((session, found)))
}

/// Returns the row of a session; `None` if it was removed meanwhile.
fn session_of(scan: &dyn StoreScan, key: SessionKey) -> StoreResult<Option<SessionRow>> {
    match scan.session_by_key(key) {
        Err(StoreError::Damaged(_)) if !scan.session_keys()?.contains(&key) => Ok(None),
        row => row.map(Some),
    }
}

fn named_or_all(
    scan: &dyn StoreScan,
    key: SessionKey,
    named: &[LoopId],
) -> StoreResult<Vec<LoopRow>> {
    if named.is_empty() {
        return scan.loops(key);
    }
    let mut rows = Vec::new();
    for id in named {
        let row = scan.loop_by_id(key, id)?;
        rows.push(row.ok_or_else(|| StoreError::NoLoop(id.to_string()))?);
    }
    Ok(rows)
}

impl ColdLoops {
    /// Selects the cold loops of a session; returns `None` if the session was removed meanwhile.
    pub(super) fn of(
        scan: &dyn StoreScan,
        key: SessionKey,
        request: &ArchiveRequest,
    ) -> StoreResult<Option<Self>> {
        let Some(session) = session_of(scan, key)? else {
            return Ok(None);
        };
        let is_named = !request.loops.is_empty();
        let rows = named_or_all(scan, key, &request.loops)?;
        let mut plan = Self {
            session,
            cold: Vec::new(),
            kept: Vec::new(),
        };
        let shown = match is_named || request.shown {
            true => HashSet::new(),
            false => shown(scan, key)?,
        };
        for row in rows {
            if scan.unpacked(row.key, 0)?.is_none() {
                continue;
            }
            let also_current = is_named || request.shown;
            match stays(scan, &plan.session, &row, also_current, &shown, request)? {
                Some(SkipReason::Open) if is_named => {
                    let why = format!("loop {} has not ended", row.loop_id);
                    return Err(StoreError::Invalid(why));
                }
                Some(why) => plan.kept.push(SkippedLoop {
                    session_id: plan.session.session_id.clone(),
                    loop_id: row.core.loop_id,
                    why,
                }),
                None => plan.cold.push(ColdLoop {
                    key: row.key,
                    loop_id: row.core.loop_id,
                    also_current,
                }),
            }
        }
        Ok(Some(plan))
    }
}

fn stays(
    read: &dyn StoreRead,
    session: &SessionRow,
    row: &LoopRow,
    also_current: bool,
    shown: &HashSet<LoopKey>,
    request: &ArchiveRequest,
) -> StoreResult<Option<SkipReason>> {
    if let Some(why) = is_at_work(read, session, row, also_current)? {
        return Ok(Some(why));
    }
    if shown.contains(&row.key) {
        return Ok(Some(SkipReason::Shown));
    }
    let Some(age) = request.older_than else {
        return Ok(None);
    };
    let until = now().saturating_sub(age);
    let is_recent = last_active(read, row)? >= until;
    Ok(is_recent.then_some(SkipReason::Recent))
}

/// Returns the reason that a loop may get more turns, if there is one.
pub(super) fn is_at_work(
    read: &dyn StoreRead,
    session: &SessionRow,
    row: &LoopRow,
    also_current: bool,
) -> StoreResult<Option<SkipReason>> {
    // A transcript that is rewritten has a complete last turn before it is sealed.
    let is_complete = row.totals.complete >= row.totals.turns;
    if !row.status.is_ended() || !is_complete {
        return Ok(Some(SkipReason::Open));
    }
    if lease::held(read, row.key, now())?.is_some() {
        return Ok(Some(SkipReason::Open));
    }
    let is_current = session.current_loop == Some(row.key);
    Ok((is_current && !also_current).then_some(SkipReason::Current))
}

/// Returns the time of the last activity in a loop, in milliseconds since the epoch. A loop without a time is
/// older than all others.
fn last_active(read: &dyn StoreRead, row: &LoopRow) -> StoreResult<i64> {
    let text = |text: &Option<String>| {
        let time = text.clone().map(Time::from_text);
        time.and_then(|time| time.millis())
    };
    let turn = match row.totals.turns.checked_sub(1) {
        Some(last) => read.turn(row.key, last)?,
        None => None,
    };
    let turn = turn.and_then(|turn| turn.ended_at);
    let times = [text(&row.started_at), text(&row.ended_at), turn];
    Ok(times.into_iter().flatten().max().unwrap_or(i64::MIN))
}

/// Returns the loops of a session of which the context of some leaf shows an original message.
fn shown(read: &dyn StoreRead, session: SessionKey) -> StoreResult<HashSet<LoopKey>> {
    let rows = read.loops(session)?;
    let current = read.session_by_key(session)?.current_loop;
    let turns: HashMap<LoopKey, u32> = rows.iter().map(|row| (row.key, row.totals.turns)).collect();
    let went_on = |child: &LoopRow| {
        let parent = child.parent?;
        (child.parent_cut().whole >= *turns.get(&parent)?).then_some(parent)
    };
    let goes_on: HashSet<LoopKey> = rows.iter().filter_map(went_on).collect();
    let mut shown = HashSet::new();
    for row in &rows {
        if goes_on.contains(&row.key) && current != Some(row.key) {
            continue;
        }
        let view = ChainView::default();
        let keys = (session, row.key);
        let chain = Chain::load_active(read, keys, view, &BuildOptions::default())?;
        let links = chain.links.iter().skip(chain.start);
        let links = links.filter(|link| shows_originals(link));
        shown.extend(links.map(|link| link.row.key));
    }
    Ok(shown)
}

/// Returns true if a context shows an original message of a loop: in a kept turn, or after the active block.
fn shows_originals(link: &ChainLink) -> bool {
    let Some(block) = &link.block else {
        return link.end_seq > 0;
    };
    let keeps = block.layout.first.is_some() || block.layout.recent.is_some();
    keeps || block.through < link.end_seq
}
