//! Parallel loops that answer one prompt, of which one is selected.

use loopstore::extend::{LoopRow, StoreError, StoreRead, StoreResult, StoreWrite, lease};
use loopstore::internal::{edit_loop, set_status_leased};
use loopstore::model::{Json, LoopId, LoopRecord, LoopStatus};
use serde::Deserialize;
use serde_json::json;

use crate::active_loop::ActiveLoop;
use crate::begin::{loop_record, new_loop, new_session, take};
use crate::error::{RecordError, RecordResult};
use crate::event::{ParallelLoopEnd, ParallelLoopStart};
use crate::{Recorded, SessionRecorder, writing};

/// The group of a loop, as stored with it.
#[derive(Deserialize)]
struct GroupSpec {
    all_loop_ids: Vec<LoopId>,
    selected_loop_id: Option<LoopId>,
}

/// Returns the group of a loop, before or after one of its loops was selected.
pub(crate) fn group_json(
    all: &[LoopId],
    selected: Option<(&ParallelLoopEnd, bool)>,
) -> Option<Json> {
    let end = selected.map(|(end, _)| end);
    Json::of(&json!({
        "all_loop_ids": all,
        "selected_loop_id": end.map(|end| &end.selected_loop_id),
        "selected_config_index": end.and_then(|end| end.selected_config_index.as_ref()),
        "evaluation_usage": end.and_then(|end| end.evaluation_usage.as_ref()),
        "is_selected": selected.is_some_and(|(_, is_it)| is_it),
    }))
    .ok()
}

fn contradiction(loop_id: &LoopId, what: &str) -> RecordError {
    RecordError::Contradiction {
        loop_id: loop_id.to_string(),
        what: what.into(),
    }
}

impl SessionRecorder<'_> {
    pub(crate) fn parallel_start(&mut self, start: &ParallelLoopStart) -> RecordResult<Recorded> {
        let ids = &start.loop_ids;
        for (at, id) in ids.iter().enumerate() {
            if ids[..at].contains(id) {
                return Err(contradiction(id, "it is announced twice"));
            }
            let known = self.active.contains_key(id) || self.pending.contains_key(id);
            if known || self.announced.contains_key(id) {
                return Err(RecordError::AlreadyBegun(id.to_string()));
            }
        }
        // A loop never changes its parent: without a parent the rows are written later.
        if start.extra.was_absent("parent_loop_id") {
            let group = ids.iter().map(|id| (id.clone(), ids.clone()));
            self.announced.extend(group);
            return Ok(Recorded::Buffered);
        }
        let stored = self.store_pending(start)?;
        self.pending.extend(stored);
        Ok(Recorded::Begun)
    }

    fn store_pending(&self, start: &ParallelLoopStart) -> RecordResult<Vec<(LoopId, ActiveLoop)>> {
        let formation = &self.options.formation;
        writing(&*self.store, |write| {
            let owner = new_session(write, &start.session_id, None, formation)?;
            if self.options.redact {
                crate::secrets::mark(write, owner.key)?;
            }
            let mut stored = Vec::new();
            for id in &start.loop_ids {
                let mut record = LoopRecord::new(id.clone(), start.parent_loop_id.clone());
                record.status = LoopStatus::Pending;
                record.session_id = Some(owner.session_id.clone());
                record.started_at = None;
                record.parallel_group = group_json(&start.loop_ids, None);
                let key = new_loop(write, &owner, &record)?;
                let lease = take(write, key, &self.options)?;
                let session = (owner.key, owner.session_id.clone());
                stored.push((
                    id.clone(),
                    ActiveLoop::new(session, (key, id.clone()), lease),
                ));
            }
            Ok(stored)
        })
    }

    pub(crate) fn parallel_end(&mut self, end: &ParallelLoopEnd) -> RecordResult<Recorded> {
        let all = writing(&*self.store, |write| {
            let (rows, all) = group_of(write, end)?;
            for row in &rows {
                self.judge(write, row, &all, end)?;
            }
            Ok(all)
        })?;
        for id in &all {
            self.pending.remove(id);
            self.announced.remove(id);
        }
        Ok(Recorded::Begun)
    }

    /// Stores the selection on a loop; a loop that never began is aborted.
    fn judge(
        &self,
        write: &mut dyn StoreWrite,
        row: &LoopRow,
        all: &[LoopId],
        end: &ParallelLoopEnd,
    ) -> StoreResult<()> {
        let now = (self.options.clock)();
        let here = self.active.get(&row.loop_id);
        let here = here.or_else(|| self.pending.get(&row.loop_id));
        match here.filter(|active| active.loop_key == row.key) {
            Some(active) => lease::renew(write, &active.lease, now)?,
            None => lease::ensure_unleased(write, row.key, now)?,
        }
        let is_it = row.loop_id == end.selected_loop_id;
        let never_began = row.status == LoopStatus::Pending;
        edit_loop(write, row.key, |record| {
            record.parallel_group = group_json(all, Some((end, is_it)));
            if never_began {
                record.status = LoopStatus::Aborted;
            }
        })?;
        if never_began {
            set_status_leased(write, row.key, LoopStatus::Aborted, end.timestamp.as_ref())?;
            lease::revoke(write, row.key)?;
        }
        Ok(())
    }
}

/// Returns the loops of the group that are stored, and the ids of all.
fn group_of(
    read: &dyn StoreRead,
    end: &ParallelLoopEnd,
) -> RecordResult<(Vec<LoopRow>, Vec<LoopId>)> {
    let id = &end.selected_loop_id;
    let owner = read
        .session(&end.session_id)?
        .ok_or_else(|| StoreError::NoSession(end.session_id.to_string()))?;
    let selected = read
        .loop_by_id(owner.key, id)?
        .ok_or_else(|| StoreError::NoLoop(id.to_string()))?;
    if selected.status == LoopStatus::Pending {
        return Err(contradiction(id, "it is selected, but never began"));
    }
    let group = loop_record(read, selected.key)?.parallel_group;
    let group = group.and_then(|group| group.read::<GroupSpec>().ok());
    let group = group.ok_or_else(|| contradiction(id, "it was not announced with others"))?;
    check_selection(end, &group)?;
    let mut rows = Vec::new();
    for id in &group.all_loop_ids {
        rows.extend(read.loop_by_id(owner.key, id)?);
    }
    Ok((rows, group.all_loop_ids))
}

fn check_selection(end: &ParallelLoopEnd, group: &GroupSpec) -> RecordResult<()> {
    let id = &end.selected_loop_id;
    if group
        .selected_loop_id
        .as_ref()
        .is_some_and(|before| before != id)
    {
        return Err(contradiction(id, "another loop was selected before"));
    }
    let place = end.selected_config_index.as_ref().map(|index| index.get());
    let at = group.all_loop_ids.iter().position(|one| one == id);
    if place.is_some() && place != at.and_then(|at| i64::try_from(at).ok()) {
        return Err(contradiction(
            id,
            "`selected_config_index` is the place of another loop",
        ));
    }
    Ok(())
}
