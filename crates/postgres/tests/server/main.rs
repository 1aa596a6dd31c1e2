//! The PostgreSQL backend: the promises of every backend, the same histories and views as on a file, and
//! features that only a server has.

mod conformance;
mod counting;
#[path = "../../examples/postgres.rs"]
#[allow(dead_code)]
mod example;
mod failover;
mod foreign;
mod frozen;
mod guarded;
mod interrupted;
mod killed_worker;
mod old_server;
mod on_a_server;
mod pooled;
mod random;

use loopstore_testing as support;
