//! The parts of the test programs that run the command, beside those of `loopstore-testing`.
#![allow(dead_code)]

pub mod command;
pub mod door;
pub mod page;

pub use loopstore_testing::*;
