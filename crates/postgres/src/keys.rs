//! How keys are made: who has the key of anything knows its session.
//!
//! A session's key is the milliseconds since the beginning of 2025 at which it was stored, so that
//! keys come in the order of creation and need no central sequence; who finds one taken takes the
//! next. 40 bits of them last until 2059. The key of what a session holds is
//! `(session << 23) | number`.

use std::collections::HashSet;

/// Bits of a key below its session.
const BITS: u32 = 23;

/// Milliseconds from the epoch to the beginning of 2025.
pub(super) const BIRTH: i64 = 1_735_689_600_000;

/// Returns the session of a key.
pub(super) fn session_of(key: i64) -> i64 {
    key >> BITS
}

/// Returns the key before the first of a session.
pub(super) fn before_first(session: i64) -> i64 {
    session.checked_shl(BITS).unwrap_or(i64::MAX)
}

/// The sessions that a write has locked.
pub(super) type Locked = HashSet<i64>;
