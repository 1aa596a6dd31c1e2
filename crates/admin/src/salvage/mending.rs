//! Removes inconsistent rows from the copy until it is consistent.

mod loops;

use std::collections::{BTreeMap, BTreeSet};

use loopstore::TokenCounter;
use loopstore::extend::{
    BlockKey, LoopKey, RunKey, SessionKey, SessionRow, StoreError, StoreResult, Tick,
    audit::{self, AuditChain, AuditEntry, AuditKind},
    receipt,
};
use loopstore::internal::{LostRows, Mender, Removable, to_json};
use loopstore::model::{Session, SessionId};
use loopstore_verify::Problem;
use loopstore_verify::internal::{CheckedPart, Subject, faults};

use super::UncopiedRows;

/// The number of attempts on a row after which it is removed.
const ATTEMPTS: u32 = 3;
/// The number of attempts on a session after which it is removed.
const ROUNDS: u32 = 10_000;

type Faults = Vec<(Subject, Problem)>;

/// Removes inconsistent rows and returns a report of them.
pub(super) fn mend(
    mender: &mut Mender<'_>,
    counter: &dyn TokenCounter,
) -> StoreResult<Vec<UncopiedRows>> {
    let mut mending = SalvageMending {
        mender,
        counter,
        lost: Vec::new(),
        attempts: BTreeMap::new(),
    };
    mending.all()?;
    Ok(mending.lost)
}

struct SalvageMending<'m, 'a> {
    mender: &'m mut Mender<'a>,
    counter: &'m dyn TokenCounter,
    lost: Vec<UncopiedRows>,
    attempts: BTreeMap<Subject, u32>,
}

impl SalvageMending<'_, '_> {
    fn all(&mut self) -> StoreResult<()> {
        self.name_headless()?;
        self.remove_faulty(CheckedPart::Blobs)?;
        self.remove_faulty(CheckedPart::Receipts)?;
        self.settle()?;
        for key in self.mender.scan().session_keys()? {
            self.session(key)?;
        }
        self.remove_faulty(CheckedPart::Sources)?;
        self.settle()?;
        self.audit()
    }

    /// Starts audit chains again that do not match the remaining rows. If no lost row explains the mismatch,
    /// rows were removed or changed earlier, and the report says so.
    fn audit(&mut self) -> StoreResult<()> {
        let is_explained = !self.lost.is_empty();
        for key in self.mender.scan().session_keys()? {
            let chain = self.mender.scan().audit_chain(key)?;
            let entries = audit::stored_entries(self.mender.scan(), key)?;
            self.fit_chain(key, &chain, &entries, is_explained)?;
        }
        let receipts = self.mender.scan().receipts()?;
        let digests = receipts.iter().filter_map(receipt::digest);
        let entries: Vec<AuditEntry> = digests
            .map(|digest| AuditEntry::new(AuditKind::Receipt, digest))
            .collect();
        for chain in self.mender.scan().receipt_chains()? {
            self.fit_chain(audit::RECEIPTS, &chain, &entries, is_explained)?;
        }
        Ok(())
    }

    fn fit_chain(
        &mut self,
        session: SessionKey,
        chain: &AuditChain,
        entries: &[AuditEntry],
        is_explained: bool,
    ) -> StoreResult<()> {
        if chain.fits(session, entries) {
            return Ok(());
        }
        self.mender.begin_audit(session, entries)?;
        if !is_explained {
            let place = match session {
                audit::RECEIPTS => "receipts".to_owned(),
                SessionKey(key) => format!("session with key {key}"),
            };
            self.lose(
                "audit",
                place,
                "it did not fit what is stored, and begins anew",
            );
        }
        Ok(())
    }

    fn lose(&mut self, kind: &str, place: impl Into<String>, reason: impl Into<String>) {
        self.lost.push(UncopiedRows {
            kind: kind.into(),
            place: place.into(),
            reason: reason.into(),
        });
    }

