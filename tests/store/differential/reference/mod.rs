//! The reference model: DESIGN sections 1 to 5 told a second time, slowly and obviously.
//!
//! Everything is plain owned data and every answer is derived anew from the whole history, so
//! that a property test can ask the store and the model the same question. Nothing here may
//! import the crate. A moment of the past is a session too: `forces::at` gives it, and every
//! other function then reads that.
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
