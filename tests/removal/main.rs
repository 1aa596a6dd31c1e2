//! What is not kept: secrets, erased and pruned sessions. The raw bytes of the files are searched.

#[path = "../histories/mod.rs"]
mod histories;

mod commands;
mod erasing;
mod incoming;
#[path = "../keyed/mod.rs"]
mod keyed;
mod killed;
mod pruning;
mod redacting;
mod rules;
mod stage;
