//! One driver per loop: leases with a fencing token.
//!
//! A lease names its holder, and ends at a time by the wall clock unless it is renewed. Each acquisition
//! raises the token, and every write of a holder compares the token within the transaction: a holder
//! that lost its lease cannot write, whatever its own clock shows.
//!
//! **When the holder dies.** A backend may know which holders live ([`LeaseGuard`]): SQLite does if its
//! file is on a local file system of Linux. A lease then ends with its holder, whatever time it has left.
//! Elsewhere its time decides.
//!
//! **When the clock goes back.** A lease ends when the clock reaches `expires_at`, so that a clock
//! that goes back never frees it early. So that the lease is not held for ever either, a request that
//! finds `renewed_at` in the future restarts the term of the lease from now. The lease of a dead holder is
//! then free at most one term after the first request; a live holder renews as before. A clock that goes
//! forward may free a lease early; the token then keeps the old holder from writing.

use std::any::Any;
use std::sync::Arc;

use super::error::{StoreError, StoreResult};
use super::{LoopKey, StoreRead, StoreWrite};
pub use crate::clock::now;
use crate::model::Time;

/// A row of `leases`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// The loop.
    pub loop_key: LoopKey,
    /// The present or last holder.
    pub owner: String,
    /// The fencing token, raised with each acquisition.
    pub token: i64,
    /// Its term in milliseconds.
    pub ttl: i64,
    /// Milliseconds since the epoch.
    pub renewed_at: i64,
    /// Milliseconds since the epoch.
    pub expires_at: i64,
    /// True if the lease was released or revoked.
    pub released: bool,
}

impl LeaseRow {
    /// True if the lease has not expired at `now` and was not released.
    pub fn is_unexpired(&self, now: i64) -> bool {
        !self.released && now < self.expires_at
    }
}

/// A guard that marks the holder of a lease as alive until the last clone is dropped.
pub type LeaseGuard = Arc<dyn Any + Send + Sync>;

/// The proof that a driver holds the lease of a loop, which the driver passes to each write. If the backend knows
/// which holders are alive, the lease ends when the last clone of this value is dropped.
#[derive(Clone, Debug)]
pub struct Lease {
    pub(crate) loop_key: LoopKey,
    pub(crate) owner: String,
    pub(crate) token: i64,
    pub(crate) ttl: i64,
    taken_over_from: Option<String>,
    _guard: Option<LeaseGuard>,
}

impl Lease {
    /// Returns the holder.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns its fencing token; a later holder has a larger one.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// True if the loop was never leased before.
    #[doc(hidden)]
    pub fn is_first(&self) -> bool {
        self.token == 1
    }

    /// Returns the former holder if its lease was not released, but expired or ended with its process.
    pub fn taken_over_from(&self) -> Option<&str> {
        self.taken_over_from.as_deref()
    }
}

/// The result of acquiring a lease.
#[derive(Debug)]
#[must_use = "a lease ends with its holder: when it is dropped"]
pub enum Acquire {
    /// The lease was free or had ended.
    Acquired(Lease),
    /// Another driver holds the lease. The caller must still commit the transaction, which may have restarted the
    /// term of the lease after the clock went back.
    Held(StoreError),
}

/// Acquires the lease of a loop for `ttl` milliseconds if the lease is free: it was never held, was released or has
/// expired, or its holder is gone.
///
/// # Errors
/// If the store fails.
///
/// # Examples
/// ```
/// use loopstore::extend as store;
/// use loopstore::extend::lease::{self, Acquire};
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
/// let now = Time::now().millis().unwrap_or_default();
/// let take = |owner: &str| {
///     store::write(&store, |write| {
///         let loop_key = write.current(&id)?.map(|(_, loop_key)| loop_key);
///         let loop_key = loop_key.ok_or(StoreError::NoLoop(id.to_string()))?;
///         lease::acquire(write, loop_key, owner, 60_000, now)
///     })
/// };
/// let Acquire::Acquired(lease) = take("one")? else {
///     panic!("nobody has it");
/// };
/// assert!(matches!(take("two")?, Acquire::Held(StoreError::LeaseHeld { .. })));
/// store::write(&store, |write| lease::release(write, &lease, now))?;
/// assert!(matches!(take("two")?, Acquire::Acquired(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn acquire(
    write: &mut dyn StoreWrite,
    loop_key: LoopKey,
    owner: &str,
    ttl: i64,
    now: i64,
) -> StoreResult<Acquire> {
    let ttl = ttl.max(1);
    let before = write.lease(loop_key)?;
    if let Some(row) = &before
        && is_held(write, row, now)?
    {
        let row = recounted(write, row, now)?;
        return Ok(Acquire::Held(held_error(write, &row)?));
    }
    let token = next_token(before.as_ref())?;
    let lease = Lease {
        loop_key,
        owner: owner.to_owned(),
        token,
        ttl,
        // Before the lease is visible to others: its holder would pass for dead.
        _guard: write.guard_lease(loop_key, token)?,
        taken_over_from: before.filter(|row| !row.released).map(|row| row.owner),
    };
    write.put_lease(&row_of(&lease, now))?;
    Ok(Acquire::Acquired(lease))
}

