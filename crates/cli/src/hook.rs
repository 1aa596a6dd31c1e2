//! `loopstore hook`

use std::ffi::{OsStr, OsString};

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use loopstore_agents::hook::log::HookEntry;
use loopstore_agents::hook::{self, HookCall};
use loopstore_export::NativeAgent;
use loopstore_terminal::output::Out;
use loopstore_terminal::{App, CliError, Done};

use super::error::hint;
use super::{Cli, Command, activate_failpoints};

/// Options before the command that take a value.
const OPTIONS_WITH_VALUE: [&str; 4] = ["--db", "--key-fd", "--key-env", "--key-command"];

/// Record an agent's session as it grows, and help it through a compaction
///
/// The agent calls this, as `loopstore install` sets it up, and hands it the event as JSON on stdin. What
/// is new in its transcript is imported. Where the agent compacts, it gets the working state from the
/// record: in place of its own summary where it allows that, else after it. A hook takes two seconds at
/// most and always exits with 0; `loopstore doctor` shows what failed.
#[derive(clap::Args)]
pub struct HookArgs {
    /// The agent.
    #[arg(value_parser = agent())]
    agent: NativeAgent,
    /// The event, as the agent names it.
    event: String,
    /// The event's details, from an agent that hands them over as an argument [default: stdin].
    details: Option<String>,
    /// Record what stdin names and print nothing: started by a hook that does not wait for it.
    #[arg(long, hide = true)]
    detached: bool,
}

impl HookArgs {
    fn call(&self) -> HookCall {
        HookCall {
            agent: self.agent,
            event: self.event.clone(),
            details: self.details.clone(),
            detached: self.detached,
        }
    }
}

/// Returns a parser of agents' names.
pub fn agent() -> impl TypedValueParser<Value = NativeAgent> {
    let names = NativeAgent::ALL.map(NativeAgent::as_str);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<NativeAgent>())
}

/// True if the arguments call a hook, and do not ask for its help.
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

/// Runs a hook. Its errors never reach the agent.
pub fn guarded(args: Vec<OsString>) -> u8 {
    hook::guarded(args, hint, answer)
}

fn answer(args: Vec<OsString>, entry: &mut HookEntry) -> Result<Option<String>, CliError> {
    let cli = Cli::try_parse_from(args).map_err(|error| {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        CliError::Usage(format!(
            "the hook was called with other arguments than `loopstore install` writes: {first}"
        ))
    })?;
    activate_failpoints();
    let Some(Command::Hook(args)) = &cli.command else {
        return Ok(None);
    };
    let key = cli.key.read()?;
    let out = Out::plain();
    let mut app = App::new(cli.db, key, cli.key.as_args(), false, out).with_hints(hint);
    entry.database = Some(app.place());
    hook::answer(&mut app, &args.call(), entry)
}

/// Runs a hook that was called in a form that [`is_called`] does not recognise.
pub fn run(app: &mut App, args: &HookArgs) -> Result<Done, CliError> {
    hook::run(app, &args.call())
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
