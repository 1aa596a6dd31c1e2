//! The errors of a package: the class, the text and the fields for each error of loopstore.

use std::any::Any;
use std::error::Error as StdError;

use loopstore::compact::BudgetUnit;
use loopstore::{Error, InvalidId, KeyError, OpenError, SettingsError, StoreError};
use loopstore_export::ExportError;
use loopstore_report::ReportError;
use loopstore_transcripts::ImportError;
use serde::Serialize;

/// An error of a call.
#[derive(Debug)]
pub enum CallError {
    Core(Error),
    Open(OpenError),
    /// The arguments are wrong.
    Input(String),
    /// A file that is not the database cannot be read or written.
    File(String),
    /// This build lacks a feature.
    Feature(&'static str),
    /// An error of a drop-in: its class, and its text.
    Named(&'static str, String),
    /// A function of the other language raised an error: its text, and the error itself.
    Raised(String, Box<dyn Any + Send>),
    Closed,
    Forked,
    Panicked(String),
}

impl From<loopstore_checkpoints::Error> for CallError {
    fn from(error: loopstore_checkpoints::Error) -> Self {
        use loopstore_checkpoints::Error;
        match error {
            Error::Store(error) => error.into(),
            Error::Id(error) => error.into(),
            Error::Foreign { .. } => Self::Named("ForeignThreadError", error.to_string()),
            Error::ThreadExists(_) => Self::Named("ExistsError", error.to_string()),
            Error::Unreadable { .. } => Self::Named("UnreadableError", error.to_string()),
            other => Self::Input(with_causes(&other)),
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Core(error.into())
    }
}

impl From<OpenError> for CallError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<ExportError> for CallError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => error.into(),
            ExportError::Write(error) => Self::File(error.to_string()),
        }
    }
}

impl From<ReportError> for CallError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Store(error) => error.into(),
            ReportError::Write(error) => Self::File(error.to_string()),
        }
    }
}

impl From<ImportError> for CallError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Store(error) => error.into(),
            ImportError::Read { .. } => Self::File(with_causes(&error)),
            other => Self::Input(with_causes(&other)),
        }
    }
}

/// Errors in arguments.
macro_rules! input {
    ($($error:ty),*) => {
        $(impl From<$error> for CallError {
            fn from(error: $error) -> Self {
                Self::Input(with_causes(&error))
            }
        })*
    };
}

input!(
    InvalidId,
    KeyError,
    SettingsError,
    serde_json::Error,
    loopstore::provider::ProviderError,
    loopstore::UnknownWord
);

/// Returns an error with its causes, each once.
pub fn with_causes(error: &dyn StdError) -> String {
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

/// A field of an error, in addition to its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ErrorField {
    Text(String),
    Number(u64),
    Nothing,
}

/// The class of an error, its text, and its fields.
pub type ErrorDescription = (&'static str, String, Vec<(&'static str, ErrorField)>);

impl CallError {
    /// Returns the description of the error; `build` returns the command that builds this package with a feature.
    pub fn describe(self, build: fn(&str) -> String) -> ErrorDescription {
        let plain = |class, text: String| (class, text, Vec::new());
        match self {
            Self::Core(error) => describe(error),
            Self::Open(error) => of_opening(&error, build),
            Self::Input(text) => plain("InvalidInputError", text),
            Self::File(text) => plain("StorageError", text),
            Self::Feature(name) => plain(
                "UnsupportedError",
                format!(
                    "this build of loopstore has no `{name}`; build it with `{}`",
                    build(name)
                ),
            ),
            Self::Named(class, text) => plain(class, text),
            // A package raises the error itself.
            Self::Raised(text, _) => plain("LoopstoreError", text),
            Self::Closed => plain("ClosedError", "the store is closed; open it again".into()),
            Self::Forked => plain(
                "ForkedError",
                "this store was opened before the process was forked; open it again in this process"
                    .into(),
            ),
            Self::Panicked(text) => plain(
                "InternalError",
                format!("loopstore failed in itself ({text}); nothing was written: please report it"),
            ),
        }
    }
}

