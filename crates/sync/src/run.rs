//! A sync: removals first, then the sessions whose fingerprints differ, one by one, then what belongs to them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use loopstore::model::SessionId;

use crate::document::SessionText;
use crate::merge::{MergeSide, merge};
use crate::peer::{
    FileName, Peer, PeerEntry, PeerError, PeerResult, RemovalReceipt, RemoveOutcome, StoreOutcome,
    SyncError,
};
use crate::report::{
    MadeBranch, MergedSession, RemovedSession, SyncReport, SyncSide, UnsyncedSession,
};

/// The number of attempts at a session that is written meanwhile.
const ATTEMPTS: u32 = 3;

/// A function that is called with the number of compared sessions and the total.
pub type SyncProgress<'a> = dyn FnMut(u64, u64) + 'a;

/// A running sync.
pub(crate) struct SyncRun<'a> {
    here: &'a mut dyn Peer,
    there: &'a mut dyn Peer,
    dry_run: bool,
    /// True if this database keeps what the other one redacted.
    keeps_removed: bool,
    /// True if not all sessions are brought together.
    is_filtered: bool,
    report: SyncReport,
    /// Receipts of redactions that only one database has, by session.
    redactions: BTreeMap<SessionId, Vec<(SyncSide, RemovalReceipt)>>,
    /// Sessions that are left as they are.
    left: HashSet<SessionId>,
    /// Sessions of one database that are stored under another id in the other one.
    renamed: Vec<(SyncSide, SessionId, SessionId)>,
}

/// The change of a session by a sync.
enum SessionChange {
    Gone,
    Same,
    Fetched,
    Sent,
    UpdatedHere,
    UpdatedThere,
    Merged(Vec<MadeBranch>),
}

/// The result of one attempt at a session.
enum Attempt {
    Done(SessionChange),
    /// The session was written meanwhile.
    Again,
}

fn other(side: SyncSide) -> SyncSide {
    match side {
        SyncSide::Here => SyncSide::There,
        SyncSide::There => SyncSide::Here,
    }
}

impl<'a> SyncRun<'a> {
    pub(crate) fn new(
        here: &'a mut dyn Peer,
        there: &'a mut dyn Peer,
        (dry_run, keeps_removed, is_filtered): (bool, bool, bool),
    ) -> Self {
        Self {
            here,
            there,
            dry_run,
            keeps_removed,
            is_filtered,
            report: SyncReport {
                dry_run,
                ..SyncReport::default()
            },
            redactions: BTreeMap::new(),
            left: HashSet::new(),
            renamed: Vec::new(),
        }
    }

    /// Brings the databases together.
    pub(crate) fn run(mut self, progress: &mut SyncProgress<'_>) -> Result<SyncReport, SyncError> {
        let begun = Instant::now();
        let result = self.all(progress);
        let (sent, received) = self.there.traffic();
        self.report.bytes_sent = sent;
        self.report.bytes_received = received;
        self.report.seconds = begun.elapsed().as_secs_f64();
        match result {
            Ok(()) => Ok(self.report),
            Err(PeerError::Fatal(error)) => Err(error),
            Err(PeerError::Session(reason)) => Err(SyncError::Refused(reason)),
        }
    }

    fn all(&mut self, progress: &mut SyncProgress<'_>) -> PeerResult<()> {
        let (here, there) = (self.here.info()?, self.there.info()?);
        if here.counter != there.counter {
            let (ours, theirs) = (&here.counter, &there.counter);
            let reason = format!(
                "tokens are counted with {ours} here and with {theirs} there; recount one of the databases first"
            );
            return Err(PeerError::Fatal(SyncError::Refused(reason)));
        }
        (self.report.here, self.report.there) = (here.place, there.place);
        if here.receipts != there.receipts {
            self.exchange_receipts()?;
        }
        let (ids, all) = self.differing()?;
        let total = ids.len() as u64;
        self.report.unchanged = all.saturating_sub(total);
        for (done, id) in (1..).zip(&ids) {
            self.one(id)?;
            progress(done, total);
        }
        self.check_renamed()?;
        if !self.dry_run {
            self.here.finish()?;
            self.there.finish()?;
        }
        Ok(())
    }

    fn peer(&mut self, side: SyncSide) -> &mut dyn Peer {
        match side {
            SyncSide::Here => &mut *self.here,
            SyncSide::There => &mut *self.there,
        }
    }

