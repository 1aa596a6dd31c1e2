//! The reference model: a second, slow and obvious implementation of DESIGN sections 1 to 5.
//!
//! Everything is plain owned data and every answer is derived from the whole history, so that a property test can
//! compare the store with the model. Nothing here may import the crate. The state at an earlier tick is a session too:
//! `forces::at` returns it, and every other function then reads that.
//!
//! A rollup on the leaf itself, as imports leave them, is not modelled.
#![allow(dead_code)]

pub mod build;
pub mod checks;
pub mod forces;
pub mod history;
pub mod layout;
pub mod original;
pub mod pins;
pub mod plan;
pub mod run;
pub mod scope;
pub mod text;
pub mod tokens;
pub mod turns;
pub mod types;
