//! `loopstore hook`: what an agent calls while it works.
//!
//! Whatever happens here, the agent goes on: the exit code is 0, the output is whole or empty, and after
//! [`LIMIT`] the process ends by itself. What failed is noted in [`log`], for `loopstore doctor`.

mod answer;
mod codex;
pub mod handback;
pub mod input;
pub mod log;
mod record;
pub mod state;
mod watchdog;

use std::ffi::{OsStr, OsString};
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use loopstore_export::NativeAgent;

use self::log::Entry;
use self::watchdog::Watchdog;
use super::error::CliError;
use super::{App, Cli, Command, Done};

/// The longest that an agent waits for a hook.
pub const LIMIT: Duration = Duration::from_secs(2);
/// The longest that recording a large transcript may take, of which no agent waits for.
const DETACHED_LIMIT: Duration = Duration::from_secs(15 * 60);
/// What to do about a panic.
const PANIC: &str =
    "`loopstore import` of the transcript shows whether it is to blame; please report it";
/// Options before the command that take a value.
const OPTIONS_WITH_VALUE: [&str; 4] = ["--db", "--key-fd", "--key-env", "--key-command"];

/// Record an agent's session as it grows, and help it through a compaction
///
/// The agent calls this, as `loopstore install` sets it up, and hands it the event as JSON on stdin. What
/// is new in its transcript is imported. Where the agent compacts, it gets the working state from the
/// record: in place of its own summary where it allows that, else after it. A hook takes two seconds at
/// most and always exits with 0; `loopstore doctor` shows what failed.
#[derive(clap::Args)]
pub struct Args {
    /// The agent.
    #[arg(value_parser = agent())]
    pub agent: NativeAgent,
    /// The event, as the agent names it.
    pub event: String,
    /// The event's details, from an agent that hands them over as an argument [default: stdin].
    pub details: Option<String>,
    /// Record what stdin names and print nothing: started by a hook that does not wait for it.
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// Reads the name of an agent.
pub fn agent() -> impl TypedValueParser<Value = NativeAgent> {
    let names = NativeAgent::ALL.map(NativeAgent::as_str);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<NativeAgent>())
}

/// Whether the arguments call a hook, and do not ask how to.
pub fn is_called(args: &[OsString]) -> bool {
    let mut rest = args.iter().skip(1).map(OsString::as_os_str);
    let asks = |arg: &OsStr| arg == "--help" || arg == "-h";
    while let Some(arg) = rest.next() {
        if OPTIONS_WITH_VALUE.iter().any(|option| arg == *option) {
            rest.next();
        } else if !arg.as_encoded_bytes().starts_with(b"-") {
            return arg == "hook" && !rest.any(asks);
        } else if asks(arg) {
            return false;
        }
    }
    false
}

/// Runs a hook; nothing that happens in it concerns the agent.
pub fn guarded(args: Vec<OsString>) -> u8 {
    let begun = Instant::now();
    let is_detached = args.iter().any(|arg| arg == "--detached");
    let limit = if is_detached { DETACHED_LIMIT } else { LIMIT };
    let watchdog = Watchdog::start(limit, Entry::of_arguments(&args));
    // What a panic says goes into the log, not to the agent.
    panic::set_hook(Box::new(|_| {}));
    let mut entry = Entry::of_arguments(&args);
    let result = panic::catch_unwind(AssertUnwindSafe(|| run_parsed(args, &mut entry)));
    let answer = match result {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            entry.fail(error.reason(), error.hint());
            None
        }
        Err(panicked) => {
            entry.fail(format!("a panic: {}", said(&*panicked)), Some(PANIC));
            None
        }
    };
    watchdog.disarm(answer.as_deref());
    entry.milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    // Nobody is left who could be told that the log cannot be written; `doctor` tries it, and tells.
    let _ = log::append(&entry);
    0
}

/// Returns the text of a panic.
fn said(panicked: &(dyn std::any::Any + Send)) -> &str {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panicked.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

fn run_parsed(args: Vec<OsString>, entry: &mut Entry) -> Result<Option<String>, CliError> {
    let cli = Cli::try_parse_from(args).map_err(|error| {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        CliError::Usage(format!(
            "the hook was called with other arguments than `loopstore install` writes: {first}"
        ))
    })?;
    super::activate_failpoints();
    let Some(Command::Hook(hook)) = &cli.command else {
        return Ok(None);
    };
    let key = cli.key.read()?;
    let out = super::output::Out::new();
    let mut app = App::new(cli.db, key, cli.key.as_args(), false, out);
    entry.database = Some(app.place());
    answer::to(&mut app, hook, entry)
}

/// Runs a hook that was called in a way that [`is_called`] does not know.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let mut entry = Entry::new(args.agent.as_str(), &args.event);
    if let Some(answer) = answer::to(app, args, &mut entry)? {
        app.out.text(&answer)?;
    }
    Ok(Done::Well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_known_whatever_stands_before_it() {
        let called = |line: &str| is_called(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(called("loopstore hook claude-code Stop"));
        assert!(called("loopstore --db hook hook claude-code Stop"));
        assert!(called("loopstore --db=x --key-env NAME hook pi"));
        assert!(called("loopstore hook"));
        assert!(!called("loopstore hook --help"));
        assert!(!called("loopstore --help hook"));
        assert!(!called("loopstore --db hook sessions"));
        assert!(!called("loopstore search hook"));
        assert!(!called("loopstore"));
    }
}