    /// Counts an attempt on a row.
    fn attempt(&mut self, subject: Subject) -> u32 {
        let attempts = self.attempts.entry(subject).or_default();
        *attempts += 1;
        *attempts
    }

    /// Adds a row for each session of which only loops are left.
    fn name_headless(&mut self) -> StoreResult<()> {
        for (key, tick) in self.mender.headless()? {
            let name = format!("salvaged-{}", key.0);
            let row = headless(key, tick, &name)?;
            self.mender.insert_session_at(&row)?;
            let place = format!("session with key {}", key.0);
            let reason = format!("its row cannot be read; its loops are in session {name}");
            self.lose("session", place, reason);
        }
        Ok(())
    }

    /// Removes the rows of a part that have a fault.
    fn remove_faulty(&mut self, part: CheckedPart) -> StoreResult<()> {
        let mut seen = BTreeSet::new();
        for (subject, problem) in self.faults(part)? {
            let (kind, row) = match subject {
                Subject::Blob(key) => ("blob", Removable::Blob(key)),
                Subject::Receipt(key) => ("receipt", Removable::Receipt(key)),
                Subject::Source(key) => ("source", Removable::Source(key)),
                _ => continue,
            };
            if seen.insert(subject) {
                self.mender.remove(row)?;
                self.lose(kind, problem.place, problem.detail);
            }
        }
        Ok(())
    }

    fn faults(&self, part: CheckedPart) -> StoreResult<Faults> {
        faults(self.mender.scan(), self.counter, part)
    }

    /// Removes rows that refer to removed rows.
    fn settle(&mut self) -> StoreResult<()> {
        for loops in self.mender.homeless()? {
            let place = format!("loop with key {}: {} messages", loops.key.0, loops.messages);
            self.lose("message", place, "the row of their loop is gone");
        }
        for key in self.mender.parted()? {
            self.detach(key, "its parent is gone")?;
        }
        loop {
            let runs = self.mender.broken_runs()?;
            if runs.is_empty() {
                break;
            }
            for key in runs {
                self.remove_run(key, "a loop or block that it needs is gone")?;
            }
        }
        for (table, key) in self.mender.sweep()? {
            let (table, keys) = (table, Some((key, key)));
            let reason = "what it belongs to is gone".into();
            self.lost.push(UncopiedRows::of(&LostRows {
                table,
                keys,
                reason,
            }));
        }
        Ok(())
    }

    /// Repairs a session until it has no fault.
    fn session(&mut self, key: SessionKey) -> StoreResult<()> {
        for _ in 0..ROUNDS {
            for loop_key in self.mender.scan().loop_keys(key)? {
                self.mender.renumber(loop_key)?;
            }
            let faults = self.faults(CheckedPart::Session(key))?;
            if faults.is_empty() {
                return Ok(());
            }
            if !self.mend_session(key, &faults)? {
                break;
            }
            self.settle()?;
        }
        let place = format!("session with key {}", key.0);
        self.mender.remove(Removable::Session(key))?;
        self.lose("session", place, "what is left of it does not fit together");
        self.settle()
    }

    /// Repairs the most basic of the faults, as the others may follow from it. Returns true if it repaired one.
    fn mend_session(&mut self, key: SessionKey, faults: &Faults) -> StoreResult<bool> {
        let is_row = |subject: &Subject| matches!(subject, Subject::Session(_));
        if let Some((_, problem)) = faults.iter().find(|(subject, _)| is_row(subject)) {
            return self.session_row(key, problem);
        }
        let mut loops = BTreeMap::<LoopKey, Vec<&(Subject, Problem)>>::new();
        for fault in faults {
            if let Subject::Loop(key) | Subject::Message(key, _) = fault.0 {
                loops.entry(key).or_default().push(fault);
            }
        }
        if !loops.is_empty() {
            for (key, faults) in loops {
                self.one_loop(key, &faults)?;
            }
            return Ok(true);
        }
        self.overlays(faults)
    }

