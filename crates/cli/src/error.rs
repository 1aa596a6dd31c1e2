//! The report of an error on stderr, with a hint at what to do next.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use loopstore::context::BuildError;
use loopstore::extend::sqlite::RecountError;
use loopstore::search::{QueryError, SearchError};
use loopstore::{OpenError, SettingsError, StoreError, StrategyError};
use loopstore_admin::backup::BackupError;
use loopstore_agents::hook::input::InputError;
use loopstore_agents::install::record;
use loopstore_blame::BlameError;
use loopstore_copy::CopyError;
use loopstore_export::ExportError;
use loopstore_report::ReportError;
use loopstore_share::ShareError;
use loopstore_sync::SyncError;
use loopstore_terminal::output::{Out, note};
use loopstore_terminal::select::Unknown;
use loopstore_terminal::{CliError, text};
use loopstore_transcripts::ImportError;
use serde::Serialize;

/// The words of the command line that hints repeat.
#[derive(Default)]
pub struct Given {
    /// The database, if the command was given a file.
    pub file: Option<PathBuf>,
    /// True if results are printed as JSON.
    pub json: bool,
    session: Option<String>,
    loop_id: Option<String>,
    max_tokens: Option<String>,
    max_bytes: Option<String>,
}

impl Given {
    /// Returns the words of a command line.
    pub fn of(matches: &ArgMatches) -> Self {
        let command = matches.subcommand().map(|(_, command)| command);
        let word = |id: &str| {
            let mut words = command?.try_get_raw(id).ok()??;
            words.next()?.to_str().map(str::to_owned)
        };
        Self {
            file: None,
            json: matches.get_flag("json"),
            session: word("session"),
            loop_id: word("loop_id"),
            max_tokens: word("max_tokens"),
            max_bytes: word("max_bytes"),
        }
    }

    /// Returns a hint with the words that are known in place of their names.
    fn filled(&self, hint: &str) -> String {
        let mut hint = hint.to_owned();
        if let Some(session) = &self.session {
            let mut words = quoted(session);
            if hint.contains(SAME_LOOP) {
                let loop_id = self.loop_id.as_deref().map(quoted);
                words.push_str(&loop_id.map_or_else(String::new, |id| format!(" --loop {id}")));
                hint = hint.replace(SAME_LOOP, "");
            }
            hint = hint.replace(" SESSION", &format!(" {words}"));
        }
        for (option, value) in [
            ("--max-tokens", &self.max_tokens),
            ("--max-bytes", &self.max_bytes),
        ] {
            if let Some(value) = value {
                let value = format!("{option} {}", quoted(value));
                hint = hint.replace(&format!("{option} N"), &value);
            }
        }
        match &self.file {
            Some(file) => of_database(&hint, file),
            None => hint,
        }
    }
}

fn quoted(word: &str) -> String {
    text::quoted(&text::line(word))
}

/// The part of a hint that names the option of the command line.
const SAME_LOOP: &str = ", with the same --loop if one was given,";

/// An error as JSON.
#[derive(Serialize)]
struct ErrorJson<'a> {
    error: &'a str,
    hint: Option<&'a str>,
    /// The exit code.
    code: u8,
}

/// Prints an error with its causes and a hint on stderr, and returns the exit code. Hints repeat what the command was
/// given. With `--json` the error is a document on stdout too, if the command has printed nothing there.
pub fn report(error: CliError, given: &Given, out: Option<&mut Out>) -> u8 {
    let error = match error {
        CliError::Failed(error) => resolve(error),
        other => other,
    };
    let mut hint = error.hint(hint).map(|hint| given.filled(hint));
    let code = error.report(hint.as_deref());
    if let CliError::Failed(error) = &error
        && let Some(OpenError::Missing { path }) = error.downcast_ref::<OpenError>()
        && let Some(database) = record::database()
        && Path::new(&database) != path
    {
        let database = text::line(&database);
        let recorded =
            format!("agents record into {database} here; --db names it, or LOOPSTORE_DB");
        note(&format!("hint: {recorded}"));
        hint = Some(recorded);
    }
    if given.json && !matches!(error, CliError::Pipe) {
        print_json(&error.reason(), hint.as_deref(), code, out);
    }
    code
}

