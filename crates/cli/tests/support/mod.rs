//! What the test programs share that run the command, beside what all test programs share.
#![allow(dead_code)]

pub mod command;
pub mod door;
pub mod page;
#[path = "../../../../tests/support/mod.rs"]
mod shared;

pub use shared::*;
