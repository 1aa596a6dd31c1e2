//! What the test programs share that run the command, beside what all test programs share.
#![allow(dead_code)]

#[cfg(feature = "postgres")]
#[path = "../../../postgres/tests/support/citus.rs"]
pub mod citus;
pub mod command;
pub mod door;
pub mod page;
#[cfg(feature = "postgres")]
#[path = "../../../postgres/tests/support/server.rs"]
pub mod server;
#[path = "../../../../tests/support/mod.rs"]
mod shared;
#[cfg(feature = "postgres")]
#[path = "../../../postgres/tests/support/views.rs"]
pub mod views;

pub use shared::*;
