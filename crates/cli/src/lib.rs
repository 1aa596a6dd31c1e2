//! The command `loopstore`. The libraries compute; this crate prints, reads the environment and names commands.
//!
//! The crate has one public function, [`run`], which the program calls, and also the console script of the Python
//! package.
//!
//! Each command is one file, with a struct of arguments (`AppendArgs`) whose doc comment is the help, and a `run`
//! function. Results go to stdout, everything else to stderr. A new command is one file, its variant in `Command`, and
//! its line in `run_command`, and its name in a group of `help.rs`.

mod acp;
mod address;
mod append;
mod archive;
mod backup;
mod begin;
mod blame;
#[cfg(feature = "browse")]
mod browse;
mod compact;
mod complete;
mod completions;
mod config;
mod context;
mod copy;
mod demo;
mod diff;
mod doctor;
mod edit;
mod erase;
mod error;
mod expand;
mod expand_block;
mod export;
mod fork;
mod help;
mod hide;
mod history;
mod hook;
mod import;
mod index;
mod init;
mod install;
mod kept_files;
mod key;
mod man;
#[cfg(feature = "mcp")]
mod mcp;
mod pin;
mod protect;
mod prune;
mod read;
mod recall;
mod receipts;
mod recount;
mod recover;
mod redact;
mod redaction;
mod redo;
mod repair;
mod replay;
mod report;
mod restore_transcript;
mod resume;
#[cfg(feature = "postgres")]
mod schema;
mod search;
mod sessions;
mod share;
mod show;
mod show_tree;
mod sql;
mod stats;
mod switch;
mod sync;
mod undo;
mod verify;
mod watch;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use loopstore_eval::command as eval;
use loopstore_terminal::output::{Out, note};
use loopstore_terminal::{App, CliError, DatabaseSource, Done, text};

/// The heading of the options that every command has.
const COMMON: &str = "Options of every command";

/// A persistent session store for long-running agents, with compaction as an overlay.
///
/// What an agent did is recorded once and never rewritten. A compaction puts blocks over loops: the
/// next model call reads through them, and they can be undone.
#[derive(Parser)]
#[command(name = "loopstore", version, max_term_width = 100)]
struct Cli {
    /// The database: a file, or `postgres://USER@HOST:PORT/NAME` [env: LOOPSTORE_DB] [default:
    /// loopstore.db in this folder or one above, else the user's, in ~/.local/share/loopstore].
    // Read from the environment here, not by clap: usage lines would show the option as required.
    #[arg(long, global = true, value_name = "PATH|URL", help_heading = COMMON)]
    db: Option<PathBuf>,

    /// Print one JSON document on stdout.
    #[arg(long, global = true, help_heading = COMMON)]
    json: bool,

    /// Do not page long output. On a terminal it goes through LOOPSTORE_PAGER, PAGER or less.
    #[arg(long, global = true, help_heading = COMMON)]
    no_pager: bool,

    #[command(flatten)]
    key: key::KeyArgs,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Append(append::AppendArgs),
    Init(init::InitArgs),
    Import(import::ImportArgs),
    Watch(import::WatchArgs),
    #[command(visible_aliases = ["ls", "list"])]
    Sessions(sessions::SessionsArgs),
    Show(show::ShowArgs),
    Read(read::ReadArgs),
    Context(context::ContextArgs),
    Compact(Box<compact::CompactArgs>),
    History(history::HistoryArgs),
    Undo(undo::UndoArgs),
    Redo(redo::RedoArgs),
    /// Recover a session whose provider rejects its compaction: undo it and compact the originals instead
    ///
    /// For when the provider refuses, or has lost, a compaction that only it can read. It is undone, and the
    /// originals are compacted as the options say, whether there is headroom or not. A compaction of whose
    /// originals none was ever stored is counted as missing.
    Repair(Box<repair::RepairArgs>),
    Pin(pin::PinArgs),
    Unpin(pin::UnpinArgs),
    Drop(edit::DropArgs),
    Clear(edit::ClearArgs),
    Replace(edit::ReplaceArgs),
    Restore(edit::RestoreArgs),
    #[command(visible_alias = "find")]
    Search(search::SearchArgs),
    Recall(recall::RecallArgs),
    Blame(blame::BlameArgs),
    Diff(diff::DiffArgs),
    Fork(fork::ForkArgs),
    Switch(switch::SwitchArgs),
    Expand(expand::ExpandArgs),
    Index(index::IndexArgs),
    Replay(replay::ReplayArgs),
    Export(export::ExportArgs),
    Resume(resume::ResumeArgs),
    RestoreTranscript(restore_transcript::RestoreTranscriptArgs),
    Report(report::ReportArgs),
    Share(share::ShareArgs),
    Sql(sql::SqlArgs),
    Stats(stats::StatsArgs),
    Verify(verify::VerifyArgs),
    Backup(backup::BackupArgs),
    Copy(copy::CopyArgs),
    Sync(sync::SyncArgs),
    Recount(recount::RecountArgs),
    Recover(recover::RecoverArgs),
    Archive(archive::ArchiveArgs),
    Unarchive(archive::UnarchiveArgs),
    Redact(redact::RedactArgs),
    Prune(prune::PruneArgs),
    Protect(protect::ProtectArgs),
    Hide(hide::HideArgs),
    Unhide(hide::UnhideArgs),
    Erase(erase::EraseArgs),
    Receipts(receipts::ReceiptsArgs),
    Eval(eval::EvalArgs),
    Install(install::InstallArgs),
    Hook(hook::HookArgs),
    Doctor(doctor::DoctorArgs),
    Acp(acp::AcpArgs),
    #[cfg(feature = "mcp")]
    Mcp(mcp::McpArgs),
    #[cfg(feature = "postgres")]
    Schema(schema::SchemaArgs),
    #[cfg(feature = "browse")]
    Browse(browse::BrowseArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// Commands that a build may leave out.
const OPTIONAL: [&str; 3] = ["browse", "mcp", "schema"];
/// Commands that remove data, which are not suggested for a mistyped command.
const REMOVING: [&str; 3] = ["erase", "prune", "redact"];
/// Returns the feature that a command needs.
fn feature_of(command: &str) -> &str {
    match command {
        "schema" => "postgres",
        other => other,
    }
}

/// Returns the unknown command if it is one of these.
fn left_out(error: &clap::Error) -> Option<&'static str> {
    let asked = asked_for(error)?;
    OPTIONAL.into_iter().find(|name| *name == asked)
}

/// Returns the unknown command.
fn asked_for(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(asked)) => Some(asked),
        _ => None,
    }
}

