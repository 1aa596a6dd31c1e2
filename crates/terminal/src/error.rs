//! Errors of commands.

use std::error::Error;
use std::io::{self, ErrorKind};

use super::{Hints, output};

/// An error that ended a command.
#[derive(Debug)]
pub enum CliError {
    /// The command failed.
    Failed(Box<dyn Error>),
    /// The arguments were wrong.
    Usage(String),
    /// The reader of stdout has closed it.
    Pipe,
}

impl CliError {
    /// Prints the error with its causes and the hint, and returns the exit code.
    pub fn report(&self, hint: Option<&str>) -> u8 {
        match self {
            Self::Pipe => return 0,
            Self::Usage(text) => {
                output::note(&format!("error: {text}"));
                return 2;
            }
            Self::Failed(error) => output::note(&format!("error: {}", with_causes(&**error))),
        }
        if let Some(hint) = hint {
            output::note(&format!("hint: {hint}"));
        }
        1
    }

    /// Returns an error of any type as the error of a command.
    pub fn from_box(error: Box<dyn Error>) -> Self {
        match is_broken_pipe(&*error) {
            true => Self::Pipe,
            false => Self::Failed(error),
        }
    }

    /// Returns the text of the error, with its causes.
    pub fn reason(&self) -> String {
        match self {
            Self::Failed(error) => with_causes(&**error),
            Self::Usage(text) => text.clone(),
            Self::Pipe => "nobody reads the output".to_owned(),
        }
    }

    /// Returns the hint of `hints` for the error, if there is one.
    pub fn hint(&self, hints: Hints) -> Option<&'static str> {
        match self {
            Self::Failed(error) => hints(&**error),
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

/// Errors of any crate end a command.
impl<E: Error + 'static> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::from_box(Box::new(error))
    }
}

/// True if the error is a broken pipe: the output is no longer read.
fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let kind = match error.downcast_ref::<io::Error>() {
        Some(error) => Some(error.kind()),
        None => error
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind),
    };
    kind == Some(ErrorKind::BrokenPipe)
}
