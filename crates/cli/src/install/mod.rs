//! `loopstore install`

pub mod edit;
mod files;
mod json;
mod plan;
pub mod record;
mod scripts;
mod setup;
mod toml;
mod uninstall;

use loopstore::COUNTERS;
use loopstore_export::NativeAgent;
use serde::Serialize;

use self::plan::{FileChange, Plan};
use self::record::Record;
use self::setup::Setup;
use super::error::CliError;
use super::server::Access;
use super::{App, Done, confirm, hook, text};

pub use self::files::read;
pub use self::plan::taken_out;

/// Set up an agent to record its sessions and to be helped through its compactions
///
/// Writes a few lines into the agent's own configuration, so that it calls `loopstore hook`. What is to be
/// written is shown first and asked for; what was there before is kept, and --uninstall puts it back byte
/// for byte. The sessions go to --db [default: $XDG_DATA_HOME/loopstore/loopstore.db, else in
/// ~/.local/share], which is created if it is not there.
#[derive(clap::Args)]
pub struct Args {
    /// The agent.
    #[arg(value_parser = hook::agent())]
    agent: NativeAgent,
    /// Set up the server of tools too, `loopstore mcp`: the agent can look up what was compacted away.
    #[arg(long)]
    mcp: bool,
    /// Tools of the server that write, which the agent may use too: remember, compact, undo. None removes or
    /// changes a message.
    #[arg(long, value_name = "TOOL", value_delimiter = ',', requires = "mcp",
        value_parser = ["remember", "compact", "undo"])]
    allow: Vec<String>,
    /// Only show what would be written.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Take it out again.
    #[arg(long, conflicts_with_all = ["mcp", "allow"])]
    uninstall: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Installed<'a> {
    agent: &'static str,
    program: &'a str,
    database: &'a str,
    dry_run: bool,
    files: &'a [FileChange],
    notes: &'a [String],
}

const REFUSAL: &str = "this changes the agent's configuration; add --yes to confirm, or --dry-run to only \
    show what would be written";

/// Installs, or takes out what was installed.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let root = edit::root(args.agent)?;
    let known = record::load(args.agent, &root)?;
    if args.uninstall {
        return uninstall::run(app, args, known);
    }
    let setup = Setup::new(app, args.agent, mcp(args, known.as_ref())?)?;
    let plan = Plan::new(&setup, &root, known)?;
    let shown = plan.changes();
    if !app.json {
        for change in &shown {
            app.out.text(&change.shown())?;
        }
        app.out.flush()?;
    }
    if !args.dry_run {
        if plan.changes_any() {
            let question = || {
                Ok(format!(
                    "Change the configuration of {}?",
                    args.agent.as_str()
                ))
            };
            confirm::ask(args.yes, REFUSAL, "nothing was changed", question)?;
        }
        create_database(app, &setup)?;
        plan.carry_out()?;
    }
    let installed = Installed {
        agent: args.agent.as_str(),
        program: &setup.program,
        database: &setup.database,
        dry_run: args.dry_run,
        files: &shown,
        notes: &plan.notes(&setup),
    };
    app.print(&installed, || summary(&installed))?;
    Ok(Done::Well)
}

/// Returns the tools that are allowed, if the server is wanted now or was before.
fn mcp(args: &Args, known: Option<&Record>) -> Result<Option<Vec<String>>, CliError> {
    if !args.mcp {
        return Ok(known.and_then(|known| known.mcp.clone()));
    }
    if !cfg!(feature = "mcp") {
        let text = "this loopstore was built without `mcp`; build it with `--features mcp`: \
                    `cargo install --path crates/cli --features mcp`";
        return Err(CliError::Usage(text.into()));
    }
    if args.agent == NativeAgent::Pi {
        let text = "pi has no client for servers of tools; omit --mcp";
        return Err(CliError::Usage(text.into()));
    }
    Ok(Some(args.allow.clone()))
}

/// Creates the database if it is not there: a hook never does, so that a missing one is noticed.
fn create_database(app: &App, setup: &Setup) -> Result<(), CliError> {
    let (path, key) = (setup.database.clone().into(), app.key.clone());
    let other = App::new(Some(path), key, Vec::new(), false, super::Out::new());
    if other.address().is_none() {
        if other.db.symlink_metadata().is_ok() {
            other.open_to_write()?;
            return Ok(());
        }
        if let Some(folder) = other.db.parent() {
            std::fs::create_dir_all(folder)?;
        }
    }
    other.open(Access::Create(COUNTERS[0]))?;
    Ok(())
}

fn summary(installed: &Installed<'_>) -> String {
    let is_unchanged = installed.files.iter().all(FileChange::is_unchanged);
    let first = match (installed.dry_run, is_unchanged) {
        (_, true) => format!("{} is set up already.", installed.agent),
        (true, false) => "Dry run: nothing was written.".to_owned(),
        (false, false) => format!(
            "{0} is set up: its sessions go to {1}, and `loopstore --db {2} sessions` lists them. \
             `loopstore doctor` shows how it goes; `loopstore install {0} --uninstall` takes it out again.",
            installed.agent,
            text::line(installed.database),
            text::line(&text::quoted(installed.database)),
        ),
    };
    let notes = installed.notes.iter().cloned();
    std::iter::once(first)
        .chain(notes)
        .collect::<Vec<_>>()
        .join("\n")
}
