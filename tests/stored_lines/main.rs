//! `export --format jsonl` holds everything: what comes back from the lines is the same session.

#[path = "../histories/mod.rs"]
mod histories;

mod bad;
#[path = "../keyed/mod.rs"]
mod keyed;
mod progress;
mod recorded;
mod same;
mod stage;
