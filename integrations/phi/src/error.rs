//! Errors of the store as phi-core knows them.

use std::io;

use loopstore::extend::StoreError;
use loopstore_export::ExportError;
use loopstore_recorder::RecordError;
use loopstore_transcripts::ImportError;
use phi_core::SessionError;

/// Why an adapter could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
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

/// Returns what a call on the pool gave; that it panicked, or that its runtime went, is a refusal.
pub(super) fn outcome<T>(done: loopstore::Result<Result<T, Refusal>>) -> Result<T, Refusal> {
    done.unwrap_or_else(|lost| Err(Refusal::Lost(lost)))
}

/// Returns the error that phi-core has for this one; `session` is what was asked for.
pub(super) fn session_error(refused: Refusal, session: &str) -> SessionError {
    let session_id = session.to_owned();
    match refused {
        Refusal::Lost(error) => SessionError::Task(error.to_string()),
        Refusal::Json(error) => SessionError::Serialize(error),
        Refusal::Store(StoreError::NoSession(_))
        | Refusal::Export(ExportError::Store(StoreError::NoSession(_))) => {
            SessionError::NotFound { session_id }
        }
        Refusal::Store(error) | Refusal::Record(RecordError::Store(error)) if is_held(&error) => {
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
