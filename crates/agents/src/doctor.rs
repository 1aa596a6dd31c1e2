//! `loopstore doctor`

mod transcripts;

use std::io::IsTerminal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use loopstore::{Database, OpenError};
use loopstore_export::NativeAgent;
use loopstore_terminal::output::note;
use loopstore_terminal::{App, CliError, Done, text};
use serde::Serialize;

use self::transcripts::{RecordedTranscripts, StoredTranscripts};
use super::hook::log::{self, HookEntry};
use super::hook::state;
use super::install::record::InstallRecord;
use super::install::{self, record};

/// The maximum number of kinds of failures in the list.
const LISTED: usize = 20;

/// The JSON of the command.
#[derive(Serialize)]
struct Report {
    ok: bool,
    agents: Vec<AgentReport>,
    databases: Vec<DatabaseReport>,
    /// The transcripts of agents on this machine.
    transcripts: Vec<RecordedTranscripts>,
    failures: Vec<HookFailure>,
    problems: Vec<SetupProblem>,
    log: Option<PathBuf>,
}

/// An agent.
#[derive(Serialize)]
struct AgentReport {
    agent: &'static str,
    installed: bool,
    /// The folder with its configuration.
    root: Option<PathBuf>,
    program: Option<PathBuf>,
    database: Option<String>,
    /// True if the MCP server is set up.
    mcp: bool,
    /// The number of calls of its hooks in the log.
    calls: usize,
    /// The reads of whole transcripts by processes that its hooks started.
    background: BackgroundReads,
    last_call: Option<HookEntry>,
}

/// The background reads in the log, and their cost.
#[derive(Default, Serialize)]
struct BackgroundReads {
    calls: u64,
    milliseconds: u64,
    added_messages: u64,
}

#[derive(Serialize)]
struct DatabaseReport {
    path: String,
    opens: bool,
    /// The size of the file and its write-ahead log; `None` for a server.
    bytes: Option<u64>,
}

/// A kind of failure of a hook.
#[derive(Serialize)]
struct HookFailure {
    agent: String,
    event: String,
    reason: String,
    hint: Option<String>,
    times: usize,
    last_at: String,
    /// True if a later call succeeded.
    made_good: bool,
}

/// A problem with the setup, and its remedy.
#[derive(Serialize)]
pub(crate) struct SetupProblem {
    what: String,
    hint: String,
}

/// Checks and reports.
pub fn run(app: &mut App) -> Result<Done, CliError> {
    let mut problems = Vec::new();
    let entries = entries(&mut problems);
    let records = record::all();
    for record in &records {
        check(record, &mut problems);
    }
    let mut stored = StoredTranscripts::default();
    let databases = databases(app, &records, &mut stored, &mut problems);
    let transcripts = stored.compare();
    problems.extend(transcripts.iter().filter_map(|one| one.problem(&records)));
    let failures = failures(&entries);
    let agents = NativeAgent::ALL
        .iter()
        .flat_map(|agent| reports(*agent, &records, &entries));
    let agents: Vec<AgentReport> = agents.collect();
    let report = Report {
        ok: problems.is_empty() && failures.iter().all(|failure| failure.made_good),
        agents,
        databases,
        transcripts,
        failures,
        problems,
        log: log::path(),
    };
    app.print(&report, || summary(&report))?;
    Ok(if report.ok { Done::Well } else { Done::Badly })
}

/// Prints a line on a terminal if something is wrong with agents that are set up. A command calls this after its own
/// output, with the database that it read.
pub fn warn(app: &App, store: &dyn Database) {
    if app.json || !std::io::stderr().is_terminal() {
        return;
    }
    let records = record::all();
    if !records.is_empty() && !is_well(store, &records) {
        note("something is wrong with the recording of agents; `loopstore doctor` shows what");
    }
}

/// True if nothing is wrong with the setup, the hooks and the transcripts of agents that record into this database.
fn is_well(store: &dyn Database, records: &[InstallRecord]) -> bool {
    let mut problems = Vec::new();
    let entries = entries(&mut problems);
    for record in records {
        check(record, &mut problems);
    }
    let own: Vec<PathBuf> = store
        .files()
        .into_iter()
        .filter_map(|file| file.canonicalize().ok())
        .collect();
    let is_here = |record: &&InstallRecord| {
        let path = Path::new(&record.database).canonicalize();
        path.is_ok_and(|path| own.contains(&path))
    };
    let recorded: Vec<InstallRecord> = records.iter().filter(is_here).cloned().collect();
    // Transcripts of agents that record elsewhere are not expected here.
    let mut stored = StoredTranscripts::default();
    if !recorded.is_empty() && stored.add(store).is_ok() {
        let compared = stored.compare();
        problems.extend(compared.iter().filter_map(|one| one.problem(&recorded)));
    }
    problems.is_empty() && failures(&entries).iter().all(|failure| failure.made_good)
}