    /// Repairs the row of a session.
    fn session_row(&mut self, key: SessionKey, problem: &Problem) -> StoreResult<bool> {
        if self.attempt(Subject::Session(key)) > ATTEMPTS {
            return Ok(false);
        }
        let Ok(mut row) = self.mender.scan().session_by_key(key) else {
            return Ok(false);
        };
        let loops = self.mender.scan().loop_keys(key)?;
        if !row.current_loop.is_some_and(|key| loops.contains(&key)) {
            row.current_loop = loops.last().copied();
        }
        let is_own = |meta: &Session| meta.session_id == row.session_id;
        if !serde_json::from_str(&row.meta).is_ok_and(|meta| is_own(&meta)) {
            row.meta = to_json(&Session::new(row.session_id.clone(), "salvaged"))?;
            self.lose("session", &problem.place, &problem.detail);
        }
        self.mender.write().update_session(&row)?;
        Ok(true)
    }

    /// Removes incomplete runs, undos and redos; if there are none, incomplete manifests.
    fn overlays(&mut self, faults: &Faults) -> StoreResult<bool> {
        let mut is_mended = false;
        let mut seen = BTreeSet::new();
        for (subject, problem) in faults {
            if !seen.insert(*subject) {
                continue;
            }
            match *subject {
                Subject::Run(key) => self.remove_run(key, &problem.detail)?,
                Subject::Block(key) => match self.run_of(key) {
                    Some(run) => self.remove_run(run, &describe(problem))?,
                    None => continue,
                },
                Subject::Import(key) => {
                    self.mender.remove(Removable::Import(key))?;
                    self.lose("import", &problem.place, &problem.detail);
                }
                Subject::Flip(key) => {
                    self.mender.remove(Removable::Flip(key))?;
                    self.lose("flip", &problem.place, &problem.detail);
                }
                Subject::Pin(key) => {
                    self.mender.remove(Removable::Pin(key))?;
                    self.lose("pin", &problem.place, &problem.detail);
                }
                Subject::Hide(key) => {
                    self.mender.remove(Removable::Hide(key))?;
                    self.lose("hide", &problem.place, &problem.detail);
                }
                _ => continue,
            }
            is_mended = true;
        }
        if is_mended {
            return Ok(true);
        }
        for (subject, problem) in faults {
            if let Subject::Manifest(key) = *subject
                && seen.remove(subject)
            {
                self.mender.remove(Removable::Manifest(key))?;
                self.lose("manifest", &problem.place, &problem.detail);
                is_mended = true;
            }
        }
        Ok(is_mended)
    }

    fn run_of(&self, key: BlockKey) -> Option<RunKey> {
        self.mender.scan().block_by_key(key).ok().map(|row| row.run)
    }

    fn remove_run(&mut self, key: RunKey, reason: &str) -> StoreResult<()> {
        let row = self.mender.scan().run_by_key(key);
        let place = match &row {
            Ok(row) => format!("run {}", row.run_id),
            Err(_) => format!("run with key {}", key.0),
        };
        self.mender.remove(Removable::Run(key))?;
        self.lose("run", place, reason);
        Ok(())
    }
}

fn describe(problem: &Problem) -> String {
    format!("{}: {}", problem.place, problem.detail)
}

fn headless(key: SessionKey, tick: Tick, name: &str) -> StoreResult<SessionRow> {
    let damaged = |error: loopstore::model::InvalidId| StoreError::Damaged(error.to_string());
    let session_id = SessionId::new(name).map_err(damaged)?;
    let session = Session::new(session_id.clone(), "salvaged");
    Ok(SessionRow {
        key,
        session_id,
        agent_id: session.agent_id.clone(),
        title: None,
        created_at: None,
        last_active_at: None,
        current_loop: None,
        tick,
        source: None,
        project: None,
        meta: to_json(&session)?,
    })
}
