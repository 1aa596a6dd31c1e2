//! The PostgreSQL backend beside SQLite: the same histories, commands and views, and what a server can
//! do that a file cannot.
//!
//! The promises of the contract are in `tests/store_conformance.rs`, stamped onto both.

mod commands;
mod counting;
mod failover;
mod frozen;
mod guarded;
#[path = "../histories/mod.rs"]
mod histories;
mod interrupted;
#[path = "../keyed/mod.rs"]
mod keyed;
mod moving;
mod old_server;
#[allow(dead_code)]
#[path = "../report/page.rs"]
mod page;
mod parity;
mod random;
mod refusals;
mod server;
mod shards;
mod tenants;
mod views;
