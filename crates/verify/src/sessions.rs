//! Sessions, and the tree of their loops.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::extend::{
    LoopKey, LoopRow, SessionKey, SessionRow, StoreResult, Tick, audit::AuditKind, digest,
};
use loopstore::internal::AuditedDigests;
use loopstore::model::{LoopId, LoopRecord, SealingProvider, Session, SessionId};

use super::report::{ProblemKind, Subject};
use super::runs::check_row_digest;
use super::verify::Verify;
use super::{audit, blocks, loops, manifests, runs, sealed};

/// The session that is being checked.
pub(super) struct SessionScope {
    pub(super) key: SessionKey,
    /// Its id, if its row can be read.
    pub(super) id: Option<SessionId>,
    pub(super) place: String,
    /// Its clock; the maximum if it cannot be read.
    pub(super) tick: Tick,
    /// True if the session was imported: a transcript may leave the last turn of a loop open.
    pub(super) is_imported: bool,
    /// Digests of the audit chain whose rows were not read yet.
    pub(super) audited: AuditedDigests,
    /// The messages that contain a compaction of a provider.
    pub(super) sealed: BTreeSet<SealedPlace>,
    /// The compactions of providers that runs refer to.
    pub(super) recorded: BTreeSet<SealedPlace>,
    /// The number of edits of each loop.
    pub(super) edits: BTreeMap<LoopKey, u32>,
}

/// A message that contains the compaction of a provider.
pub(super) type SealedPlace = (LoopId, u32, SealingProvider);

impl SessionScope {
    /// Checks that a tick is within the session's clock. Two databases that were brought together may have used the same
    /// tick.
    pub(super) fn check_tick(&self, verify: &mut Verify<'_>, place: &str, tick: Tick) {
        if tick > self.tick || tick < 1 {
            let detail = format!("tick {tick} is outside of 1 to {}", self.tick);
            verify.found.add(ProblemKind::Tick, place, detail);
        }
    }
}

/// Checks every session.
pub(super) fn check(verify: &mut Verify<'_>) -> StoreResult<()> {
    let keys = verify.scan.session_keys();
    let keys = verify.found.readable("sessions", keys)?;
    for key in keys.into_iter().flatten() {
        check_session(verify, key)?;
    }
    Ok(())
}

pub(super) fn check_session(verify: &mut Verify<'_>, key: SessionKey) -> StoreResult<()> {
    verify.found.checked.sessions += 1;
    verify.found.subject = Subject::Session(key);
    let row = verify.scan.session_by_key(key);
    let row = verify
        .found
        .readable(format!("session with key {}", key.0), row)?;
    let mut scope = SessionScope {
        key,
        id: row.as_ref().map(|row| row.session_id.clone()),
        place: row.as_ref().map_or_else(
            || format!("session with key {}", key.0),
            |row| format!("session {}", row.session_id),
        ),
        tick: row.as_ref().map_or(Tick::MAX, |row| row.tick),
        is_imported: row.as_ref().is_some_and(|row| row.source.is_some()),
        audited: AuditedDigests::default(),
        sealed: BTreeSet::new(),
        recorded: BTreeSet::new(),
        edits: BTreeMap::new(),
    };
    scope.audited = audit::session(verify, key, &scope.place)?;
    let loops = verify.scan.loop_keys(key);
    let loops = verify.found.readable(&scope.place, loops)?;
    let loops = loops.unwrap_or_default();
    if let Some(row) = &row {
        check_row(verify, row, &scope, &loops);
    }
    let mut before = 0;
    for key in &loops {
        before = check_loop(verify, &mut scope, *key, before)?;
    }
    runs::check(verify, &mut scope)?;
    verify.found.subject = Subject::Session(key);
    sealed::check_orphans(verify, &scope);
    for key in loops {
        blocks::check(verify, &scope, key)?;
    }
    manifests::check(verify, &mut scope)?;
    imports(verify, &mut scope)?;
    verify.found.subject = Subject::Session(key);
    audit::missing(verify, &scope.audited, &scope.place);
    Ok(())
}

/// Checks the import that a session came from.
fn imports(verify: &mut Verify<'_>, scope: &mut SessionScope) -> StoreResult<()> {
    let keys = verify.scan.import_keys(scope.key);
    let keys = verify.found.readable(&scope.place, keys)?;
    for key in keys.into_iter().flatten() {
        verify.found.subject = Subject::Import(key);
        let place = format!("{}, import {key}", scope.place);
        let note = verify.scan.import_and_digest(key);
        let Some((note, stored)) = verify.found.readable(&place, note)? else {
            continue;
        };
        check_row_digest(verify, &place, &stored, &digest::import(&note));
        let kind = AuditKind::Import;
        audit::take(verify, &mut scope.audited, kind, stored, &place);
    }
    Ok(())
}