/// Reads the log, and checks that hooks can write to it.
fn entries(problems: &mut Vec<SetupProblem>) -> Vec<HookEntry> {
    let mut problem = |what: String| {
        let hint = "check the folder and its permissions, and XDG_STATE_HOME".to_owned();
        problems.push(SetupProblem { what, hint });
    };
    let is_used = state::folder().is_some_and(|folder| folder.symlink_metadata().is_ok());
    if is_used && let Err(error) = log::try_writing() {
        problem(format!("hooks cannot note what failed: {error}"));
    }
    log::entries().unwrap_or_else(|error| {
        problem(format!("the log of hooks cannot be read: {error}"));
        Vec::new()
    })
}

fn check(record: &InstallRecord, problems: &mut Vec<SetupProblem>) {
    let agent = &record.agent;
    let again = format!("`loopstore install {agent}` sets it up again");
    let mut problem = |what: String| {
        let hint = again.clone();
        problems.push(SetupProblem { what, hint });
    };
    let shown = |path: &Path| text::line(&path.display().to_string());
    if !is_program(&record.program) {
        let program = shown(&record.program);
        problem(format!("{agent} calls {program}, which is no program"));
    }
    for file in &record.files {
        let path = shown(&file.path);
        match install::read(&file.path) {
            Ok(Some(now)) => match install::taken_out(&file.path, file.edit, &now) {
                Ok(bare) if bare == now => {
                    problem(format!(
                        "{path} no longer has what {agent} needs to call loopstore"
                    ));
                }
                Ok(_) => {}
                Err(error) => problem(error.reason().replacen("cannot change", "cannot read", 1)),
            },
            Ok(None) => problem(format!("{path} is gone: {agent} no longer calls loopstore")),
            Err(error) => problem(format!("{path} cannot be read: {error}")),
        }
    }
}

fn is_program(path: &Path) -> bool {
    let data = path.metadata();
    data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Opens the databases that hooks write to, or the default database if there are none.
fn databases(
    app: &App,
    records: &[InstallRecord],
    stored: &mut StoredTranscripts,
    problems: &mut Vec<SetupProblem>,
) -> Vec<DatabaseReport> {
    let mut named: Vec<PathBuf> = records
        .iter()
        .map(|record| (&record.database).into())
        .collect();
    named.sort_unstable();
    named.dedup();
    let here = &app.db;
    if named.is_empty() && (app.is_named() || here.symlink_metadata().is_ok()) {
        named.push(here.clone());
    }
    let mut reports = Vec::new();
    for path in named {
        let other = app.with_database(path);
        // Hooks write, and opening for reading would not show that they cannot.
        let opened = other.open_to_write();
        let opens = opened.is_ok();
        let bytes = opened.as_ref().ok().and_then(|store| size(&**store));
        if let Ok(store) = &opened {
            // A database that cannot be read has problems of its own.
            let _ = stored.add(&**store);
        }
        if let Err(error) = opened {
            let is_missing = matches!(error, OpenError::Missing { .. });
            let error = CliError::from(error);
            let hint = match is_missing && !records.is_empty() {
                true => "put it back; or `loopstore install AGENT` makes a new one",
                false => app.hint(&error).unwrap_or("check --db"),
            };
            let hint = hint.to_owned();
            let what = format!(
                "{} does not open: {}",
                text::line(&other.place()),
                error.reason()
            );
            problems.push(SetupProblem { what, hint });
        }
        reports.push(DatabaseReport {
            path: other.place(),
            opens,
            bytes,
        });
    }
    reports
}

/// Returns the size of the files of a database; `None` for a server.
fn size(store: &dyn Database) -> Option<u64> {
    let files = store.files();
    let bytes = files.iter().filter_map(|path| path.metadata().ok());
    (!files.is_empty()).then(|| bytes.map(|data| data.len()).sum())
}

fn reports<'a>(
    agent: NativeAgent,
    records: &'a [InstallRecord],
    entries: &'a [HookEntry],
) -> Vec<AgentReport> {
    let name = agent.as_str();
    let own: Vec<&HookEntry> = entries.iter().filter(|entry| entry.agent == name).collect();
    let of = |record: Option<&InstallRecord>| AgentReport {
        agent: name,
        installed: record.is_some(),
        root: record.map(|record| record.root.clone()),
        program: record.map(|record| record.program.clone()),
        database: record.map(|record| record.database.clone()),
        mcp: record.is_some_and(|record| record.mcp.is_some()),
        calls: own.len(),
        background: background(&own),
        last_call: own.last().map(|entry| (*entry).clone()),
    };
    let installed: Vec<&InstallRecord> = records
        .iter()
        .filter(|record| record.agent == name)
        .collect();
    match installed.is_empty() {
        true => vec![of(None)],
        false => installed
            .into_iter()
            .map(|record| of(Some(record)))
            .collect(),
    }
}

