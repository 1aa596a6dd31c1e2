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
use loopstore_terminal::server::Access;
use loopstore_terminal::{App, CliError, Done, confirm, text};
use serde::Serialize;

use self::plan::{ConfigChange, InstallPlan};
use self::record::InstallRecord;
use self::setup::Setup;

pub use self::files::read;
pub use self::plan::taken_out;

/// A request to set up an agent, or to remove the setup.
#[derive(Clone, Debug)]
pub struct InstallRequest {
    /// The agent.
    pub agent: NativeAgent,
    /// True to set up the server of tools too, `loopstore mcp`.
    pub mcp: bool,
    /// The writing tools of the server that the agent may use.
    pub allow: Vec<String>,
    /// True to replace secrets with markers before anything is stored, also if an earlier setup did not. An earlier
    /// setup that replaces them is kept so.
    pub redact: bool,
    /// True to only show what would be written.
    pub dry_run: bool,
    /// True to write without asking.
    pub yes: bool,
    /// True to remove the setup.
    pub uninstall: bool,
}

/// The JSON of an installation.
#[derive(Serialize)]
struct Installed<'a> {
    agent: &'static str,
    program: &'a str,
    database: &'a str,
    dry_run: bool,
    redact: bool,
    files: &'a [ConfigChange],
    notes: &'a [String],
}

const REFUSAL: &str = "this changes the agent's configuration; add --yes to confirm, or --dry-run to only \
    show what would be written";

/// Installs or uninstalls.
pub fn run(app: &mut App, request: &InstallRequest) -> Result<Done, CliError> {
    let root = edit::root(request.agent)?;
    let known = record::load(request.agent, &root)?;
    if request.uninstall {
        return uninstall::run(app, request, known);
    }
    let redact = request.redact || known.as_ref().is_some_and(|known| known.redact);
    let mcp = mcp(request, known.as_ref())?;
    let setup = Setup::new(app, request.agent, mcp, redact)?;
    let plan = InstallPlan::new(&setup, &root, known)?;
    let shown = plan.changes();
    if !app.json {
        for change in &shown {
            app.out.text(&change.shown())?;
        }
        app.out.flush()?;
    }
    if !request.dry_run {
        if plan.changes_any() {
            let question = || {
                Ok(format!(
                    "Change the configuration of {}?",
                    request.agent.as_str()
                ))
            };
            confirm::ask(request.yes, REFUSAL, "nothing was changed", question)?;
        }
        create_database(app, &setup)?;
        plan.carry_out()?;
    }
    let mut notes = plan.notes(&setup);
    if redact {
        notes.push("Secrets are replaced with markers before its sessions are stored.".into());
    }
    let installed = Installed {
        agent: request.agent.as_str(),
        program: &setup.program,
        database: &setup.database,
        dry_run: request.dry_run,
        files: &shown,
        redact,
        notes: &notes,
    };
    app.print(&installed, || summary(&installed))?;
    Ok(Done::Well)
}

/// Returns the allowed tools, if the server is requested now or was installed before.
fn mcp(
    request: &InstallRequest,
    known: Option<&InstallRecord>,
) -> Result<Option<Vec<String>>, CliError> {
    if !request.mcp {
        return Ok(known.and_then(|known| known.mcp.clone()));
    }
    if request.agent == NativeAgent::Pi {
        let text = "pi has no client for servers of tools; omit --mcp";
        return Err(CliError::Usage(text.into()));
    }
    Ok(Some(request.allow.clone()))
}

/// Creates the database if it does not exist. Hooks never do, so that a missing database is noticed.
fn create_database(app: &App, setup: &Setup) -> Result<(), CliError> {
    let other = app.with_database(setup.database.clone().into());
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
    let is_unchanged = installed.files.iter().all(ConfigChange::is_unchanged);
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