/// Checks within a write that the lease still holds, and renews it.
///
/// # Errors
/// [`StoreError::LeaseLost`] if another driver acquired it, or it was revoked.
///
/// # Examples
/// ```
/// use loopstore::extend as store;
/// use loopstore::extend::lease::{self, Acquire};
/// use loopstore::*;
///
/// # use loopstore::extend::{append, session};
/// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
/// # let new = Session::new(id.clone(), "agent");
/// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
/// # monday.status = LoopStatus::Completed;
/// # let loop_key = store::write(&store, |write| {
/// #     let key = session::create_session(write, &new, None, None)?;
/// #     let loop_key = session::create_loop(write, key, &monday)?;
/// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
/// #     let messages = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
/// #     append::append(write, loop_key, messages.collect(), &HeuristicTokenCounter)?;
/// #     Ok(loop_key)
/// # })?;
/// let minute = 60_000;
/// let one = store::write(&store, |write| lease::acquire(write, loop_key, "one", minute, 0))?;
/// // Two minutes later another one takes it, and the first is refused from then on.
/// let now = 2 * minute;
/// let two = store::write(&store, |write| lease::acquire(write, loop_key, "two", minute, now))?;
/// let (Acquire::Acquired(one), Acquire::Acquired(_)) = (one, two) else {
///     panic!("it was free both times");
/// };
/// let held = store::write(&store, |write| lease::renew(write, &one, now));
/// assert!(matches!(held, Err(StoreError::LeaseLost { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn renew(write: &mut dyn StoreWrite, lease: &Lease, now: i64) -> StoreResult<()> {
    let row = write.lease(lease.loop_key)?;
    check(write, lease, row.as_ref())?;
    write.put_lease(&row_of(lease, now))
}

/// Checks within a write that the lease still holds, and renews it once half of its time has passed.
#[doc(hidden)]
pub fn keep(write: &mut dyn StoreWrite, lease: &Lease, now: i64) -> StoreResult<()> {
    let row = write.lease(lease.loop_key)?;
    keep_row(write, lease, row.as_ref(), now)
}

/// Checks and renews a lease as [`keep`] does, from a row that was read in this transaction.
pub(super) fn keep_row(
    write: &mut dyn StoreWrite,
    lease: &Lease,
    row: Option<&LeaseRow>,
    now: i64,
) -> StoreResult<()> {
    check(write, lease, row)?;
    let fresh = row.is_some_and(|row| {
        let age = now.saturating_sub(row.renewed_at);
        (0..lease.ttl / 2).contains(&age)
    });
    match fresh {
        true => Ok(()),
        false => write.put_lease(&row_of(lease, now)),
    }
}

/// Releases a lease.
///
/// # Errors
/// As [`renew`].
pub fn release(write: &mut dyn StoreWrite, lease: &Lease, now: i64) -> StoreResult<()> {
    let row = write.lease(lease.loop_key)?;
    check(write, lease, row.as_ref())?;
    write.put_lease(&LeaseRow {
        released: true,
        ..row_of(lease, now)
    })
}

/// Revokes a lease: the next write of its holder fails.
///
/// # Errors
/// If the store fails.
pub fn revoke(write: &mut dyn StoreWrite, loop_key: LoopKey) -> StoreResult<()> {
    let Some(row) = write.lease(loop_key)? else {
        return Ok(());
    };
    write.put_lease(&LeaseRow {
        token: next_token(Some(&row))?,
        released: true,
        ..row
    })
}

