//! A store of each kind, for promises of the front door.

use loopstore::Store;

/// Returns an empty store in memory and, where there is a server, one on it.
pub fn stores() -> Vec<Store> {
    let memory = Some(Store::in_memory().unwrap());
    #[cfg(feature = "postgres")]
    let memory = memory
        .into_iter()
        .chain(super::server::store().map(Store::from));
    memory.into_iter().collect()
}
