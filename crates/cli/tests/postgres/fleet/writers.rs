//! Clients that write all the time, each with a store and a session of its own, and recover by themselves.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loopstore::*;
use loopstore_postgres::{PostgresOptions, PostgresStore};

/// One that writes.
pub struct Writer {
    pub session: String,
    pub address: String,
    /// The time at which each key was acknowledged; the key is the index.
    acknowledged: Mutex<Vec<Instant>>,
    /// The number of errors, by name.
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

/// Returns the name of an error after which the client may try again, or must check the outcome.
pub fn transient_name(error: &StoreError) -> Option<&'static str> {
    Some(match error {
        StoreError::Connection(_) => "Connection",
        StoreError::Unconfirmed(_) => "Unconfirmed",
        StoreError::StatementTimeout(_) => "StatementTimeout",
        StoreError::TimedOut => "TimedOut",
        StoreError::Busy | StoreError::PoolTimeout(_) => "Busy",
        StoreError::SerializationFailure => "SerializationFailure",
        _ => return None,
    })
}

/// Opens a store with the settings for a fleet.
pub fn open(address: &str) -> PostgresStore {
    let options = PostgresOptions::new()
        .connections(2)
        .patience(Duration::from_secs(5))
        .statement_limit(Some(Duration::from_secs(5)));
    PostgresStore::open_with(address, options).unwrap()
}

impl Writer {
    pub fn new(session: String, address: String) -> Self {
        Self {
            session,
            address,
            acknowledged: Mutex::default(),
            errors: Mutex::default(),
        }
    }

    /// Returns the number of acknowledged keys.
    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Returns the time of the first acknowledgement after a time.
    pub fn first_after(&self, moment: Instant) -> Option<Instant> {
        let all = self.acknowledged.lock().unwrap();
        let at = all.partition_point(|acknowledged| *acknowledged <= moment);
        all.get(at).copied()
    }

    pub fn errors(&self) -> BTreeMap<&'static str, u64> {
        self.errors.lock().unwrap().clone()
    }

    /// Writes one key after another until it is stopped.
    pub fn run(&self, stop: &AtomicBool) {
        let store = Store::from(open(&self.address));
        let chat = store.session(&self.session).unwrap();
        while !stop.load(Ordering::Relaxed) {
            let key = self.count().to_string();
            match chat.append_once(&key, [Message::user(key.as_str())]) {
                Ok(_) => {
                    self.acknowledged.lock().unwrap().push(Instant::now());
                    std::thread::sleep(Duration::from_millis(200));
                }
                Err(error) => {
                    let name = match &error {
                        Error::Busy => Some("Busy"),
                        Error::Store(error) => transient_name(error),
                        _ => None,
                    };
                    let name = name.unwrap_or_else(|| panic!("{}: {error:?}", self.address));
                    *self.errors.lock().unwrap().entry(name).or_default() += 1;
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }
}
