//! `loopstore hook`: the command that an agent calls while it works.
//!
//! After any failure the agent continues: the exit code is 0, the output is complete or empty, and after [`LIMIT`]
//! the process ends by itself. Failures are recorded in [`log`], for `loopstore doctor`.

mod answer;
mod codex;
pub mod handback;
pub mod input;
pub mod log;
mod record;
pub mod state;
mod watchdog;

use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use loopstore_export::NativeAgent;
use loopstore_terminal::{App, CliError, Done, Hints};

use self::log::HookEntry;
use self::watchdog::Watchdog;

pub use self::answer::answer;

/// The maximum time that an agent waits for a hook.
pub const LIMIT: Duration = Duration::from_secs(2);
/// The maximum time for recording a large transcript, which no agent waits for.
const DETACHED_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The hint for a panic.
const PANIC: &str =
    "`loopstore import` of the transcript shows whether it is to blame; please report it";
/// A call of a hook.
#[derive(Clone, Debug)]
pub struct HookCall {
    /// The agent.
    pub agent: NativeAgent,
    /// The event, as the agent names it.
    pub event: String,
    /// The event, if the agent passes it as an argument; `None` to read it from stdin.
    pub details: Option<String>,
    /// True for a background process that a hook started: it records the transcripts that stdin names, and prints
    /// nothing.
    pub detached: bool,
}

/// Runs a hook. `answer` parses the arguments and returns the output for the agent. Failures of `answer` are recorded
/// in the log and are not reported to the agent.
pub fn guarded(
    args: Vec<OsString>,
    hints: Hints,
    answer: impl FnOnce(Vec<OsString>, &mut HookEntry) -> Result<Option<String>, CliError>,
) -> u8 {
    let begun = Instant::now();
    let is_detached = args.iter().any(|arg| arg == "--detached");
    let limit = if is_detached { DETACHED_LIMIT } else { LIMIT };
    let watchdog = Watchdog::start(limit, HookEntry::of_arguments(&args));
    // The message of a panic goes into the log, not to the agent.
    panic::set_hook(Box::new(|_| {}));
    let mut entry = HookEntry::of_arguments(&args);
    let result = panic::catch_unwind(AssertUnwindSafe(|| answer(args, &mut entry)));
    let answer = match result {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            entry.fail(error.reason(), error.hint(hints));
            None
        }
        Err(panicked) => {
            entry.fail(format!("a panic: {}", panic_text(&*panicked)), Some(PANIC));
            None
        }
    };
    watchdog.disarm(answer.as_deref());
    entry.milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    // If the log cannot be written, there is no place to report it; `doctor` detects and reports it.
    let _ = log::append(&entry);
    0
}

/// Returns the text of a panic.
fn panic_text(panicked: &(dyn std::any::Any + Send)) -> &str {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panicked.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// Runs a hook without [`guarded`], and returns its errors.
///
/// # Errors
/// If the event cannot be read, or the transcripts cannot be recorded.
pub fn run(app: &mut App, call: &HookCall) -> Result<Done, CliError> {
    let mut entry = HookEntry::new(call.agent.as_str(), &call.event);
    if let Some(answer) = answer(app, call, &mut entry)? {
        app.out.text(&answer)?;
    }
    Ok(Done::Well)
}
