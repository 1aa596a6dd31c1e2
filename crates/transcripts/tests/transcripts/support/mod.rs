//! What several test programs of the repository use, as far as these tests need it.
#![allow(dead_code)]

#[path = "../../../../../tests/support/amount.rs"]
pub mod amount;
#[path = "../../../../../tests/support/conversations/mod.rs"]
pub mod conversations;
#[path = "../../../../../tests/support/histories.rs"]
pub mod histories;
#[path = "../../../../../tests/support/keyed.rs"]
pub mod keyed;
#[path = "../../../../../tests/support/needs.rs"]
pub mod needs;
#[path = "../../../../../tests/support/plain.rs"]
pub mod plain;
#[path = "../../../../../tests/support/process.rs"]
pub mod process;
#[path = "../../../../../tests/support/proof.rs"]
pub mod proof;
#[path = "../../../../../tests/support/provider_faults/mod.rs"]
pub mod provider_faults;
#[path = "../../../../../tests/support/recording.rs"]
pub mod recording;
#[path = "../../../../../tests/support/requests.rs"]
pub mod requests;
#[path = "../../../../../tests/support/root.rs"]
pub mod root;
