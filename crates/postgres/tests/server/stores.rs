//! The stores on which promises of the front door are tried: one in memory, and one on a server.

use loopstore::Store;

use crate::support::server;

/// Returns an empty store in memory and, where there is a server, one on it.
pub fn stores() -> Vec<Store> {
    let memory = Store::in_memory().unwrap();
    std::iter::once(memory).chain(on_a_server()).collect()
}

/// Returns an empty store on a server, if there is one.
pub fn on_a_server() -> Option<Store> {
    server::store().map(Store::from)
}
