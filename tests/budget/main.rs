//! Never over budget: what a compaction gives up, in which order, and what it says when nothing is
//! enough.

mod compactor;
#[path = "../histories/mod.rs"]
mod histories;
#[path = "../keyed/mod.rs"]
mod keyed;
mod ladder;
#[path = "../support/provider_faults/mod.rs"]
mod provider_faults;
mod random;
mod stage;
mod triggers;