/// Removes commands that remove data from the suggestions for a mistyped command.
fn without_removals(mut error: clap::Error) -> clap::Error {
    let kept = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(name)) => vec![name],
        Some(ContextValue::Strings(names)) => names,
        _ => return error,
    };
    let kept: Vec<String> = kept
        .into_iter()
        .filter(|name| !REMOVING.contains(&name.as_str()))
        .collect();
    if !kept.is_empty() {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(kept),
        );
    }
    error
}

/// Activates the fault that a test selects.
fn activate_failpoints() {
    #[cfg(debug_assertions)]
    if let Ok(fault) = std::env::var("LOOPSTORE_BROKEN") {
        loopstore::failpoints::activate(&fault);
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with an error. By default the system ends the process
/// with a signal, without a message.
fn fail_at_the_file_limit() {
    // If this fails, such a write ends the process as before.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Parses the arguments, and returns the words that hints repeat.
fn parse(mut args: Vec<OsString>) -> Result<(Cli, error::Given), clap::Error> {
    let shows_all = help::take_all(&mut args);
    let matches = help::shaped(Cli::command(), shows_all).try_get_matches_from(args)?;
    let given = error::Given::of(&matches);
    let cli = Cli::from_arg_matches(&matches);
    Ok((
        cli.map_err(|error| error.format(&mut Cli::command()))?,
        given,
    ))
}

/// Runs the command in the arguments, the first of which is the program. Returns the exit code.
pub fn run(args: Vec<OsString>) -> u8 {
    fail_at_the_file_limit();
    if complete::answer_shell(&args) {
        return 0;
    }
    if hook::is_called(&args) {
        return hook::guarded(args);
    }
    let wants_json = args.iter().any(|arg| arg == "--json");
    let (cli, mut given) = match parse(args) {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = without_removals(error);
            if let Some(name) = left_out(&error) {
                let text = format!(
                    "this loopstore was built without `{name}`; build it with `--features {0}`: \
                     `cargo install --path crates/cli --features {0}`",
                    feature_of(name)
                );
                return CliError::Usage(text).report(None);
            }
            let _ = error.print();
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            if wants_json && code != 0 {
                let text = error.render().to_string();
                let reason = text.split("\n\n").next().unwrap_or_default();
                let reason = reason.strip_prefix("error: ").unwrap_or(reason);
                error::print_json(reason, None, code, None);
            }
            return code;
        }
    };
    activate_failpoints();
    let key = match cli.key.read() {
        Ok(key) => key,
        Err(error) => return error::report(error, &given, None),
    };
    let out = match wants_pager(&cli) {
        true => Out::paged(),
        false => Out::plain(),
    };
    given.file.clone_from(&cli.db);
    let mut app = App::new(cli.db, key, cli.key.as_args(), cli.json, out).with_hints(error::hint);
    if app.address().is_some() && cli.key.is_given() {
        let text = "a key only applies to a database file; a server has its own encryption";
        return CliError::Usage(text.into()).report(None);
    }
    let is_told = matches!(
        app.source,
        DatabaseSource::Environment | DatabaseSource::Found
    );
    if is_told && !app.json && std::io::stderr().is_terminal() {
        note(&format!("database: {}", text::line(&app.place())));
    }
    let done = match &cli.command {
        Some(command) => run_command(&mut app, command),
        None => begin::run(&mut app),
    };
    let shown = app.out.finish();
    match done.and_then(|done| shown.map(|()| done)) {
        Ok(Done::Well) => 0,
        Ok(Done::Badly) => 1,
        Ok(Done::Damaged) => 3,
        Err(error) => {
            // An address may contain a password.
            given.file.take_if(|_| app.address().is_some());
            error::report(error, &given, Some(&mut app.out))
        }
    }
}

/// True if a command prints text to read at leisure: at once, and without questions.
fn wants_pager(cli: &Cli) -> bool {
    let is_read = match &cli.command {
        Some(Command::Context(args)) => args.is_text(),
        Some(Command::Replay(args)) => args.is_read_at_once(),
        Some(Command::Read(args)) => args.is_read_at_once(),
        Some(command) => matches!(
            command,
            Command::Sessions(_)
                | Command::Show(_)
                | Command::History(_)
                | Command::Receipts(_)
                | Command::Search(_)
                | Command::Recall(_)
                | Command::Blame(_)
                | Command::Diff(_)
                | Command::Expand(_)
                | Command::Sql(_)
                | Command::Stats(_)
        ),
        None => true,
    };
    is_read && !cli.json && !cli.no_pager
}

fn run_command(app: &mut App, command: &Command) -> Result<Done, CliError> {
    match command {
        Command::Demo(args) => demo::run(app, args),
        Command::Append(args) => append::run(app, args),
        Command::Init(args) => init::run(app, args),
        Command::Import(args) => import::run(app, args),
        Command::Watch(args) => import::run_watch(app, args),
        Command::Sessions(args) => sessions::run(app, args),
        Command::Show(args) => show::run(app, args),
        Command::Read(args) => read::run(app, args),
        Command::Context(args) => context::run(app, args),
        Command::Compact(args) => compact::run(app, args),
        Command::History(args) => history::run(app, args),
        Command::Undo(args) => undo::run(app, args),
        Command::Repair(args) => repair::run(app, args),
        Command::Redo(args) => redo::run(app, args),
        Command::Search(args) => search::run(app, args),
        Command::Recall(args) => recall::run(app, args),
        Command::Blame(args) => blame::run(app, args),
        Command::Diff(args) => diff::run(app, args),
        Command::Fork(args) => fork::run(app, args),
        Command::Switch(args) => switch::run(app, args),
        Command::Expand(args) => expand::run(app, args),
        Command::Index(args) => index::run(app, args),
        Command::Replay(args) => replay::run(app, args),
        Command::Export(args) => export::run(app, args),
        Command::Resume(args) => resume::run(app, args),
        Command::RestoreTranscript(args) => restore_transcript::run(app, args),
        Command::Report(args) => report::run(app, args),
        Command::Share(args) => share::run(app, args),
        Command::Sql(args) => sql::run(app, args),
        Command::Stats(args) => stats::run(app, args),
        Command::Verify(args) => verify::run(app, args),
        Command::Backup(args) => backup::run(app, args),
        Command::Copy(args) => copy::run(app, args),
        Command::Sync(args) => sync::run(app, args),
        Command::Recount(args) => recount::run(app, args),
        Command::Recover(args) => recover::run(app, args),
        Command::Archive(args) => archive::run(app, args),
        Command::Unarchive(args) => archive::run_unarchive(app, args),
        Command::Redact(args) => redact::run(app, args),
        Command::Prune(args) => prune::run(app, args),
        Command::Pin(args) => pin::run(app, args),
        Command::Unpin(args) => pin::run_unpin(app, args),
        Command::Drop(args) => edit::run_drop(app, args),
        Command::Clear(args) => edit::run_clear(app, args),
        Command::Replace(args) => edit::run_replace(app, args),
        Command::Restore(args) => edit::run_restore(app, args),
        Command::Protect(args) => protect::run(app, args),
        Command::Hide(args) => hide::run(app, args),
        Command::Unhide(args) => hide::unhide(app, args),
        Command::Erase(args) => erase::run(app, args),
        Command::Receipts(args) => receipts::run(app, args),
        Command::Eval(args) => eval::run(app, args),
        Command::Install(args) => install::run(app, args),
        Command::Hook(args) => hook::run(app, args),
        Command::Doctor(args) => doctor::run(app, args),
        Command::Acp(args) => acp::run(app, args),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => mcp::run(app, args),
        #[cfg(feature = "postgres")]
        Command::Schema(args) => schema::run(app, args),
        #[cfg(feature = "browse")]
        Command::Browse(args) => browse::run(app, args),
        Command::Completions(args) => completions::run(app, args),
        Command::Man(args) => man::run(app, args),
    }
}
