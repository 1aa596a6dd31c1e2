//! Errors of sharing.

use loopstore::{OpenError, StoreError};
use loopstore_export::ExportError;
use loopstore_report::ReportError;
use loopstore_transcripts::ImportError;

/// An error of sharing a session.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The store failed, or the session does not exist.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The copy could not be created.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The session could not be read.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The copy, or the page, could not be read.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The page could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The cut is not possible.
    #[error("{0}")]
    Cut(String),
    /// The page has another session than the copy.
    #[error("the page that was written is not the session; do not share it")]
    Differs,
    /// Secrets remain, with their rules or places.
    #[error("secrets remain after the redaction ({0}); nothing was shared")]
    Remains(String),
}
