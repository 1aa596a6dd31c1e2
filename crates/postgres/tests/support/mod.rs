//! What programs share that need a server, beside what all test programs share.
#![allow(dead_code)]

pub mod citus;
pub mod server;
#[path = "../../../../tests/support/mod.rs"]
mod shared;
pub mod views;

pub use shared::*;
