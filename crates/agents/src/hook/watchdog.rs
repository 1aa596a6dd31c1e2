//! Ends a hook that takes too long, before its agent notices.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::log::{self, HookEntry};

/// The time for writing the log, which may itself hang.
const TIME_TO_LOG: Duration = Duration::from_millis(100);
/// The hint for a hook that was terminated.
const SLOW: &str = "another program may hold the database, or its disk is slow; the next call of the hook \
    records what is missing";
/// The part of the limit for the start and the end of the program.
const MARGIN: Duration = Duration::from_millis(200);

/// Ends the process with success and no output when the limit is reached.
pub struct Watchdog {
    is_answering: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts the timer for the call in `entry`.
    pub fn start(limit: Duration, mut entry: HookEntry) -> Self {
        let is_answering = Arc::new(AtomicBool::new(false));
        let seen = is_answering.clone();
        let watch = move || {
            thread::sleep(limit.saturating_sub(MARGIN));
            if !seen.swap(true, Ordering::SeqCst) {
                let seconds = limit.as_secs();
                entry.milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                entry.fail(format!("it was ended after {seconds} seconds"), Some(SLOW));
                let (logged, done) = channel();
                thread::spawn(move || logged.send(log::append(&entry)));
                let _ = done.recv_timeout(TIME_TO_LOG);
            } else {
                thread::sleep(TIME_TO_LOG);
            }
            std::process::exit(0);
        };
        // Without the thread the hook still works, but is not terminated.
        let _ = thread::Builder::new().spawn(watch);
        Self { is_answering }
    }

    /// Prints the whole answer, unless the limit was reached.
    pub fn disarm(&self, answer: Option<&str>) {
        if self.is_answering.swap(true, Ordering::SeqCst) {
            // The watchdog is about to end the process.
            thread::sleep(Duration::from_secs(1));
            return;
        }
        if let Some(answer) = answer {
            // An error means that the agent does not read the answer.
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
        }
    }
}
