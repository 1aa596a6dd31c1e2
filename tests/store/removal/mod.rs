//! What is not kept: secrets, erased and pruned sessions. The raw bytes of the files are searched.

#[cfg(feature = "cli")]
mod commands;
mod erasing;
mod incoming;
#[cfg(feature = "cli")]
mod killed;
mod pruning;
mod redacting;
mod rules;
mod stage;
