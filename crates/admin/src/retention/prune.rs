//! Pruning: old sessions are removed, each with a receipt.
//!
//! The sessions to prune are selected in one snapshot; then each group of connected sessions is removed in a
//! transaction of its own, which checks again that the sessions are unchanged.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use loopstore::extend::{
    Database, LoopRow, SessionKey, SessionRow, StoreError, StoreRead, StoreResult, lease,
    scan::StoreScan,
};
use loopstore::internal::database;
use loopstore::model::{SessionId, Time};
use loopstore_files::copies::UnfinishedCopy;
use loopstore_model::clock::now;
use serde::Serialize;

use super::erase::remove;
use super::files::{self, KeptFile, KeptFiles};
use super::{Leftover, scrub};

/// The time for which a loop that is pending or running without a driver counts as open after the last activity
/// in its session, in milliseconds.
const OPEN_FOR: i64 = 24 * 60 * 60 * 1000;

/// A request to prune sessions. `older_than` or `keep_last` must be set.
#[derive(Clone, Debug, Default)]
pub struct PruneRequest {
    /// Only sessions whose newest message is at least this number of milliseconds old.
    pub older_than: Option<i64>,
    /// The number of newest sessions to keep, whatever their age; counted among the sessions of `agent`, if it is
    /// set. Sessions without a known time are counted last.
    pub keep_last: Option<usize>,
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// The reason; it is stored in the receipts.
    pub reason: Option<String>,
    /// True to remove also kept source files that contain sessions which stay.
    pub with_files: bool,
    /// True to change nothing and only report.
    pub dry_run: bool,
}

/// A session that is pruned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrunedSession {
    /// The session.
    pub session_id: SessionId,
    /// Its agent.
    pub agent_id: Option<String>,
    /// The time of its newest message, as ISO-8601 text.
    pub last_active_at: Option<String>,
    /// Its loops.
    pub loops: u64,
    /// Its messages, extensions not counted.
    pub messages: u64,
    /// The size of its messages as JSON, in bytes.
    pub bytes: u64,
    /// The receipt; `None` for a dry run.
    pub receipt: Option<i64>,
}

/// The reason that an old session is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// The session is protected.
    Protected,
    /// No time of the session is known, so that it has no age.
    Undated,
    /// One of its loops is open.
    Open,
    /// The session started, was started by, continues or is continued by a session that stays.
    Linked,
    /// The session changed while other sessions were pruned.
    Changed,
}

/// A session that is kept although it is old enough to be pruned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptSession {
    /// The session.
    pub session_id: SessionId,
    /// The reason.
    pub why: KeepReason,
}

/// The result of a pruning, or of its dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PruneReport {
    /// True if nothing was changed.
    pub dry_run: bool,
    /// The pruned sessions, the least recently active first.
    pub pruned: Vec<PrunedSession>,
    /// Sessions that are kept although they are old enough.
    pub kept: Vec<KeptSession>,
    /// The number of removed source files.
    pub sources: u64,
    /// Kept sessions whose source file was removed with a pruned session.
    pub source_of: Vec<SessionId>,
    /// All kept source files of the pruned sessions, including files that stay for other sessions.
    pub files: Vec<KeptFile>,
    /// The places where bytes of the content may remain.
    pub leftover: Leftover,
    /// Unfinished copies that killed processes left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<UnfinishedCopy>,
}

