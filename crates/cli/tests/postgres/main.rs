//! The command on a PostgreSQL server: the same commands as on a file, tenants, clusters and failovers.
//!
//! The tests of the backend itself are in `crates/postgres/tests`.

mod append_processes;
mod citus;
mod commands;
mod fleet;
mod moving;
mod parity;
mod plans;
mod refusals;
mod shards;
#[path = "../support/mod.rs"]
mod support;
mod syncing;
mod tenants;
