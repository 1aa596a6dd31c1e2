//! What several test programs of the repository use, as far as these tests need it.
#![allow(dead_code)]

#[path = "../../../../../tests/support/amount.rs"]
pub mod amount;
#[path = "../../../../../tests/support/events.rs"]
pub mod events;
#[path = "../../../../../tests/support/hang.rs"]
pub mod hang;
#[path = "../../../../../tests/support/histories.rs"]
pub mod histories;
#[path = "../../../../../tests/support/keyed.rs"]
pub mod keyed;
#[path = "../../../../../tests/support/plain.rs"]
pub mod plain;
#[path = "../../../../../tests/support/process.rs"]
pub mod process;
#[path = "../../../../../tests/support/proof.rs"]
pub mod proof;