/// Removes old sessions, each with a receipt. Protected sessions, sessions with an open loop, and sessions linked
/// with a kept session are kept.
///
/// # Errors
/// If neither `older_than` nor `keep_last` is set, or the store fails. Sessions that were removed before the error
/// stay removed, and the next call continues.
///
/// # Examples
/// ```
/// use loopstore_admin::retention::{PruneRequest, prune};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// chat.end_loop(LoopStatus::Completed)?;
/// let month = 30 * 24 * 60 * 60 * 1_000;
/// let request = PruneRequest { older_than: Some(month), ..PruneRequest::default() };
/// assert!(prune(store.database(), &request)?.pruned.is_empty());
/// // What would go if none were to be kept?
/// let (keep_last, dry_run) = (Some(0), true);
/// let request = PruneRequest { keep_last, dry_run, ..PruneRequest::default() };
/// assert_eq!(prune(store.database(), &request)?.pruned[0].session_id, *chat.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn prune(store: &dyn Database, request: &PruneRequest) -> StoreResult<PruneReport> {
    if request.older_than.is_none() && request.keep_last.is_none() {
        let why = "pruning needs an age, or how many sessions to keep";
        return Err(StoreError::Invalid(why.into()));
    }
    let plan = database::scan(store, |scan| PrunePlan::of(scan, request))?;
    let mut report = PruneReport {
        dry_run: request.dry_run,
        pruned: Vec::new(),
        kept: plan.kept,
        sources: 0,
        source_of: Vec::new(),
        files: Vec::new(),
        leftover: Leftover::None,
        copies: Vec::new(),
    };
    let mut files = plan.files;
    for group in plan.groups {
        match request.dry_run {
            true => report
                .pruned
                .extend(group.into_iter().map(|(_, pruned)| pruned)),
            false => prune_group(store, group, request, &mut report, &mut files)?,
        }
    }
    report.take_files(files);
    if !request.dry_run {
        let stays = report.files.iter().any(|file| !file.goes);
        let (leftover, copies) = scrub(store)?;
        report.leftover = leftover.or_in_content(stays);
        report.copies = copies;
    }
    Ok(report)
}

impl PruneReport {
    /// Adds the kept files of the pruned sessions to the report.
    fn take_files(&mut self, files: KeptFiles) {
        let gone: HashSet<&SessionId> = self.pruned.iter().map(|one| &one.session_id).collect();
        let mut others = BTreeSet::new();
        for file in files::listed(files) {
            if file.goes {
                self.sources += 1;
                others.extend(
                    file.sessions
                        .iter()
                        .filter(|id| !gone.contains(id))
                        .cloned(),
                );
            }
            self.files.push(file);
        }
        self.source_of = others.into_iter().collect();
    }
}

type SessionFamily = Vec<(SessionRow, PrunedSession)>;

struct PrunePlan {
    groups: Vec<SessionFamily>,
    kept: Vec<KeptSession>,
    /// The kept files of the sessions, as counted before the removal.
    files: KeptFiles,
}

impl PrunePlan {
    fn of(scan: &dyn StoreScan, request: &PruneRequest) -> StoreResult<Self> {
        let rows: Vec<SessionRow> = scan.sessions()?;
        let until = request
            .older_than
            .map_or(i64::MAX, |age| now().saturating_sub(age));
        let active = rows.iter().map(|row| (row.key, last_active(row)));
        let active: HashMap<SessionKey, Option<i64>> = active.collect();
        let rest = without_newest(&rows, &active, request);
        let (undated, dated): (Vec<&SessionRow>, Vec<&SessionRow>) =
            rest.into_iter().partition(|row| active[&row.key].is_none());
        let old = dated.iter().filter(|row| active[&row.key] < Some(until));
        let mut old: HashSet<SessionKey> = old.map(|row| row.key).collect();
        let mut kept = Vec::new();
        match request.older_than {
            None => old.extend(undated.iter().map(|row| row.key)),
            Some(_) => kept.extend(undated.iter().map(|row| KeptSession {
                session_id: row.session_id.clone(),
                why: KeepReason::Undated,
            })),
        }
        let mut plan = Self {
            groups: Vec::new(),
            kept,
            files: KeptFiles::new(),
        };
        if old.is_empty() {
            return Ok(plan);
        }
        for group in groups(scan, &rows, &old)? {
            plan.take(scan, group, &old)?;
        }
        let at = |(row, _): &(SessionRow, PrunedSession)| active[&row.key];
        let age = |group: &SessionFamily| group.iter().map(at).max();
        plan.groups.sort_by_key(age);
        if request.dry_run {
            let going = plan.groups.iter().flatten();
            let going: Vec<SessionKey> = going.map(|(row, _)| row.key).collect();
            plan.files = files::plan(scan, &going, request.with_files)?;
        }
        Ok(plan)
    }

