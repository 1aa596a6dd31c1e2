//! A store of each kind, for promises of the front door.

use loopstore::Store;

/// Returns an empty store in memory and, where there is a server, one on it.
pub fn stores() -> Vec<Store> {
    let mut stores = vec![Store::in_memory().unwrap()];
    #[cfg(feature = "postgres")]
    stores.extend(super::server::store().map(Store::from));
    stores
}
