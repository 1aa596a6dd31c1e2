//! The command `loopstore`. The library computes; this program talks.
//!
//! It is a library of one function, [`run`]: the program calls it, and so does the console script of the
//! Python package.
//!
//! The commands are one file each, with an `Args` struct whose doc comment is the help and a `run` function.
//! Results go to stdout, all else to stderr. A new command is one file, its variant in `Command`
//! and its line in `run_command`.

mod amount;
mod append;
mod archive;
mod backup;
mod begin;
#[cfg(feature = "browse")]
mod browse;
mod compact;
mod complete;
mod completions;
mod config;
mod confirm;
mod context;
mod context_text;
mod copy;
mod demo;
mod demo_session;
mod demo_story;
mod diff;
mod doctor;
mod erase;
mod error;
mod eval;
mod expand;
mod expand_block;
mod export;
mod fork;
mod hide;
mod history;
mod homes;
mod hook;
mod import;
mod index;
mod install;
mod kept_files;
mod key;
mod man;
#[cfg(feature = "mcp")]
mod mcp;
mod nearest;
mod output;
mod pager;
mod pin;
mod program;
mod progress;
mod protect;
mod prune;
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
mod resume;
#[cfg(feature = "postgres")]
mod schema;
mod search;
mod select;
mod server;
mod sessions;
mod show;
mod show_tree;
mod sql;
mod stats;
mod table;
mod text;
mod undo;
mod verify;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use loopstore::{Database, Key, OpenError, SqliteOptions, SqliteStore, counter_named};
use serde::Serialize;

use error::CliError;
use output::Out;
use server::Access;

/// A persistent session store for long-running agents, with compaction as an overlay.
///
/// What an agent did is recorded once and never rewritten. A compaction puts blocks over loops: the
/// next model call reads through them, and they can be undone.
#[derive(Parser)]
#[command(name = "loopstore", version, max_term_width = 100)]
struct Cli {
    /// The database: a file, or `postgres://USER@HOST:PORT/NAME` [env: LOOPSTORE_DB] [default:
    /// loopstore.db].
    // Read from the environment by hand: usage lines would name the option as one that is needed.
    #[arg(long, global = true, value_name = "PATH|URL")]
    db: Option<PathBuf>,

    /// Print one JSON document on stdout.
    #[arg(long, global = true)]
    json: bool,

    /// Do not page long output. On a terminal it goes through LOOPSTORE_PAGER, PAGER or less.
    #[arg(long, global = true)]
    no_pager: bool,

    #[command(flatten)]
    key: key::KeyArgs,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Append(append::Args),
    Import(import::Args),
    Watch(import::WatchArgs),
    #[command(visible_aliases = ["ls", "list"])]
    Sessions(sessions::Args),
    Show(show::Args),
    Context(context::Args),
    Compact(Box<compact::Args>),
    History(history::Args),
    Undo(undo::Args),
    Redo(redo::Args),
    /// Take a session out of a dead end: undo a provider's own compaction, compact the originals
    ///
    /// For when the provider refuses, or has lost, a compaction that only it can read. It is undone, and the
    /// originals are compacted as the options say, whether there is headroom or not. A compaction of whose
    /// originals none was ever stored is counted as missing.
    Repair(Box<repair::Args>),
    Pin(pin::Args),
    Unpin(pin::UnpinArgs),
    #[command(visible_alias = "find")]
    Search(search::Args),
    Recall(recall::Args),
    Diff(diff::Args),
    Fork(fork::Args),
    Expand(expand::Args),
    Index(index::Args),
    Replay(replay::Args),
    Export(export::Args),
    Resume(resume::Args),
    Report(report::Args),
    Sql(sql::Args),
    Stats(stats::Args),
    Verify(verify::Args),
    Backup(backup::Args),
    Copy(copy::Args),
    Recount(recount::Args),
    Recover(recover::Args),
    Archive(archive::Args),
    Unarchive(archive::UnarchiveArgs),
    Redact(redact::Args),
    Prune(prune::Args),
    Protect(protect::Args),
    Hide(hide::Args),
    Unhide(hide::UnhideArgs),
    Erase(erase::Args),
    Receipts(receipts::Args),
    Eval(eval::Args),
    Install(install::Args),
    Hook(hook::Args),
    Doctor(doctor::Args),
    #[cfg(feature = "mcp")]
    Mcp(mcp::Args),
    #[cfg(feature = "postgres")]
    Schema(schema::Args),
    #[cfg(feature = "browse")]
    Browse(browse::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// How a command ended that printed its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// As asked.
    Well,
    /// Not as asked; the output says why.
    Badly,
    /// The database is damaged.
    Damaged,
}

/// What every command has at hand.
struct App {
    db: PathBuf,
    /// Whether an option or the environment names the database.
    is_named: bool,
    /// The key with which the database is encrypted.
    key: Option<Key>,
    /// The options that say where the key comes from, for other programs.
    key_args: Vec<String>,
    json: bool,
    out: Out,
}

impl App {
    fn new(
        db: Option<PathBuf>,
        key: Option<Key>,
        key_args: Vec<String>,
        json: bool,
        out: Out,
    ) -> Self {
        let named = named_database(db);
        let mut app = Self {
            is_named: named.is_some(),
            db: named.unwrap_or_else(|| DATABASE.into()),
            key,
            key_args,
            json,
            out,
        };
        if app.address().is_some() {
            // What the environment says is meant for files.
            app.key = None;
        }
        app
    }