    /// Applies the removals that only one database knows, and notes its redactions.
    fn exchange_receipts(&mut self) -> PeerResult<()> {
        let (here, there) = (self.here.receipts()?, self.there.receipts()?);
        let names = |receipts: &[RemovalReceipt]| -> HashSet<(String, String, SessionId)> {
            let named = receipts.iter().map(RemovalReceipt::name);
            named
                .map(|(kind, at, id)| (kind.to_owned(), at.to_owned(), id.clone()))
                .collect()
        };
        let (ours, theirs) = (names(&here), names(&there));
        let is_new = |known: &HashSet<(String, String, SessionId)>, receipt: &RemovalReceipt| {
            let (kind, at, id) = receipt.name();
            !known.contains(&(kind.to_owned(), at.to_owned(), id.clone()))
        };
        for receipt in here.iter().filter(|receipt| is_new(&theirs, receipt)) {
            self.apply_receipt(SyncSide::Here, receipt)?;
        }
        for receipt in there.iter().filter(|receipt| is_new(&ours, receipt)) {
            self.apply_receipt(SyncSide::There, receipt)?;
        }
        Ok(())
    }

    /// Applies a receipt that only the database `from` has.
    fn apply_receipt(&mut self, from: SyncSide, receipt: &RemovalReceipt) -> PeerResult<()> {
        let id = &receipt.session;
        let to = other(from);
        if !receipt.is_removal() {
            let noted = self.redactions.entry(id.clone()).or_default();
            noted.push((from, receipt.clone()));
            return Ok(());
        }
        // A session that was stored again after its removal stays.
        if self.peer(from).has(id)? {
            if !self.is_filtered {
                self.place(to, receipt)?;
            }
            return Ok(());
        }
        let outcome = match self.peer(to).remove(receipt) {
            Ok(outcome) => outcome,
            Err(PeerError::Session(reason)) => {
                self.fail(id, reason);
                return Ok(());
            }
            Err(fatal) => return Err(fatal),
        };
        let removed = || RemovedSession {
            session_id: id.clone(),
            kind: receipt.kind.clone(),
            side: to,
        };
        match outcome {
            RemoveOutcome::Removed => {
                self.report.removed.push(removed());
                self.report.receipts += 1;
                if self.dry_run {
                    self.left.insert(id.clone());
                }
            }
            RemoveOutcome::Absent => self.report.receipts += 1,
            RemoveOutcome::Refused => {
                self.left.insert(id.clone());
                self.report.refused.push(removed());
            }
            RemoveOutcome::InUse => {
                self.left.insert(id.clone());
                self.fail(id, "it was removed, and a program still drives it".into());
            }
            RemoveOutcome::Filtered => {
                self.left.insert(id.clone());
            }
        }
        Ok(())
    }

    fn place(&mut self, side: SyncSide, receipt: &RemovalReceipt) -> PeerResult<()> {
        self.report.receipts += 1;
        match self.dry_run {
            true => Ok(()),
            false => self.peer(side).place_receipt(receipt),
        }
    }

    fn fail(&mut self, id: &SessionId, reason: String) {
        self.report.failed.push(UnsyncedSession {
            session_id: id.clone(),
            reason,
        });
    }

