//! Helpers for test programs that run the command, in addition to those of `loopstore-testing`.
#![allow(dead_code)]

pub mod append_process;
pub mod command;
pub mod page;

pub use loopstore_testing::*;
