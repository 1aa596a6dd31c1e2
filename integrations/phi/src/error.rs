//! Errors of the store as errors of phi-core.

use std::io;

use loopstore::extend::StoreError;
use loopstore_export::ExportError;
use loopstore_recorder::RecordError;
use loopstore_transcripts::ImportError;
use phi_core::SessionError;

/// An error of an adapter.
#[derive(Debug, thiserror::Error)]
pub(super) enum PhiError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Lost(loopstore::Error),
    #[error("{0}")]
    Other(String),
}

/// Returns the result of a call on the pool; a panic, or a runtime that shut down, is an error.
pub(super) fn outcome<T>(done: loopstore::Result<Result<T, PhiError>>) -> Result<T, PhiError> {
    done.unwrap_or_else(|lost| Err(PhiError::Lost(lost)))
}

/// Returns the error of phi-core for this one; `session` is the id in the call.
pub(super) fn session_error(refused: PhiError, session: &str) -> SessionError {
    let session_id = session.to_owned();
    match refused {
        PhiError::Lost(error) => SessionError::Task(error.to_string()),
        PhiError::Json(error) => SessionError::Serialize(error),
        PhiError::Store(StoreError::NoSession(_))
        | PhiError::Export(ExportError::Store(StoreError::NoSession(_))) => {
            SessionError::NotFound { session_id }
        }
        PhiError::Store(error) | PhiError::Record(RecordError::Store(error)) if is_held(&error) => {
            SessionError::Locked { session_id }
        }
        other => SessionError::Io(io::Error::other(
            Box::<dyn std::error::Error + Send + Sync>::from(other),
        )),
    }
}

fn is_held(error: &StoreError) -> bool {
    matches!(error, StoreError::Busy | StoreError::LeaseHeld { .. })
}
