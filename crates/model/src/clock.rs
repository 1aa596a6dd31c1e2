//! The system clock, and ids with its time.
//!
//! A clock may show a time before 1970, on a board without a battery or if it was set by hand. Libraries that read the
//! clock panic then; these functions do not.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use uuid::{NoContext, Timestamp, Uuid};

/// Returns milliseconds since 1970, negative before.
#[doc(hidden)]
pub fn now() -> i64 {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    }
}

/// Returns the current time, to the millisecond.
#[doc(hidden)]
pub fn utc_now() -> DateTime<Utc> {
    // A system clock is within the years that a time can have.
    DateTime::from_timestamp_millis(now()).unwrap_or_default()
}

/// Returns a new UUIDv7. If the clock is before 1970, its time is 1970, and only its random bits differ.
#[doc(hidden)]
pub fn new_uuid() -> Uuid {
    match now() {
        0.. => Uuid::now_v7(),
        _ => Uuid::new_v7(Timestamp::from_unix(NoContext, 0, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_clock_before_the_epoch_differ() {
        let id = || Uuid::new_v7(Timestamp::from_unix(NoContext, 0, 0));
        assert_ne!(id(), id());
        assert_eq!(id().get_version_num(), 7);
    }
}
