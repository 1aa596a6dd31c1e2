//! Clients that write all the time, each with a store and a session of its own, and go on by themselves.

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
    /// When each key was acknowledged; the key is the place in the list.
    acknowledged: Mutex<Vec<Instant>>,
    /// Errors that came meanwhile, by name.
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

/// Returns the name of an error that says that something may be tried again, or is to be looked after.
pub fn passing(error: &StoreError) -> Option<&'static str> {
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

/// Opens a store as clients of a fleet should.
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

    /// How many keys were acknowledged.
    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Returns when the first key was acknowledged after a moment.
    pub fn first_after(&self, moment: Instant) -> Option<Instant> {
        let all = self.acknowledged.lock().unwrap();
        let at = all.partition_point(|acknowledged| *acknowledged <= moment);
        all.get(at).copied()
    }

    pub fn errors(&self) -> BTreeMap<&'static str, u64> {
        self.errors.lock().unwrap().clone()
    }

    /// Writes one key after another until it is told to stop.
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
                        Error::Store(error) => passing(error),
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
