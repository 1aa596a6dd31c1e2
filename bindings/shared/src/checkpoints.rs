//! What storing a checkpoint answers.

use loopstore_checkpoints::{Error, PutResult};
use serde_json::json;

use crate::errors::Failure;

/// Writes what was stored. What the caller has to do again is told in place of an error: `missing` names
/// channels whose values are wanted, `stale` that what it remembers is of a thread that was deleted.
pub fn answer(done: Result<PutResult, Error>) -> Result<Vec<u8>, Failure> {
    Ok(match done {
        Ok(stored) => serde_json::to_vec(&stored)?,
        Err(Error::Missing(channels)) => serde_json::to_vec(&json!({"missing": channels}))?,
        Err(Error::Stale(thread)) => serde_json::to_vec(&json!({"stale": thread}))?,
        Err(error) => return Err(error.into()),
    })
}