    /// Opens the database with the token counter that it was written with.
    fn open(&self, access: Access<'_>) -> Result<Box<dyn Database>, OpenError> {
        match self.address() {
            Some(address) => server::open(address, access),
            None => Ok(Box::new(self.open_file(access)?)),
        }
    }

    /// Opens an existing database for reading.
    fn open_to_read(&self) -> Result<Box<dyn Database>, OpenError> {
        self.open(Access::Read)
    }

    /// Opens an existing database for writing.
    fn open_to_write(&self) -> Result<Box<dyn Database>, OpenError> {
        self.open(Access::Write)
    }

    /// Opens an existing database for writing, or else for reading.
    fn open_for(&self, writes: bool) -> Result<Box<dyn Database>, OpenError> {
        self.open(if writes { Access::Write } else { Access::Read })
    }

    fn open_file(&self, access: Access<'_>) -> Result<SqliteStore, OpenError> {
        let options = self.options().stored_counter();
        let open = |options| SqliteStore::open_with(&self.db, options);
        match access {
            Access::Create(counter) => open(match counter_named(counter) {
                Some(counter) => options.counter(counter),
                None => options,
            }),
            Access::Write => open(options.create(false)),
            Access::Read => match open(options.clone().read_only(true)) {
                // Only opening for writing upgrades an older file, takes back what a killed process left in its
                // journal, or finishes a creation that was cut off.
                Err(
                    unfinished @ (OpenError::Older { .. }
                    | OpenError::LogUnread { .. }
                    | OpenError::Missing { .. }),
                ) if self.db.is_file() => match self.open_file(Access::Write) {
                    Err(OpenError::Other { .. } | OpenError::ReadOnly { .. }) => Err(unfinished),
                    Err(error) => Err(error),
                    Ok(_) => open(options.read_only(true)),
                },
                opened => opened,
            },
        }
    }

    /// Prints a result: as JSON with `--json`, else as text.
    fn print(
        &mut self,
        value: &(impl Serialize + ?Sized),
        text: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        match self.json {
            true => self.out.json(value),
            false => self.out.text(&text()),
        }
    }

    /// Returns the address of a server, if that is what `--db` names.
    fn address(&self) -> Option<&str> {
        self.db.to_str().filter(|text| server::is_address(text))
    }

    /// Returns the database as it may be shown: without the password of an address.
    fn place(&self) -> String {
        match self.address() {
            Some(address) => server::place(address),
            None => self.db.display().to_string(),
        }
    }

    /// Returns the options that every opening of the database has.
    fn options(&self) -> SqliteOptions {
        match &self.key {
            Some(key) => SqliteOptions::new().key(key.clone()),
            None => SqliteOptions::new(),
        }
    }
}

/// Commands that a build may lack.
const OPTIONAL: [&str; 3] = ["browse", "mcp", "schema"];
/// Commands that remove something: nobody who mistyped another one is led to them.
const REMOVING: [&str; 3] = ["erase", "prune", "redact"];
/// What is said to who asks for it.
const RESTORE: &str = "there is no `restore`: a backup is a database like any other. Read it with \
    `--db BACKUP`, or copy the file to its place while no program has the database open. `redo` takes back \
    an undo, `unarchive` unpacks a session";

/// The feature that brings a command.
fn feature_of(command: &str) -> &str {
    match command {
        "schema" => "postgres",
        other => other,
    }
}

/// Returns which of these commands was asked for, where it is unknown.
fn left_out(error: &clap::Error) -> Option<&'static str> {
    let asked = asked_for(error)?;
    OPTIONAL.into_iter().find(|name| *name == asked)
}

/// Returns the command that was asked for, where it is unknown.
fn asked_for(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(asked)) => Some(asked),
        _ => None,
    }
}

/// Takes commands that remove something out of what is proposed for a mistyped one.
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

/// The database where nothing names another.
const DATABASE: &str = "loopstore.db";

/// Returns the database that is meant where no option names one.
fn usual_database() -> PathBuf {
    named_database(None).unwrap_or_else(|| DATABASE.into())
}

