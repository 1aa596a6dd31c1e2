//! Facts about records by id, without holding the ids: a long transcript has very many.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// Values by id. An id is stored as two 64-bit hashes with random keys, so that collisions can neither be provoked nor
/// happen by chance.
#[derive(Debug)]
pub(super) struct ById<V> {
    hashes: [RandomState; 2],
    values: HashMap<[u64; 2], V>,
}

impl<V> Default for ById<V> {
    fn default() -> Self {
        Self {
            hashes: [RandomState::new(), RandomState::new()],
            values: HashMap::new(),
        }
    }
}

impl<V> ById<V> {
    fn key(&self, id: &str) -> [u64; 2] {
        [self.hashes[0].hash_one(id), self.hashes[1].hash_one(id)]
    }

    pub(super) fn get(&self, id: &str) -> Option<&V> {
        self.values.get(&self.key(id))
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut V> {
        self.values.get_mut(&self.key(id))
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.get(id).is_some()
    }

    pub(super) fn insert(&mut self, id: &str, value: V) {
        self.values.insert(self.key(id), value);
    }
}
