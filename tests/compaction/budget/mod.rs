//! Never over budget: what a compaction gives up, in which order, and the error when nothing is enough.

mod approvals;
mod clearing;
mod compactor;
mod growth;
mod ladder;
mod random;
mod stage;
mod triggers;
mod used;
mod window;