fn describe(error: Error) -> ErrorDescription {
    let text = with_causes(&error);
    let class = match error {
        Error::Busy => "BusyError",
        Error::NotFound { what, id } => {
            let fields = vec![
                ("what", ErrorField::Text(what.into())),
                ("id", ErrorField::Text(id)),
            ];
            return ("NotFoundError", text, fields);
        }
        Error::LoopHeld {
            loop_id,
            owner,
            until,
        } => {
            let fields = vec![
                ("loop_id", ErrorField::Text(loop_id)),
                ("owner", ErrorField::Text(owner)),
                ("until", ErrorField::Text(until)),
            ];
            return ("LoopHeldError", text, fields);
        }
        Error::NeedsCompaction {
            tokens,
            budget,
            reason,
        } => {
            return (
                "NeedsCompactionError",
                text,
                sizes(tokens, budget, "tokens", reason),
            );
        }
        Error::NeedsFewerBytes {
            bytes,
            budget,
            reason,
        } => {
            return (
                "NeedsCompactionError",
                text,
                sizes(bytes, budget, "bytes", reason),
            );
        }
        Error::BudgetTooSmall {
            needed,
            budget,
            unit,
        } => {
            let unit = match unit {
                BudgetUnit::Tokens => "tokens",
                BudgetUnit::Bytes => "bytes",
            };
            return (
                "BudgetTooSmallError",
                text,
                sizes(needed, budget, unit, None),
            );
        }
        Error::TooFewTokens { needed, given } => {
            return (
                "BudgetTooSmallError",
                text,
                sizes(needed, given, "tokens", None),
            );
        }
        Error::KeyTaken { .. } => "ExistsError",
        Error::Damaged(_) => "DamagedError",
        Error::Id(_) | Error::Provider(_) | Error::Query(_) => "InvalidInputError",
        Error::Store(error) => of_store(&error),
        _ => "LoopstoreError",
    };
    (class, text, Vec::new())
}

fn sizes(
    needed: u64,
    budget: u64,
    unit: &str,
    reason: Option<String>,
) -> Vec<(&'static str, ErrorField)> {
    vec![
        ("needed", ErrorField::Number(needed)),
        ("budget", ErrorField::Number(budget)),
        ("unit", ErrorField::Text(unit.into())),
        (
            "reason",
            reason.map_or(ErrorField::Nothing, ErrorField::Text),
        ),
    ]
}

fn of_store(error: &StoreError) -> &'static str {
    match error {
        StoreError::Busy | StoreError::PoolTimeout(_) | StoreError::SerializationFailure => {
            "BusyError"
        }
        StoreError::NoSession(_)
        | StoreError::NoLoop(_)
        | StoreError::NoRun(_)
        | StoreError::NoManifest(_)
        | StoreError::NoCompaction { .. }
        | StoreError::NoBlob(_) => "NotFoundError",
        StoreError::SessionExists(_) | StoreError::LoopExists(_) | StoreError::KeyTaken { .. } => {
            "ExistsError"
        }
        StoreError::Ambiguous { .. } | StoreError::EditRefused(_) | StoreError::Invalid(_) => {
            "InvalidInputError"
        }
        StoreError::Conflict => "BusyError",
        StoreError::LeaseHeld { .. } | StoreError::LeaseLost { .. } => "LoopHeldError",
        StoreError::Damaged(_) | StoreError::IndexDamaged(_) | StoreError::ForeignSchema(_) => {
            "DamagedError"
        }
        StoreError::ReadOnly => "ReadOnlyError",
        StoreError::Full => "DiskFullError",
        StoreError::Unconfirmed(_) => "UnconfirmedError",
        StoreError::FileReplaced
        | StoreError::Io(_)
        | StoreError::Connection(_)
        | StoreError::TimedOut
        | StoreError::StatementTimeout(_) => "StorageError",
        StoreError::Other(_) => "LoopstoreError",
    }
}

fn of_opening(error: &OpenError, build: fn(&str) -> String) -> ErrorDescription {
    let class = match error {
        OpenError::Busy => "BusyError",
        OpenError::Damaged { .. } | OpenError::ForeignSchema { .. } => "DamagedError",
        OpenError::NoEncryption => return CallError::Feature("sqlcipher").describe(build),
        _ => "OpenError",
    };
    (class, with_causes(error), Vec::new())
}