/// Prints an error as JSON on stdout.
pub fn print_json(error: &str, hint: Option<&str>, code: u8, out: Option<&mut Out>) {
    let document = ErrorJson { error, hint, code };
    let mut plain = Out::plain();
    let out = out.unwrap_or(&mut plain);
    if !out.has_begun() {
        // The exit code reports the error even if stdout is closed.
        let _ = out.json(&document).and_then(|()| out.finish());
    }
}

/// Returns a hint with the database in its commands.
fn of_database(hint: &str, file: &Path) -> String {
    let file = text::line(&file.display().to_string());
    hint.replace(
        "`loopstore ",
        &format!("`loopstore --db {} ", text::quoted(&file)),
    )
}

/// Unwraps an error from those that only wrap it: `unwrap!(error, Wrapper, Variant, …)`.
macro_rules! unwrap {
    ($error:ident, $wrapper:ident, $($variant:ident),+) => {
        let $error = match $error.downcast::<$wrapper>() {
            Ok(wrapper) => match *wrapper {
                $($wrapper::$variant(inner) => return resolve(Box::new(inner)),)+
                #[allow(unreachable_patterns)]
                other => Box::new(other) as Box<dyn Error>,
            },
            Err(error) => error,
        };
    };
}

/// Returns the kind of a library's error for the command: invalid arguments, a closed output, or a failure with the
/// error for which there are hints.
fn resolve(error: Box<dyn Error>) -> CliError {
    unwrap!(error, CopyError, Store, Export, Import);
    unwrap!(error, SyncError, Store);
    unwrap!(error, ExportError, Store, Write);
    unwrap!(error, ShareError, Store, Open, Export, Import, Report);
    unwrap!(error, ReportError, Store, Write);
    unwrap!(error, BackupError, Store);
    unwrap!(error, BlameError, Store);
    unwrap!(error, RecountError, Open, Store);
    unwrap!(error, BuildError, Store);
    unwrap!(error, SearchError, Store, Query);
    let error = match error.downcast::<StrategyError>() {
        Ok(error) => match *error {
            StrategyError::Read(error) => return CliError::from(StoreError::from(error)),
            other => Box::new(other),
        },
        Err(error) => error,
    };
    let error = match error.downcast::<Unknown>() {
        Ok(unknown) if unknown.near.is_empty() => return CliError::from(unknown.error),
        Ok(unknown) => unknown,
        Err(error) => error,
    };
    if let Some(error) = error.downcast_ref::<SettingsError>() {
        return CliError::Usage(settings(error));
    }
    if error.is::<QueryError>() {
        return CliError::Usage(error.to_string());
    }
    CliError::from_box(error)
}

/// Returns the text of an error in settings. Settings have the names of options, and their errors are those of options.
fn settings(error: &SettingsError) -> String {
    match error {
        // Parameters in a file are checked with their line when the file is read.
        SettingsError::Parameter { reason, .. } => format!("--policy-param: {reason}"),
        SettingsError::Model(unknown) => format!(
            "the context window of the model `{model}` is not known; give it with --max-tokens N, or \
             add `{model:?} = N` under [models] in the file of --config",
            model = unknown.model
        ),
        other => other.to_string(),
    }
}

