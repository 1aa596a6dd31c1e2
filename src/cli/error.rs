//! What goes wrong, told on stderr in full sentences.

use std::error::Error;
use std::io::ErrorKind;
use std::process::ExitCode;

use loopstore::backup::BackupError;
use loopstore::context::BuildError;
use loopstore::export::ExportError;
use loopstore::import::ImportError;
use loopstore::store::sqlite::RecountError;
use loopstore::{OpenError, StoreError, StrategyError};

use super::output;
use super::select::Unknown;

/// Why a command ended before it was done.
#[derive(Debug)]
pub enum CliError {
    /// It failed.
    Failed(Box<dyn Error>),
    /// It was asked for something that it does not take.
    Usage(String),
    /// Nobody reads stdout any more.
    Pipe,
}

impl CliError {
    /// Tells the error with its causes and returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Pipe => ExitCode::SUCCESS,
            Self::Usage(text) => {
                output::note(&format!("error: {text}"));
                ExitCode::from(2)
            }
            Self::Failed(error) => {
                output::note(&format!("error: {}", told(&**error)));
                if let Some(hint) = hint(&**error) {
                    output::note(&format!("hint: {hint}"));
                }
                ExitCode::from(1)
            }
        }
    }
}

/// Returns an error with its causes; a cause that the text names already is not told again.
pub fn told(error: &dyn Error) -> String {
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

/// Says what to do next where the error itself does not.
fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<OpenError>() {
        return match error {
            OpenError::NotADatabase { .. } => {
                Some("name the database with --db, or create one with `loopstore import`")
            }
            OpenError::NotEncrypted { .. } => Some(
                "leave --key-fd, --key-env and --key-command away, and unset LOOPSTORE_KEY_ENV and \
                 LOOPSTORE_KEY_COMMAND",
            ),
            OpenError::KeyMissing { .. } => {
                Some("give the key with --key-fd, --key-env or --key-command")
            }
            OpenError::WrongKey { .. } => {
                Some("check which key it is; without the right one nothing can be read")
            }
            OpenError::NoEncryption => Some("build loopstore with `--features sqlcipher`"),
            OpenError::Counter { stored, .. } if stored.starts_with("tiktoken:") => {
                Some("a loopstore built with `--features tiktoken` has this counter")
            }
            OpenError::Other { .. } => Some(
                "check that the file and its folder can be written: SQLite keeps its log beside the \
                 file",
            ),
            _ => None,
        };
    }
    #[cfg(feature = "browse")]
    if error.is::<super::browse::NoTerminal>() {
        return Some("`loopstore sessions` and `loopstore show SESSION` print the same");
    }
    match error.downcast_ref::<ImportError>() {
        Some(ImportError::Read { .. }) => {
            return Some("check the path and that the file may be read");
        }
        Some(ImportError::Store(error)) => return hint_of_store(error),
        _ => {}
    }
    match error.downcast_ref::<BackupError>() {
        Some(BackupError::Exists(_)) => Some("give another name, or --force to replace that file"),
        Some(BackupError::InUse(_)) => Some("give another name, or close what uses it"),
        _ => None,
    }
    .or_else(|| hint_of_store(error.downcast_ref::<StoreError>()?))
}

fn hint_of_store(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::ReadOnly => Some("make the file and its folder writable, or work on a copy"),
        StoreError::Full => Some("make room and run the command again"),
        StoreError::Io(_) => Some("check the disk and that the files may be read and written"),
        _ => None,
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl From<Unknown> for CliError {
    fn from(unknown: Unknown) -> Self {
        match unknown.near.is_empty() {
            true => unknown.error.into(),
            false => Self::Failed(Box::new(unknown)),
        }
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        Self::Failed(Box::new(error))
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

impl From<ImportError> for CliError {
    fn from(error: ImportError) -> Self {
        Self::Failed(Box::new(error))
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
