//! The time limit of tests: it ends a test that hangs, and judges no speed.

use std::time::{Duration, Instant};

/// Hundreds of times longer than any operation takes on an idle machine, so that a busy machine does not reach
/// it either.
pub const HUNG: Duration = Duration::from_secs(300);

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HUNG, "hung: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
