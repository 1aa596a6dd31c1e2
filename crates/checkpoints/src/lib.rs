//! Checkpoints of LangGraph in sessions of loopstore.
//!
//! A thread is a session. Its checkpoints, the values of their channels and the writes of tasks
//! are extension messages, which no model sees: durable when a call returns, never changed, verified,
//! copied and erased with their session. A value is stored with its first checkpoint, and later checkpoints
//! refer to it. A list of messages is stored as messages, each once, which are searched and shown as any
//! others (`lines.rs`); a value with messages of a list, or with messages to be appended to it, refers to them.
//!
//! The packages for Python and Node use this crate. Values are in an encoding of LangGraph, which differs
//! by language: a thread that the other language wrote is rejected. The crate runs no graph, and decodes no values.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod copy;
mod error;
mod forms;
mod lines;
mod names;
mod packed;
mod put;
mod read;
mod record;
mod reports;
mod shorten;
#[cfg(test)]
mod tests;
mod thread;

use loopstore::Store;
use loopstore::StoreError;
use loopstore::extend::{self, StoreRead, StoreWrite};

pub use error::{Error, Result};
pub use names::Language;
pub use record::{
    Bodies, ChannelHistory, Checkpoint, CheckpointRef, ListPart, ListQuery, MessagePosition,
    MessagesOf, NewCheckpoint, NewValue, NewWrites, PutResult, Segment, StoredList, Value, Write,
};
pub use thread::{OnDelete, Strategy};

/// The checkpoints of a store. Clones share the store.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    store: Store,
    language: Language,
}

impl Checkpoints {
    /// Returns the checkpoints of LangGraph for a language in a store.
    pub fn new(store: Store, language: Language) -> Self {
        Self { store, language }
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn read<T>(&self, work: impl FnOnce(&dyn StoreRead) -> Result<T>) -> Result<T> {
        let mut refused = None;
        let done = extend::read(self.store.database(), |read| {
            work(read).map_err(|error| outside(error, &mut refused))
        });
        refused.map_or_else(|| Ok(done?), Err)
    }

    fn write<T>(&self, work: impl FnOnce(&mut dyn StoreWrite) -> Result<T>) -> Result<T> {
        let mut refused = None;
        let done = extend::write(self.store.database(), |write| {
            work(write).map_err(|error| outside(error, &mut refused))
        });
        refused.map_or_else(|| Ok(done?), Err)
    }
}

/// Carries an error that is not the store's out of a transaction, which is rolled back.
fn outside(error: Error, refused: &mut Option<Error>) -> StoreError {
    match error {
        Error::Store(error) => error,
        error => {
            let reason = error.to_string();
            *refused = Some(error);
            StoreError::Invalid(reason)
        }
    }
}