fn check_row(verify: &mut Verify<'_>, row: &SessionRow, scope: &SessionScope, loops: &[LoopKey]) {
    let kind = ProblemKind::Session;
    match row.current_loop {
        Some(current) if !loops.contains(&current) => {
            let detail = format!("the current loop {} is not in it", current.0);
            verify.found.add(kind, &scope.place, detail);
        }
        None if !loops.is_empty() => {
            let detail = "it has loops and none of them is current";
            verify.found.add(kind, &scope.place, detail);
        }
        _ => {}
    }
    match serde_json::from_str::<Session>(&row.meta) {
        Ok(meta) if meta.session_id == row.session_id => {}
        Ok(meta) => {
            let detail = format!("its interchange form is that of {}", meta.session_id);
            verify.found.add(kind, &scope.place, detail);
        }
        Err(error) => verify
            .found
            .add(ProblemKind::Unreadable, &scope.place, error),
    }
}

/// Checks a loop except its blocks, and returns its tick.
fn check_loop(
    verify: &mut Verify<'_>,
    scope: &mut SessionScope,
    key: LoopKey,
    before: Tick,
) -> StoreResult<Tick> {
    verify.found.checked.loops += 1;
    verify.found.subject = Subject::Loop(key);
    let row = verify.scan.loop_by_key(key);
    let place = format!("{}, loop with key {}", scope.place, key.0);
    let Some(row) = verify.found.readable(place, row)? else {
        return Ok(before);
    };
    let place = format!("{}, loop {}", scope.place, row.loop_id);
    scope.check_tick(verify, &place, row.tick);
    if row.tick < before {
        let detail = format!(
            "its tick {} is before {before} of the loop before",
            row.tick
        );
        verify.found.add(ProblemKind::Tick, &place, detail);
    }
    check_parent(verify, &row, &place)?;
    check_meta(verify, &row, &place)?;
    let tick = row.tick;
    loops::check(verify, scope, row, place)?;
    Ok(tick)
}

fn check_parent(verify: &mut Verify<'_>, row: &LoopRow, place: &str) -> StoreResult<()> {
    let Some(parent) = row.parent else {
        let none = &None;
        let kind = ProblemKind::Parent;
        verify
            .found
            .compare(kind, place, "parent_turn", &row.parent_turn, none);
        return Ok(());
    };
    let parent = verify.scan.loop_by_key(parent);
    let Some(parent) = verify.found.readable(place, parent)? else {
        return Ok(());
    };
    let mut wrong = |detail: String| verify.found.add(ProblemKind::Parent, place, detail);
    if parent.key >= row.key {
        wrong(format!("its parent {} came after it", parent.loop_id));
    }
    if parent.session != row.session {
        wrong(format!(
            "its parent {} is in another session",
            parent.loop_id
        ));
    }
    if row.parent_loop_id.as_ref() != Some(&parent.loop_id) {
        let named = &row.parent_loop_id;
        wrong(format!("its parent is {}, named {named:?}", parent.loop_id));
    }
    if row.parent_turns() > parent.totals.turns {
        let (cut, turns) = (row.parent_turns() - 1, parent.totals.turns);
        wrong(format!("its parent has {turns} turns, no turn {cut}"));
    } else if let (Some(seq), Some(turn)) = (row.parent_seq, row.parent_turn) {
        let seqs = verify.scan.turn(parent.key, turn);
        let next = verify.scan.turn(parent.key, turn.saturating_add(1));
        let seqs = verify.found.readable(place, seqs)?.flatten();
        let next = verify.found.readable(place, next)?.flatten();
        let end = next.map_or(parent.totals.next_seq, |next| next.first_seq);
        if seqs.is_none_or(|row| seq < row.first_seq || seq >= end) {
            let detail = format!("turn {turn} of its parent has no message {seq}");
            verify.found.add(ProblemKind::Parent, place, detail);
        }
    }
    Ok(())
}

/// Compares the id of a loop with the id in its interchange form, which is stored separately.
fn check_meta(verify: &mut Verify<'_>, row: &LoopRow, place: &str) -> StoreResult<()> {
    let meta = verify.scan.loop_meta(row.key);
    let Some(meta) = verify.found.readable(place, meta)? else {
        return Ok(());
    };
    if let Some(history) = &meta.history
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(history)
    {
        verify.found.add(ProblemKind::Unreadable, place, error);
    }
    let record: LoopRecord = match serde_json::from_str(&meta.meta) {
        Ok(record) => record,
        Err(error) => {
            verify.found.add(ProblemKind::Unreadable, place, error);
            return Ok(());
        }
    };
    let (stored, named) = (&row.loop_id, &record.loop_id);
    let kind = ProblemKind::Parent;
    verify.found.compare(kind, place, "its id", stored, named);
    Ok(())
}
