//! The last copy of each session, while no program drives it.
//!
//! Agents drive loops by leases, so no agent writes while this program holds the leases of a session's loops. A
//! write without a lease (a compaction, an undo, a program that only appends) raises the session's tick: the
//! session is then copied once more.

use std::thread::sleep;
use std::time::{Duration, Instant};

use loopstore::extend::lease::{self, Acquire, Lease};
use loopstore::extend::{
    self as store, LoopKey, SessionKey, SessionRow, StoreError, StoreRead, StoreResult, StoreWrite,
};
use loopstore::model::SessionId;
use loopstore_model::clock::now;

use crate::{ActiveSession, CopyError, Progress, SessionCopier};

/// The term of a lease in milliseconds, which is also the wait of a driver for a copy that was killed. The lease of a
/// session that takes longer to copy may expire; a driver that takes it then is found at the end of the copy.
const TERM: i64 = 30 * 1_000;
/// The time between two attempts at a session.
const PAUSE: Duration = Duration::from_millis(100);

/// The result of taking the leases of a session.
enum LeaseOutcome {
    /// The session was removed.
    Gone,
    /// Another program drives the session.
    Driven(ActiveSession),
    /// This program holds the leases.
    Held(HeldSession),
}

/// A session that no other program drives.
struct HeldSession {
    leases: Vec<Lease>,
    /// The row when the leases were taken.
    row: SessionRow,
}

impl SessionCopier<'_> {
    /// Copies each session once more while no program drives it; records the sessions that were still driven
    /// when `patience` ended.
    pub(super) fn copy_all_undriven(
        &mut self,
        patience: Duration,
        progress: &mut Progress<'_>,
    ) -> Result<(), CopyError> {
        let until = Instant::now() + patience;
        let owner = format!("copy/{}", loopstore_model::clock::new_uuid());
        let mut left = self.sessions()?;
        let (mut done, all) = (0, left.len() as u64);
        loop {
            let (mut again, mut at_work) = (Vec::new(), Vec::new());
            for (key, id) in left {
                match self.copy_undriven(key, &id, &owner)? {
                    None => done += 1,
                    Some(found) => {
                        at_work.push(found);
                        again.push((key, id));
                    }
                }
                progress(done, all);
            }
            let time = until.saturating_duration_since(Instant::now());
            if again.is_empty() || time.is_zero() {
                self.report.at_work = at_work;
                return Ok(());
            }
            sleep(PAUSE.min(time));
            left = again;
        }
    }

    /// Copies a session while no program drives it; otherwise returns the program that does.
    fn copy_undriven(
        &mut self,
        key: SessionKey,
        id: &SessionId,
        owner: &str,
    ) -> Result<Option<ActiveSession>, CopyError> {
        let held_session = match store::write(self.from, |write| take_leases(write, id, owner))? {
            LeaseOutcome::Gone => return Ok(None),
            LeaseOutcome::Driven(at_work) => return Ok(Some(at_work)),
            LeaseOutcome::Held(held_session) => held_session,
        };
        let copied = self.one(key, id);
        let is_undisturbed = store::write(self.from, |write| release(write, id, &held_session))?;
        copied?;
        Ok((!is_undisturbed).then(|| ActiveSession {
            session_id: id.clone(),
            loop_id: None,
            owner: None,
            until: None,
        }))
    }
}

/// Takes the leases of all loops that a program may drive, or of none.
fn take_leases(
    write: &mut dyn StoreWrite,
    id: &SessionId,
    owner: &str,
) -> StoreResult<LeaseOutcome> {
    let Some(row) = write.session(id)? else {
        return Ok(LeaseOutcome::Gone);
    };
    let (loops, now) = (drivable(write, &row)?, now());
    for loop_key in &loops {
        if lease::held(write, *loop_key, now)?.is_some() {
            // The request renews the lease if a clock went back.
            return match lease::acquire(write, *loop_key, owner, TERM, now)? {
                Acquire::Held(error) => Ok(LeaseOutcome::Driven(active_session(id, error)?)),
                Acquire::Acquired(lease) => {
                    lease::release(write, &lease, now)?;
                    take_leases(write, id, owner)
                }
            };
        }
    }
    let mut leases = Vec::new();
    for loop_key in loops {
        match lease::acquire(write, loop_key, owner, TERM, now)? {
            Acquire::Acquired(lease) => leases.push(lease),
            Acquire::Held(error) => return Err(error),
        }
    }
    Ok(LeaseOutcome::Held(HeldSession { leases, row }))
}

/// Returns the current loop and the open ones. An open loop that never had a driver is left out: a lease would
/// look like that of a driver which died, and `recover` would end the loop.
fn drivable(read: &dyn StoreRead, row: &SessionRow) -> StoreResult<Vec<LoopKey>> {
    let at_work = read.loops_at_work(Some(row.key))?;
    let mut loops = Vec::new();
    for key in &at_work {
        if read.lease(*key)?.is_some() {
            loops.push(*key);
        }
    }
    loops.extend(row.current_loop.filter(|key| !at_work.contains(key)));
    Ok(loops)
}

fn active_session(id: &SessionId, error: StoreError) -> StoreResult<ActiveSession> {
    match error {
        StoreError::LeaseHeld {
            loop_id,
            owner,
            until,
        } => Ok(ActiveSession {
            session_id: id.clone(),
            loop_id: loop_id.parse().ok(),
            owner: Some(owner),
            until: Some(until),
        }),
        other => Err(other),
    }
}

/// Releases the leases; returns true if no program wrote since they were taken.
fn release(
    write: &mut dyn StoreWrite,
    id: &SessionId,
    held_session: &HeldSession,
) -> StoreResult<bool> {
    let Some(row) = write.session(id)? else {
        return Ok(true);
    };
    let mut is_undisturbed = row == held_session.row;
    for held in &held_session.leases {
        match lease::release(write, held, now()) {
            Ok(()) => {}
            Err(StoreError::LeaseLost { .. }) => is_undisturbed = false,
            Err(error) => return Err(error),
        }
    }
    Ok(is_undisturbed)
}
