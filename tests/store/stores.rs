//! The stores on which promises of the front door are tried. `loopstore-postgres` runs the same tests with a
//! file of this name that adds a server.

use loopstore::Store;

/// Returns an empty store in memory.
pub fn stores() -> Vec<Store> {
    vec![Store::in_memory().unwrap()]
}

/// Returns an empty store on a server: the tests of this package start none.
pub fn on_a_server() -> Option<Store> {
    None
}