/// Returns the database that the option names, else the environment.
fn named_database(given: Option<PathBuf>) -> Option<PathBuf> {
    let named = || std::env::var_os("LOOPSTORE_DB").filter(|value| !value.is_empty());
    given.or_else(|| named().map(PathBuf::from))
}

/// Builds in the fault that a test asks for.
fn activate_failpoints() {
    #[cfg(debug_assertions)]
    if let Ok(fault) = std::env::var("LOOPSTORE_BROKEN") {
        loopstore::failpoints::activate(&fault);
    }
}

/// Lets a write beyond the size that files may have (`ulimit -f`) fail with an error. By default the system
/// ends the process with a signal, and nothing says why.
fn fail_at_the_file_limit() {
    // Without it a write ends the process as before.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Runs the command that the arguments name, of which the first is the program, and returns the exit code.
pub fn run(args: Vec<OsString>) -> u8 {
    fail_at_the_file_limit();
    if complete::answer_shell(&args) {
        return 0;
    }
    if hook::is_called(&args) {
        return hook::guarded(args);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            if asked_for(&error) == Some("restore") {
                return CliError::Usage(RESTORE.into()).report();
            }
            let error = without_removals(error);
            if let Some(name) = left_out(&error) {
                let text = format!(
                    "this loopstore was built without `{name}`; build it with `--features {0}`: \
                     `cargo install --path crates/cli --features {0}`",
                    feature_of(name)
                );
                return CliError::Usage(text).report();
            }
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    activate_failpoints();
    let key = match cli.key.read() {
        Ok(key) => key,
        Err(error) => return error.report(),
    };
    let out = match wants_pager(&cli) {
        true => Out::paged(),
        false => Out::new(),
    };
    let file = cli.db.clone();
    let mut app = App::new(cli.db, key, cli.key.as_args(), cli.json, out);
    if app.address().is_some() && cli.key.is_given() {
        let text = "a key only applies to a database file; a server has its own encryption";
        return CliError::Usage(text.into()).report();
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
        // An address may hold a password.
        Err(error) => match app.address() {
            Some(_) => error.report(),
            None => error.report_of(file.as_deref()),
        },
    }
}

/// Whether a command prints text to read at leisure: all at once, and without asking anything.
fn wants_pager(cli: &Cli) -> bool {
    let is_read = match &cli.command {
        Some(Command::Context(args)) => args.is_text(),
        Some(Command::Replay(args)) => args.is_read_at_once(),
        Some(command) => matches!(
            command,
            Command::Sessions(_)
                | Command::Show(_)
                | Command::History(_)
                | Command::Receipts(_)
                | Command::Search(_)
                | Command::Recall(_)
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
        Command::Import(args) => import::run(app, args),
        Command::Watch(args) => import::run_watch(app, args),
        Command::Sessions(args) => sessions::run(app, args),
        Command::Show(args) => show::run(app, args),
        Command::Context(args) => context::run(app, args),
        Command::Compact(args) => compact::run(app, args),
        Command::History(args) => history::run(app, args),
        Command::Undo(args) => undo::run(app, args),
        Command::Repair(args) => repair::run(app, args),
        Command::Redo(args) => redo::run(app, args),
        Command::Search(args) => search::run(app, args),
        Command::Recall(args) => recall::run(app, args),
        Command::Diff(args) => diff::run(app, args),
        Command::Fork(args) => fork::run(app, args),
        Command::Expand(args) => expand::run(app, args),
        Command::Index(args) => index::run(app, args),
        Command::Replay(args) => replay::run(app, args),
        Command::Export(args) => export::run(app, args),
        Command::Resume(args) => resume::run(app, args),
        Command::Report(args) => report::run(app, args),
        Command::Sql(args) => sql::run(app, args),
        Command::Stats(args) => stats::run(app, args),
        Command::Verify(args) => verify::run(app, args),
        Command::Backup(args) => backup::run(app, args),
        Command::Copy(args) => copy::run(app, args),
        Command::Recount(args) => recount::run(app, args),
        Command::Recover(args) => recover::run(app, args),
        Command::Archive(args) => archive::run(app, args),
        Command::Unarchive(args) => archive::run_unarchive(app, args),
        Command::Redact(args) => redact::run(app, args),
        Command::Prune(args) => prune::run(app, args),
        Command::Pin(args) => pin::run(app, args),
        Command::Unpin(args) => pin::run_unpin(app, args),
        Command::Protect(args) => protect::run(app, args),
        Command::Hide(args) => hide::run(app, args),
        Command::Unhide(args) => hide::unhide(app, args),
        Command::Erase(args) => erase::run(app, args),
        Command::Receipts(args) => receipts::run(app, args),
        Command::Eval(args) => eval::run(app, args),
        Command::Install(args) => install::run(app, args),
        Command::Hook(args) => hook::run(app, args),
        Command::Doctor(args) => doctor::run(app, args),
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