    /// Decides about a group of connected sessions.
    fn take(
        &mut self,
        scan: &dyn StoreScan,
        group: Vec<SessionRow>,
        old: &HashSet<SessionKey>,
    ) -> StoreResult<()> {
        let mut reasons: HashMap<SessionKey, KeepReason> = HashMap::new();
        for row in &group {
            if let Some(why) = stays(scan, row)? {
                reasons.insert(row.key, why);
            }
        }
        let all_old = group.iter().all(|row| old.contains(&row.key));
        if all_old && reasons.is_empty() {
            let mut family = Vec::new();
            for row in group {
                let pruned = summary_of(scan, &row)?;
                family.push((row, pruned));
            }
            self.groups.push(family);
            return Ok(());
        }
        for row in group.into_iter().filter(|row| old.contains(&row.key)) {
            self.kept.push(KeptSession {
                why: reasons.get(&row.key).copied().unwrap_or(KeepReason::Linked),
                session_id: row.session_id,
            });
        }
        Ok(())
    }
}

/// Returns the time of a session's newest message, else of its beginning, in milliseconds since the epoch;
/// `None` if neither is known. The time of an import, a compaction or a fork does not change the age of a
/// session.
fn last_active(row: &SessionRow) -> Option<i64> {
    let text = row.last_active_at.as_ref().or(row.created_at.as_ref())?;
    Time::from_text(text.clone()).millis()
}

/// Returns the time of the last use of a session, in milliseconds since the epoch: a message, the beginning of
/// a loop or fork, a compaction, an undo, or a recorded context. A session without a time is older than all
/// others.
fn last_used(read: &dyn StoreRead, row: &SessionRow, loops: &[LoopRow]) -> StoreResult<i64> {
    let begun = loops.iter().filter_map(|row| row.started_at.clone());
    let mut times: Vec<String> = begun.collect();
    let mut runs = Vec::new();
    read.runs(row.key, &mut |run| {
        times.push(run.started_at);
        runs.push(run.key);
        Ok(ControlFlow::Continue(()))
    })?;
    for run in runs {
        times.extend(read.flips(run)?.into_iter().map(|flip| flip.at));
    }
    let manifests = read.manifests(row.key)?.into_iter();
    times.extend(manifests.map(|manifest| manifest.recorded_at));
    let millis = times
        .into_iter()
        .filter_map(|text| Time::from_text(text).millis());
    Ok(millis.chain(last_active(row)).max().unwrap_or(i64::MIN))
}

/// Returns the selected sessions without the newest ones, which stay.
fn without_newest<'a>(
    rows: &'a [SessionRow],
    active: &HashMap<SessionKey, Option<i64>>,
    request: &PruneRequest,
) -> Vec<&'a SessionRow> {
    let is_selected = |row: &&SessionRow| {
        let agent = request.agent.as_deref();
        agent.is_none_or(|agent| row.agent_id.as_deref() == Some(agent))
    };
    let mut selected: Vec<&SessionRow> = rows.iter().filter(is_selected).collect();
    selected.sort_by_key(|row| std::cmp::Reverse((active[&row.key], row.key)));
    selected.split_off(request.keep_last.unwrap_or(0).min(selected.len()))
}