/// Checks that a loop is not leased, so that a write without a lease is allowed. A driver whose lease has ended loses
/// the lease.
///
/// # Errors
/// [`StoreError::LeaseHeld`] if the loop is leased.
pub fn ensure_unleased(write: &mut dyn StoreWrite, loop_key: LoopKey, now: i64) -> StoreResult<()> {
    let row = write.lease(loop_key)?;
    ensure_row_unleased(write, row.as_ref(), now)
}

/// Allows the write as [`ensure_unleased`] does, from a lease that was read in this transaction.
pub(super) fn ensure_row_unleased(
    write: &mut dyn StoreWrite,
    lease: Option<&LeaseRow>,
    now: i64,
) -> StoreResult<()> {
    match lease {
        None => Ok(()),
        Some(row) if row.released => Ok(()),
        Some(row) if is_held(write, row, now)? => Err(held_error(write, row)?),
        Some(row) => revoke(write, row.loop_key),
    }
}

/// Returns the lease of a loop if it is held at `now`.
///
/// # Errors
/// If the store fails.
pub fn held(
    read: &(impl StoreRead + ?Sized),
    loop_key: LoopKey,
    now: i64,
) -> StoreResult<Option<LeaseRow>> {
    match read.lease(loop_key)? {
        Some(row) if is_held(read, &row, now)? => Ok(Some(row)),
        _ => Ok(None),
    }
}

fn is_held(read: &(impl StoreRead + ?Sized), row: &LeaseRow, now: i64) -> StoreResult<bool> {
    Ok(row.is_unexpired(now) && !read.is_holder_gone(row)?)
}

fn check(read: &dyn StoreRead, lease: &Lease, row: Option<&LeaseRow>) -> StoreResult<()> {
    match row {
        Some(row) if row.token == lease.token && !row.released => Ok(()),
        other => Err(StoreError::LeaseLost {
            loop_id: read.loop_by_key(lease.loop_key)?.loop_id.to_string(),
            token: lease.token,
            to: other
                .filter(|row| !row.released)
                .map(|row| row.owner.clone()),
        }),
    }
}

/// Restarts the term of a lease from `now` if the clock was later when the lease was renewed.
fn recounted(write: &mut dyn StoreWrite, row: &LeaseRow, now: i64) -> StoreResult<LeaseRow> {
    if row.renewed_at <= now {
        return Ok(row.clone());
    }
    let row = LeaseRow {
        renewed_at: now,
        expires_at: now.saturating_add(row.ttl),
        ..row.clone()
    };
    write.put_lease(&row)?;
    Ok(row)
}

/// Restarts the term of a loop's lease if the clock went back since it was renewed.
///
/// # Errors
/// If the store fails.
pub fn recount(write: &mut dyn StoreWrite, loop_key: LoopKey, now: i64) -> StoreResult<()> {
    match held(write, loop_key, now)? {
        Some(row) => recounted(write, &row, now).map(drop),
        None => Ok(()),
    }
}

fn held_error(read: &dyn StoreRead, row: &LeaseRow) -> StoreResult<StoreError> {
    Ok(StoreError::LeaseHeld {
        loop_id: read.loop_by_key(row.loop_key)?.loop_id.to_string(),
        owner: row.owner.clone(),
        until: time_text(row.expires_at),
    })
}

/// Returns milliseconds since the epoch as ISO-8601 text.
#[doc(hidden)]
pub fn time_text(ms: i64) -> String {
    match Time::from_millis(ms) {
        Some(time) => time.as_str().to_owned(),
        None => format!("{ms} ms after the epoch"),
    }
}

fn next_token(before: Option<&LeaseRow>) -> StoreResult<i64> {
    before
        .map_or(0, |row| row.token)
        .checked_add(1)
        .ok_or_else(|| StoreError::Damaged("the token of a lease is at its end".into()))
}

fn row_of(lease: &Lease, now: i64) -> LeaseRow {
    LeaseRow {
        loop_key: lease.loop_key,
        owner: lease.owner.clone(),
        token: lease.token,
        ttl: lease.ttl,
        renewed_at: now,
        expires_at: now.saturating_add(lease.ttl),
        released: false,
    }
}
