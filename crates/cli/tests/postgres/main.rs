//! The PostgreSQL backend beside SQLite: the same histories, commands and views, and what a server can
//! do that a file cannot.
//!
//! The promises of the contract are in `tests/store/conformance.rs`, stamped onto both.

mod citus;
mod commands;
mod counting;
mod doors;
mod failover;
mod fleet;
mod foreign;
mod frozen;
mod guarded;
mod interrupted;
mod killed_worker;
mod moving;
mod old_server;
mod parity;
mod plans;
mod pooled;
mod random;
mod refusals;
mod shards;
#[path = "../support/mod.rs"]
mod support;
mod tenants;
mod views;