    /// Returns the sessions that differ, in the order of their ids, and the number of all sessions.
    fn differing(&mut self) -> PeerResult<(Vec<SessionId>, u64)> {
        let (here, there) = (&mut *self.here, &mut *self.there);
        // Both compute their fingerprints at the same time.
        let (ours, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| there.buckets());
            let ours = here.buckets();
            (ours, theirs.join())
        });
        let (ours, theirs) = match (ours, theirs) {
            (ours, Ok(theirs)) => (ours?, theirs?),
            (_, Err(panic)) => std::panic::resume_unwind(panic),
        };
        let differ = |bucket: &u16| {
            let at = usize::from(*bucket);
            ours.get(at) != theirs.get(at)
        };
        let buckets: Vec<u16> = (0..crate::peer::BUCKETS).filter(differ).collect();
        let ours: BTreeSet<PeerEntry> = self.here.entries(&buckets)?.into_iter().collect();
        let theirs: BTreeSet<PeerEntry> = match buckets.is_empty() {
            true => BTreeSet::new(),
            false => self.there.entries(&buckets)?.into_iter().collect(),
        };
        let differing = ours.symmetric_difference(&theirs);
        let mut ids: BTreeSet<SessionId> = differing.map(|entry| entry.id.clone()).collect();
        ids.extend(self.redactions.keys().cloned());
        ids.retain(|id| !self.left.contains(id));
        let all: Vec<u16> = (0..crate::peer::BUCKETS).collect();
        let ours = self.here.entries(&all)?.into_iter().map(|entry| entry.id);
        let mut known: BTreeSet<SessionId> = ours.collect();
        known.extend(ids.iter().cloned());
        // A session that was hidden gets its later id before another one with the earlier id arrives.
        let mut ids: Vec<SessionId> = ids.into_iter().collect();
        ids.sort_by_key(|id| !id.as_str().contains('~'));
        Ok((ids, known.len() as u64))
    }

    /// Brings one session together, with its files and receipts.
    fn one(&mut self, id: &SessionId) -> PeerResult<()> {
        if self.refuses_redaction(id) {
            return Ok(());
        }
        let change = match self.change(id) {
            Ok(change) => change,
            Err(PeerError::Session(reason)) => {
                self.fail(id, reason);
                return Ok(());
            }
            Err(fatal) => return Err(fatal),
        };
        let is_same = matches!(change, SessionChange::Same);
        let completed = match self.complete(id, &change) {
            Ok(completed) => completed,
            Err(PeerError::Session(reason)) => {
                self.fail(id, reason);
                return Ok(());
            }
            Err(fatal) => return Err(fatal),
        };
        let report = &mut self.report;
        let id = id.clone();
        match change {
            SessionChange::Gone => {}
            SessionChange::Same if completed => report.completed.push(id),
            SessionChange::Same => report.unchanged += u64::from(is_same),
            SessionChange::Fetched => report.fetched.push(id),
            SessionChange::Sent => report.sent.push(id),
            SessionChange::UpdatedHere => report.updated_here.push(id),
            SessionChange::UpdatedThere => report.updated_there.push(id),
            SessionChange::Merged(branches) => report.merged.push(MergedSession {
                session_id: id,
                branches,
            }),
        }
        Ok(())
    }

    /// Brings the renamed sessions together that are still stored under their earlier ids.
    fn check_renamed(&mut self) -> PeerResult<()> {
        for (from, id, later) in std::mem::take(&mut self.renamed) {
            // The filter selects it in neither database, or it was brought together before.
            if self.peer(from).has(&id)? && !self.left.contains(&later) {
                self.one(&later)?;
            }
            if self.peer(from).has(&id)? {
                let reason =
                    format!("it is `{later}` in the other database, and could not get that id");
                self.fail(&id, reason);
            }
        }
        Ok(())
    }

    /// True if the other database redacted the session and this one keeps it as it is.
    fn refuses_redaction(&mut self, id: &SessionId) -> bool {
        let noted = self.redactions.get(id).into_iter().flatten();
        let is_theirs = |(side, _): &&(SyncSide, RemovalReceipt)| *side == SyncSide::There;
        let refuses = self.keeps_removed && noted.into_iter().any(|noted| is_theirs(&noted));
        if refuses {
            self.report.refused.push(RemovedSession {
                session_id: id.clone(),
                kind: "redact".into(),
                side: SyncSide::Here,
            });
        }
        refuses
    }

    fn change(&mut self, id: &SessionId) -> PeerResult<SessionChange> {
        for _ in 0..ATTEMPTS {
            match self.attempt(id)? {
                Attempt::Done(change) => return Ok(change),
                Attempt::Again => {}
            }
        }
        let reason = "it was written all the time; run the sync again";
        Err(PeerError::Session(reason.into()))
    }

    fn attempt(&mut self, id: &SessionId) -> PeerResult<Attempt> {
        let ours = self.here.load(id, None)?;
        let theirs = self.there.load(id, ours.as_ref())?;
        let (ours, theirs) = match (ours, theirs) {
            (None, None) => return Ok(Attempt::Done(SessionChange::Gone)),
            (Some(ours), None) => return self.copy(SyncSide::There, id, &ours),
            (None, Some(theirs)) => return self.copy(SyncSide::Here, id, &theirs),
            (Some(ours), Some(theirs)) => (ours, theirs),
        };
        let redacted = self.redacted_side(id);
        let union = merge(id, &ours, &theirs, redacted).map_err(PeerError::Session)?;
        let (here, there) = (union.text != ours, union.text != theirs);
        for (side, text, needed) in [
            (SyncSide::There, &theirs, there),
            (SyncSide::Here, &ours, here),
        ] {
            if needed && !self.store(side, id, Some(text), &union.text)? {
                return Ok(Attempt::Again);
            }
        }
        let branches = union.branches.into_iter();
        let branches = branches.map(|(loop_id, of)| MadeBranch { loop_id, of });
        Ok(Attempt::Done(match (here, there) {
            (false, false) => SessionChange::Same,
            (true, false) => SessionChange::UpdatedHere,
            (false, true) => SessionChange::UpdatedThere,
            (true, true) => SessionChange::Merged(branches.collect()),
        }))
    }

    /// Returns the side that redacted a session while the other one did not.
    fn redacted_side(&self, id: &SessionId) -> Option<MergeSide> {
        let noted = self.redactions.get(id)?;
        let has = |side: SyncSide| noted.iter().any(|(other, _)| *other == side);
        match (has(SyncSide::Here), has(SyncSide::There)) {
            (true, false) => Some(MergeSide::A),
            (false, true) => Some(MergeSide::B),
            _ => None,
        }
    }

    /// Writes a session that one database does not have.
    fn copy(&mut self, to: SyncSide, id: &SessionId, text: &SessionText) -> PeerResult<Attempt> {
        let is_renamed = text
            .lines
            .iter()
            .any(|line| line.starts_with("{\"record\":\"hide\""));
        if is_renamed && !self.dry_run && self.peer(to).follow_hides(text, id)? {
            return Ok(Attempt::Again);
        }
        let mut outcome = self.write(to, id, None, text, false)?;
        if let StoreOutcome::Renamed(later) = &outcome {
            let from = other(to);
            if !self.peer(from).has(later)? {
                // The session is brought together under its later id.
                self.renamed.push((from, id.clone(), later.clone()));
                return Ok(Attempt::Done(SessionChange::Gone));
            }
            outcome = self.write(to, id, None, text, true)?;
        }
        if outcome != StoreOutcome::Stored {
            return Ok(Attempt::Again);
        }
        Ok(Attempt::Done(match to {
            SyncSide::Here => SessionChange::Fetched,
            SyncSide::There => SessionChange::Sent,
        }))
    }

    /// Writes a session; returns false if it was written meanwhile.
    fn store(
        &mut self,
        side: SyncSide,
        id: &SessionId,
        expected: Option<&SessionText>,
        text: &SessionText,
    ) -> PeerResult<bool> {
        Ok(self.write(side, id, expected, text, false)? == StoreOutcome::Stored)
    }

    fn write(
        &mut self,
        side: SyncSide,
        id: &SessionId,
        expected: Option<&SessionText>,
        text: &SessionText,
        is_apart: bool,
    ) -> PeerResult<StoreOutcome> {
        if self.dry_run {
            return Ok(StoreOutcome::Stored);
        }
        self.send_files(id, side, true)?;
        match self.peer(side).store(id, expected, text, is_apart)? {
            StoreOutcome::InUse(reason) => Err(PeerError::Session(reason)),
            outcome => Ok(outcome),
        }
    }

    /// Stores the files and the receipts of redactions that one of the databases does not have. Returns true if there
    /// were any.
    fn complete(&mut self, id: &SessionId, change: &SessionChange) -> PeerResult<bool> {
        let mut is_completed = false;
        for (from, receipt) in self.redactions.remove(id).unwrap_or_default() {
            let (to, is_changed) = match (from, change) {
                (SyncSide::Here, SessionChange::UpdatedThere | SessionChange::Merged(_)) => {
                    (SyncSide::There, true)
                }
                (SyncSide::Here, _) => (SyncSide::There, false),
                (SyncSide::There, SessionChange::UpdatedHere | SessionChange::Merged(_)) => {
                    (SyncSide::Here, true)
                }
                (SyncSide::There, _) => (SyncSide::Here, false),
            };
            if matches!(change, SessionChange::Gone) {
                continue;
            }
            self.place(to, &receipt)?;
            is_completed = true;
            if is_changed {
                self.report.removed.push(RemovedSession {
                    session_id: id.clone(),
                    kind: receipt.kind,
                    side: to,
                });
            }
        }
        if self.dry_run || matches!(change, SessionChange::Gone) {
            return Ok(is_completed);
        }
        let here = self.send_files(id, SyncSide::Here, false)?;
        let there = self.send_files(id, SyncSide::There, false)?;
        Ok(is_completed || here + there > 0)
    }

    /// Sends the kept files of a session that the database `to` does not have: it stores them at once, or with its next
    /// write of the session. Returns their number.
    fn send_files(&mut self, id: &SessionId, to: SyncSide, with_session: bool) -> PeerResult<u64> {
        let from = other(to);
        let there = self.peer(to).files(id)?;
        let is_there = |file: &FileName| {
            let is_same =
                |other: &FileName| (&other.format, other.bytes) == (&file.format, file.bytes);
            there.iter().any(is_same)
        };
        let files = self.peer(from).files(id)?;
        let mut sent = 0;
        for file in files.iter().filter(|file| !is_there(file)) {
            let bytes = self.peer(from).file(id, file)?;
            match with_session {
                true => self.peer(to).offer(id, file, bytes)?,
                false => self.peer(to).keep(id, file, &bytes)?,
            }
            sent += 1;
        }
        self.report.files += sent;
        Ok(sent)
    }
}