/// Groups sessions that started each other or continue each other. Only groups with one of these sessions are
/// searched for, and each is returned once.
fn groups(
    scan: &dyn StoreScan,
    rows: &[SessionRow],
    old: &HashSet<SessionKey>,
) -> StoreResult<Vec<Vec<SessionRow>>> {
    let by_key: HashMap<SessionKey, &SessionRow> = rows.iter().map(|row| (row.key, row)).collect();
    let by_id: HashMap<&str, SessionKey> = rows
        .iter()
        .map(|row| (row.session_id.as_str(), row.key))
        .collect();
    let mut seeds: Vec<SessionKey> = old.iter().copied().collect();
    seeds.sort();
    let (mut known, mut groups) = (HashSet::new(), Vec::new());
    for seed in seeds {
        let (mut group, mut next) = (Vec::new(), vec![seed]);
        while let Some(key) = next.pop() {
            let Some(row) = by_key.get(&key).filter(|_| known.insert(key)) else {
                continue;
            };
            let linked = scan.continuations(key)?;
            next.extend(scan.started_by(key)?);
            next.extend(linked.by.into_iter().chain(linked.of));
            let starter = row.started_by();
            next.extend(starter.and_then(|id| by_id.get(id.as_str()).copied()));
            group.push((*row).clone());
        }
        group.sort_by_key(|row| row.key);
        groups.extend((!group.is_empty()).then_some(group));
    }
    groups.sort_by_key(|group| group.first().map(|row| row.key));
    Ok(groups)
}

/// Returns the reason that a session stays whatever its age, if there is one.
fn stays(read: &dyn StoreRead, row: &SessionRow) -> StoreResult<Option<KeepReason>> {
    if read.flags(row.key)?.protected_at.is_some() {
        return Ok(Some(KeepReason::Protected));
    }
    let (now, loops) = (now(), read.loops(row.key)?);
    let is_recent = last_used(read, row, &loops)? > now.saturating_sub(OPEN_FOR);
    for loop_key in loops {
        let is_driven = lease::held(read, loop_key.key, now)?.is_some();
        if is_driven || (is_recent && !loop_key.status.is_ended()) {
            return Ok(Some(KeepReason::Open));
        }
    }
    Ok(None)
}

fn summary_of(read: &dyn StoreRead, row: &SessionRow) -> StoreResult<PrunedSession> {
    let loops: Vec<LoopRow> = read.loops(row.key)?;
    Ok(PrunedSession {
        session_id: row.session_id.clone(),
        agent_id: row.agent_id.clone(),
        last_active_at: row.last_active_at.clone(),
        loops: loops.len() as u64,
        messages: loops.iter().map(|one| one.totals.messages).sum(),
        bytes: loops.iter().map(|one| one.totals.bytes).sum(),
        receipt: None,
    })
}

/// Removes a group of connected sessions in one transaction, unless one of them changed meanwhile.
fn prune_group(
    store: &dyn Database,
    group: SessionFamily,
    request: &PruneRequest,
    report: &mut PruneReport,
    files: &mut KeptFiles,
) -> StoreResult<()> {
    let reason = request.reason.as_deref();
    let ids: Vec<SessionId> = group
        .iter()
        .map(|(_, pruned)| pruned.session_id.clone())
        .collect();
    let removed = database::removing(store, |write| {
        for (row, _) in &group {
            let now = write.session(&row.session_id)?;
            if now.as_ref() != Some(row) || stays(write, row)?.is_some() {
                return Ok(None);
            }
        }
        let mut removed = Vec::new();
        for (row, mut pruned) in group {
            let (key, _, held) = remove(write, row, "prune", reason, request.with_files)?;
            pruned.receipt = Some(key);
            removed.push((pruned, held));
        }
        Ok(Some(removed))
    })?;
    let Some(removed) = removed else {
        let why = KeepReason::Changed;
        report
            .kept
            .extend(ids.into_iter().map(|session| KeptSession {
                session_id: session,
                why,
            }));
        return Ok(());
    };
    for (pruned, held) in removed {
        // The pruning of the last session of a file decides about the file.
        files.extend(held);
        report.pruned.push(pruned);
    }
    Ok(())
}
