//! The answers of calls that store checkpoints.

use loopstore_checkpoints::{Error, PutResult};
use serde_json::json;

use crate::errors::CallError;

/// Writes the result as JSON. The result may request another call: `missing` lists channels whose values are needed,
/// and `stale` names a thread that was deleted since the caller read it.
pub fn answer(done: Result<PutResult, Error>) -> Result<Vec<u8>, CallError> {
    Ok(match done {
        Ok(stored) => serde_json::to_vec(&stored)?,
        Err(Error::Missing(channels)) => serde_json::to_vec(&json!({"missing": channels}))?,
        Err(Error::Stale(thread)) => serde_json::to_vec(&json!({"stale": thread}))?,
        Err(error) => return Err(error.into()),
    })
}
