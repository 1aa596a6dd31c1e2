//! `loopstore acp`

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use loopstore::{COUNTERS, Database, Store};
use loopstore_acp::{AgentProcess, Proxy, ProxyOptions, ProxyReport, StoreOpener};
use loopstore_terminal::output::{Out, note};
use loopstore_terminal::server::Access;
use loopstore_terminal::{App, CliError, Done, amount, text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// Record the sessions of an agent that speaks the Agent Client Protocol with an editor
///
/// An editor starts this in place of the agent: `loopstore acp -- AGENT ARGS…`. All bytes pass between the two as
/// they are, and prompts, answers, tool calls, plans, permissions and usage are recorded. An error of the database
/// never reaches the agent or the editor; what was not recorded is counted on stderr. For an agent that cannot load,
/// list or resume sessions the database does it.
#[derive(clap::Args)]
pub struct AcpArgs {
    /// Replace secrets by markers before anything is stored.
    #[arg(long)]
    redact: bool,
    /// Pass every byte on unchanged: answer no request from the database.
    #[arg(long)]
    record_only: bool,
    /// The largest part of a stored session that the agent is given when it loads or resumes it, in tokens.
    #[arg(long, value_name = "N", value_parser = amount::some_tokens, default_value = "30000")]
    max_tokens: u64,
    /// The command that starts the agent.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "AGENT"
    )]
    command: Vec<OsString>,
}

/// Runs the agent until it ends, and ends as it does.
pub fn run(app: &mut App, args: &AcpArgs) -> Result<Done, CliError> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(CliError::Usage("AGENT is missing".into()));
    };
    let mut command = Command::new(program);
    command.args(rest);
    let options = ProxyOptions {
        redact: args.redact,
        record_only: args.record_only,
        max_tokens: args.max_tokens,
        agent: name_of(program),
    };
    let mut proxy = Proxy::new(command, options);
    proxy.warn = Box::new(|error| note(&format!("loopstore acp: nothing is recorded: {error}")));
    pass_signals_on(proxy.process.clone())?;
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let report = proxy.run(input, output, opener(app)).map_err(|error| {
        let shown = text::line(&program.to_string_lossy());
        CliError::Failed(format!("cannot start `{shown}`: {error}").into())
    })?;
    print_unrecorded(&report);
    end_as(report.status)
}

/// Returns the name of the agent's program.
fn name_of(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    name.to_string_lossy().into_owned()
}

/// Returns a function that opens the database in another thread.
fn opener(app: &App) -> StoreOpener {
    let (db, key) = (app.db.clone(), app.key.clone());
    Box::new(move || {
        let app = App::new(Some(db), key, Vec::new(), false, Out::plain());
        let database = app.open(Access::Create(COUNTERS[0]));
        let database: Arc<dyn Database> = database.map_err(|error| error.to_string())?.into();
        Ok(Store::from(database))
    })
}

/// Passes signals on to the agent; this process ends when the agent does.
fn pass_signals_on(process: AgentProcess) -> Result<(), CliError> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT])?;
    // A terminal sends this to the agent, too.
    let is_sent_to_both = std::io::stdin().is_terminal();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal != SIGINT || !is_sent_to_both {
                process.signal(signal);
            }
        }
    });
    Ok(())
}

fn print_unrecorded(report: &ProxyReport) {
    let counts = report.unrecorded.iter();
    let counts = counts.map(|count| format!("{} {}", count.count, count.reason));
    let counts = counts.collect::<Vec<_>>().join(", ");
    if !counts.is_empty() {
        note(&format!("loopstore acp: not recorded: {counts}"));
    }
    if let Some(error) = &report.error {
        note(&format!("loopstore acp: the database failed: {error}"));
    }
}

/// Ends this process as the agent ended.
fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        let _ = low_level::emulate_default_handler(signal);
        let _ = low_level::raise(signal);
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(1))
}
