//! The PostgreSQL backend: the promises of the contract and of the front door, from the tests of the crate
//! `loopstore`; the same histories and views as on a file; and what only a server can do.

/// Makes a test of each promise, on the backend of this program.
macro_rules! promises {
    ($($promise:ident),* $(,)?) => {
        mod postgres {
            $(#[test]
            fn $promise() {
                if let Some(store) = crate::support::server::store() {
                    super::$promise(&store);
                }
            })*
        }
    };
}

#[path = "../../../../tests/store/conformance.rs"]
mod conformance;
mod counting;
#[path = "../../../../tests/store/entries.rs"]
mod entries;
#[path = "../../examples/postgres.rs"]
#[allow(dead_code)]
mod example;
mod failover;
mod foreign;
mod frozen;
mod guarded;
#[path = "../../../../tests/store/hidden.rs"]
mod hidden;
mod interrupted;
#[path = "../../../../tests/store/removal/kept_files.rs"]
mod kept_files;
mod killed_worker;
mod old_server;
mod on_a_server;
#[path = "../../../../tests/store/parts.rs"]
mod parts;
#[path = "../../../../tests/store/removal/pieces.rs"]
mod pieces;
#[path = "../../../../tests/store/pins.rs"]
mod pins;
mod pooled;
#[path = "../../../../tests/store/search/questions.rs"]
mod questions;
mod random;
#[path = "../../../../tests/store/sealed_runs.rs"]
#[allow(dead_code)]
mod sealed_runs;
mod stores;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../../../tests/store/times.rs"]
mod times;
