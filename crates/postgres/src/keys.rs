//! Keys: each contains the key of its session.
//!
//! The key of a session is the number of milliseconds from the beginning of 2025 to its creation, so that keys
//! are in the order of creation and need no central sequence; if a key is taken, the next one is used. 40 bits
//! last until 2059. The key of a row of a session is `(session << 23) | number`.

use std::collections::HashSet;

/// The number of bits below the session in a key.
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
