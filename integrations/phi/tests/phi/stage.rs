//! A runtime, stores, and JSON without fields that always differ.

use std::path::Path;

use loopstore::{AsyncStore, Durability, SqliteStore, Store};
use serde::Serialize;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub fn in_memory() -> AsyncStore {
    Store::in_memory().unwrap().into()
}

/// Opens a file that need not survive a power loss.
pub fn open(path: &Path) -> AsyncStore {
    let options = crate::support::keyed::options().durability(Durability::Normal);
    Store::from(SqliteStore::open_with(path, options).unwrap()).into()
}

pub fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap()
}

/// A message without its time and turn: a summary has another time in each world, and a recorder
/// puts a prompt into its turn.
pub fn plain<T: Serialize>(message: &T) -> String {
    let mut value = json(message);
    let fields = value.as_object_mut().unwrap();
    fields.remove("turnId");
    fields.remove("timestamp");
    value.to_string()
}

pub fn all_plain<T: Serialize>(messages: &[T]) -> Vec<String> {
    messages.iter().map(plain).collect()
}
