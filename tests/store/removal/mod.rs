//! Removal: secrets, erased and pruned sessions. The raw bytes of the files are searched.

mod choices;
mod detection;
mod erasing;
mod incoming;
mod pieces;
mod pruning;
mod redacting;
mod rules;
