//! Archived loops: compressed, read as before, never lost, and gone without a byte when they are removed.

#[path = "../histories/mod.rs"]
mod histories;
#[path = "../keyed/mod.rs"]
mod keyed;

mod choosing;
mod commands;
mod damaged;
mod random;
mod removed;
mod rows;
mod seen;
mod stage;
