//! Errors of a report.

use std::io;

use loopstore::StoreError;

/// An error that ended a report before it was written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The store failed, or the session or loop is not there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The page could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

impl From<serde_json::Error> for ReportError {
    fn from(error: serde_json::Error) -> Self {
        Self::Write(error.into())
    }
}