/// Counts the calls of the process that reads whole transcripts.
fn background(entries: &[&HookEntry]) -> BackgroundReads {
    let mut reads = BackgroundReads::default();
    for entry in entries.iter().filter(|entry| entry.event == "record") {
        reads.calls += 1;
        reads.milliseconds += entry.milliseconds;
        reads.added_messages += entry.added_messages;
    }
    reads
}

/// Counts equal failures, the latest first.
fn failures(entries: &[HookEntry]) -> Vec<HookFailure> {
    let mut found: Vec<HookFailure> = Vec::new();
    for (at, entry) in entries.iter().enumerate().rev() {
        let Some(reason) = &entry.failure else {
            continue;
        };
        let is_same = |failure: &&mut HookFailure| {
            (&failure.agent, &failure.event, &failure.reason)
                == (&entry.agent, &entry.event, reason)
        };
        if let Some(known) = found.iter_mut().find(is_same) {
            known.times += 1;
            continue;
        }
        let mut later = entries[at..].iter();
        found.push(HookFailure {
            agent: entry.agent.clone(),
            event: entry.event.clone(),
            reason: reason.clone(),
            hint: entry.hint.clone(),
            times: 1,
            last_at: entry.at.clone(),
            made_good: later.any(|one| one.agent == entry.agent && one.failure.is_none()),
        });
    }
    found
}

fn summary(report: &Report) -> String {
    let mut lines: Vec<String> = report.agents.iter().map(agent_line).collect();
    for database in &report.databases {
        let how = if database.opens {
            "opens"
        } else {
            "does not open"
        };
        let size = database
            .bytes
            .map(|bytes| format!(", {}", text::bytes(bytes)));
        let (path, size) = (text::line(&database.path), size.unwrap_or_default());
        lines.push(format!("database     {path} {how}{size}"));
    }
    if !report.transcripts.is_empty() {
        lines.push("transcripts on this machine:".to_owned());
        lines.extend(report.transcripts.iter().map(RecordedTranscripts::line));
    }
    for problem in &report.problems {
        lines.push(format!("problem: {}", text::line(&problem.what)));
        lines.push(format!("  {}", text::line(&problem.hint)));
    }
    let shown = report.failures.iter().map(failure_lines);
    lines.extend(text::at_most(shown, LISTED));
    let records = report.agents.iter().any(|agent| agent.root.is_some());
    lines.push(match (report.ok, records) {
        (true, true) => "All is well.".into(),
        (true, false) => "No agent is recorded yet; `loopstore install AGENT` sets one up.".into(),
        (false, _) => "Something is wrong.".into(),
    });
    lines.join("\n")
}

fn agent_line(report: &AgentReport) -> String {
    let name = report.agent;
    let set_up = match &report.root {
        None => "not set up".to_owned(),
        Some(root) => {
            let tools = if report.mcp {
                " with the server of tools"
            } else {
                ""
            };
            format!(
                "set up in {}{tools}",
                text::line(&root.display().to_string())
            )
        }
    };
    let calls = match &report.last_call {
        None if report.installed => "; its hooks were not called yet".to_owned(),
        None => String::new(),
        Some(last) => {
            let ended = if last.failure.is_none() {
                "went well"
            } else {
                "failed"
            };
            let (at, event) = (text::line(&last.at), text::line(&last.event));
            format!(
                "; last called at {at} ({event}), which {ended} in {} ms",
                last.milliseconds
            )
        }
    };
    let background = match &report.background {
        BackgroundReads { calls: 0, .. } => String::new(),
        reads => format!(
            "; {} of whole transcripts took {} ms and added {}",
            text::count(reads.calls, "background read"),
            text::number(reads.milliseconds),
            text::count(reads.added_messages, "message")
        ),
    };
    format!("{name:<12} {set_up}{calls}{background}")
}

fn failure_lines(failure: &HookFailure) -> String {
    let good = if failure.made_good {
        ", made good since"
    } else {
        ""
    };
    let first = format!(
        "failed: {} {} ({}, last at {}{good}): {}",
        text::line(&failure.agent),
        text::line(&failure.event),
        text::count(failure.times as u64, "time"),
        text::line(&failure.last_at),
        text::line(&failure.reason)
    );
    match &failure.hint {
        Some(hint) => format!("{first}\n  {}", text::line(hint)),
        None => first,
    }
}