/// Returns the next command to run after an error, if it is known. The libraries name no commands and options: this is
/// the only place that does it for their errors.
pub fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return hint_of_store(error);
    }
    if let Some(error) = error.downcast_ref::<OpenError>() {
        return hint_of_open(error);
    }
    #[cfg(feature = "browse")]
    if error.is::<loopstore_browse::NoTerminal>() {
        return Some("`loopstore sessions` and `loopstore show SESSION` print the same");
    }
    if error.is::<InputError>() {
        return Some(
            "`loopstore install AGENT` sets the agent up as this version knows it; a newer agent may need a \
             newer loopstore",
        );
    }
    match error.downcast_ref::<BlameError>() {
        Some(BlameError::NoChange(_)) => {
            return Some(
                "check the path; `--recorded PATH` names it as the sessions do, `loopstore sessions` lists them",
            );
        }
        Some(BlameError::SeveralFiles { .. }) => {
            return Some(
                "`--recorded PATH` chooses one, `--project TEXT` only reads some sessions",
            );
        }
        _ => {}
    }
    match error.downcast_ref::<BuildError>() {
        Some(BuildError::Store(error)) => return hint_of_store(error),
        Some(BuildError::NeedsCompaction { .. }) => {
            return Some(
                "`loopstore compact SESSION --max-tokens N`, with the same --loop if one was given, makes it fit",
            );
        }
        Some(BuildError::NeedsFewerBytes { .. }) => {
            return Some(
                "`loopstore compact SESSION --max-bytes N`, with the same --loop if one was given, makes it fit",
            );
        }
        _ => {}
    }
    match error.downcast_ref::<ImportError>() {
        Some(ImportError::Read { .. }) => return Some("check the path and its permissions"),
        Some(ImportError::NoTranscript(_)) => {
            return Some(
                "`loopstore import --help` lists the formats, and how to name that of a file which is not recognised",
            );
        }
        Some(ImportError::Store(error)) => return hint_of_store(error),
        _ => {}
    }
    match error.downcast_ref::<BackupError>()? {
        BackupError::Exists(_) => Some("use another name, or --force to replace the file"),
        BackupError::InUse(_) => Some("use another name, or close the program that uses it"),
        _ => None,
    }
}

/// The hint for objects that are not part of the schema.
const FOREIGN: &str = "drop each with `sqlite3 FILE 'DROP TRIGGER NAME'` (or INDEX, VIEW, TABLE) if nobody needs it, or copy \
    the record into a clean database with `loopstore verify --salvage DEST`";

fn hint_of_open(error: &OpenError) -> Option<&'static str> {
    Some(match error {
        OpenError::Missing { .. } => "check --db, or create a database with `loopstore import`",
        OpenError::NotADatabase { .. } => "check --db: what it names is something else",
        OpenError::NotEncrypted { .. } => {
            "omit --key-fd, --key-env and --key-command, and unset LOOPSTORE_KEY_ENV and \
             LOOPSTORE_KEY_COMMAND"
        }
        OpenError::KeyMissing { .. } => "give the key with --key-fd, --key-env or --key-command",
        OpenError::WrongKey { .. } => "check the key; nothing can be read without the right one",
        OpenError::NoEncryption => "build loopstore with `--features sqlcipher`",
        OpenError::Counter { stored, .. } if stored.starts_with("tiktoken:") => {
            "a loopstore built with `--features tiktoken` has this counter; `loopstore recount` \
             changes to another"
        }
        OpenError::Counter { .. } => "`loopstore recount` changes to another counter",
        OpenError::Undistributed { .. } => {
            "`loopstore schema --engine citus | psql -v ON_ERROR_STOP=1 NAME` in an empty database makes them, \
             and `loopstore schema --engine citus --check` says what is missing"
        }
        OpenError::Recounting { .. } => "run `loopstore recount` to finish it",
        OpenError::ForeignSchema { .. } => FOREIGN,
        OpenError::Damaged { .. } => {
            "restore a backup, or save what is intact with `loopstore verify --salvage DEST`"
        }
        OpenError::Other { .. } | OpenError::ReadOnly { .. } => {
            "check that the folder exists and that both it and the file are writable: SQLite keeps its log \
             beside the file"
        }
        _ => return None,
    })
}

fn hint_of_store(error: &StoreError) -> Option<&'static str> {
    Some(match error {
        StoreError::NoSession(_) => "`loopstore sessions` lists the sessions",
        StoreError::NoLoop(_) => "`loopstore show SESSION` lists the loops",
        StoreError::NoRun(_) => "`loopstore history` lists the runs",
        StoreError::LeaseHeld { .. } => {
            "wait until it is done; `loopstore recover` helps if its agent is gone"
        }
        StoreError::Damaged(_) => "`loopstore verify` lists the damage",
        StoreError::ForeignSchema(_) => FOREIGN,
        StoreError::IndexDamaged(_) => "`loopstore index --rebuild` rebuilds it",
        StoreError::ReadOnly => "make the file and its folder writable, or work on a copy",
        StoreError::Full => "free some space and run the command again",
        StoreError::Io(_) => "check the disk, and the permissions of the files",
        _ => return None,
    })
}
