//! Retries of a failed request, and the waits before them.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{SummarizerError, SummaryRequest};

/// The number of attempts, and the waits between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// The most attempts, the first included.
    pub attempts: u32,
    /// The wait before the second attempt; it doubles with each attempt.
    pub first_wait: Duration,
    /// The longest wait. If a server requests a longer wait, the request is not retried.
    pub longest_wait: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            attempts: 3,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
        }
    }
}

/// A failed attempt.
pub(super) struct FailedAttempt {
    pub(super) error: SummarizerError,
    /// True if another attempt may succeed.
    pub(super) passing: bool,
    /// The wait that the server requests.
    pub(super) retry_after: Option<Duration>,
}

impl FailedAttempt {
    pub(super) fn last(error: SummarizerError) -> Self {
        Self {
            error,
            passing: false,
            retry_after: None,
        }
    }
}

/// Makes attempts until one succeeds, another is useless, the time is over, or the request is cancelled.
pub(super) fn retry<T>(
    options: &RetryOptions,
    request: &SummaryRequest,
    mut attempt: impl FnMut() -> Result<T, FailedAttempt>,
) -> Result<T, SummarizerError> {
    let mut wait = options.first_wait;
    for left in (0..options.attempts.max(1)).rev() {
        request.time_left()?;
        let failure = match attempt() {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let pause = failure.retry_after.unwrap_or(wait);
        let in_time = match request.time_left() {
            Err(SummarizerError::Cancelled) => return Err(SummarizerError::Cancelled),
            time => time.is_ok_and(|time| pause < time),
        };
        if left == 0 || !failure.passing || pause > options.longest_wait || !in_time {
            return Err(failure.error);
        }
        rest(request, pause)?;
        wait = wait.saturating_mul(2);
    }
    Err(SummarizerError::Timeout)
}

/// Sleeps, and returns early if the request is cancelled.
fn rest(request: &SummaryRequest, pause: Duration) -> Result<(), SummarizerError> {
    const LOOK: Duration = Duration::from_millis(20);
    let mut left = pause;
    while !left.is_zero() {
        request.time_left()?;
        std::thread::sleep(left.min(LOOK));
        left = left.saturating_sub(LOOK);
    }
    Ok(())
}

/// Returns the wait of a `Retry-After` header: seconds, or a date.
pub(super) fn retry_after(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTime::parse_from_rfc2822(value).ok()?;
    Some((date.to_utc() - now).to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = DateTime::parse_from_rfc2822("Wed, 21 Oct 2026 07:28:00 GMT").unwrap();
        let read = |value| retry_after(value, now.to_utc());
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        assert_eq!(
            read("Wed, 21 Oct 2026 07:28:30 GMT"),
            Some(Duration::from_secs(30))
        );
        assert_eq!(read("Wed, 21 Oct 2026 07:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
    }
}
