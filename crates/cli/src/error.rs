//! Errors, printed on stderr with a hint at what to do next.

use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;

use loopstore::context::BuildError;
use loopstore::extend::sqlite::RecountError;
use loopstore::provider::ProviderError;
use loopstore::{OpenError, StoreError, StrategyError};
use loopstore_admin::backup::BackupError;
use loopstore_export::ExportError;
use loopstore_report::ReportError;
use loopstore_transcripts::ImportError;

use super::hook::input::InputError;
use super::install::record;
use super::select::Unknown;
use super::{output, text};

/// Why a command ended before it was done.
#[derive(Debug)]
pub enum CliError {
    /// It failed.
    Failed(Box<dyn Error>),
    /// The arguments were wrong.
    Usage(String),
    /// Nobody reads stdout any more.
    Pipe,
}

impl CliError {
    /// Prints the error with its causes and a hint, and returns the exit code.
    pub fn report(&self) -> u8 {
        self.report_of(None)
    }

    /// Does so for a command that was given `file` as its database: what the hint says to type names it too.
    pub fn report_of(&self, file: Option<&Path>) -> u8 {
        match self {
            Self::Pipe => 0,
            Self::Usage(text) => {
                output::note(&format!("error: {text}"));
                2
            }
            Self::Failed(error) => {
                output::note(&format!("error: {}", with_causes(&**error)));
                if let Some(hint) = hint(&**error) {
                    let hint = match file {
                        Some(file) => of_database(hint, file),
                        None => hint.to_owned(),
                    };
                    output::note(&format!("hint: {hint}"));
                }
                if let Some(OpenError::Missing { .. }) = error.downcast_ref::<OpenError>()
                    && let Some(database) = record::database()
                {
                    let database = text::line(&database);
                    output::note(&format!(
                        "hint: agents record into {database} here; --db names it, or LOOPSTORE_DB"
                    ));
                }
                1
            }
        }
    }
}

/// Returns a hint whose commands name the database.
fn of_database(hint: &str, file: &Path) -> String {
    let file = text::line(&file.display().to_string());
    hint.replace(
        "`loopstore ",
        &format!("`loopstore --db {} ", text::quoted(&file)),
    )
}

impl CliError {
    /// Returns what it says, with its causes.
    pub fn reason(&self) -> String {
        match self {
            Self::Failed(error) => with_causes(&**error),
            Self::Usage(text) => text.clone(),
            Self::Pipe => "nobody reads the output".to_owned(),
        }
    }

    /// Returns what to do about it, if that is known.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Failed(error) => hint(&**error),
            Self::Usage(_) | Self::Pipe => None,
        }
    }
}

/// Returns an error with its causes, each once.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text.push_str(": ");
            text.push_str(&why);
        }
        cause = error.source();
    }
    text
}

/// Says what to type next. The library names no commands and options: this is the only place that does
/// it for its errors.
fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return hint_of_store(error);
    }
    if let Some(error) = error.downcast_ref::<OpenError>() {
        return hint_of_open(error);
    }
    #[cfg(feature = "browse")]
    if error.is::<super::browse::NoTerminal>() {
        return Some("`loopstore sessions` and `loopstore show SESSION` print the same");
    }
    if error.is::<InputError>() {
        return Some(
            "`loopstore install AGENT` sets the agent up as this version knows it; a newer agent may need a \
             newer loopstore",
        );
    }
    match error.downcast_ref::<BuildError>() {
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

/// What to do about objects that are not part of the schema.
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

/// Errors that are passed on as they are.
macro_rules! failed {
    ($($error:ty),*) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::Failed(Box::new(error))
            }
        })*
    };
}

failed!(StoreError, OpenError, ImportError, ProviderError);

impl From<Unknown> for CliError {
    fn from(unknown: Unknown) -> Self {
        match unknown.near.is_empty() {
            true => unknown.error.into(),
            false => Self::Failed(Box::new(unknown)),
        }
    }
}

impl From<BuildError> for CliError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Store(error) => error.into(),
            other => Self::Failed(Box::new(other)),
        }
    }
}

impl From<StrategyError> for CliError {
    fn from(error: StrategyError) -> Self {
        match error {
            StrategyError::Read(error) => StoreError::from(error).into(),
            other => Self::Failed(Box::new(other)),
        }
    }
}

impl From<ExportError> for CliError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => error.into(),
            ExportError::Write(error) => error.into(),
        }
    }
}

impl From<ReportError> for CliError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Store(error) => error.into(),
            ReportError::Write(error) => error.into(),
        }
    }
}

impl From<BackupError> for CliError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Store(error) => error.into(),
            other => Self::Failed(Box::new(other)),
        }
    }
}

impl From<RecountError> for CliError {
    fn from(error: RecountError) -> Self {
        match error {
            RecountError::Open(error) => error.into(),
            RecountError::Store(error) => error.into(),
        }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Pipe,
            _ => Self::Failed(Box::new(error)),
        }
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(ErrorKind::BrokenPipe) => Self::Pipe,
            _ => Self::Failed(Box::new(error)),
        }
    }
}
