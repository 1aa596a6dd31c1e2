//! The store: the promises of its contract on every backend (recorded, immutable, searched, verified, exported, copied,
//! removed, queried with SQL), and the examples of the documentation.

mod archive;
#[cfg(feature = "tokio")]
mod asynchronous;
mod audit;
mod backup;
mod conformance;
mod conversation;
mod differential;
mod encrypted;
mod entries;
mod examples;
mod expanding;
mod export;
mod foreign;
mod hidden;
mod immutability;
mod keys;
mod loaded;
mod migrations;
mod model;
mod parts;
mod pins;
mod provider_edits;
mod recalling;
mod recount;
mod removal;
mod sealed_on_request;
mod sealed_refused;
mod sealed_runs;
mod sealed_stored;
mod search;
mod skipped_work;
mod system_prompts;
mod times;
mod turns;
mod valid;
mod verify;
mod views;

use loopstore_testing as support;
