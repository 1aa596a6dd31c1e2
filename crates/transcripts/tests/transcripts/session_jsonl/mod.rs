//! `export --format jsonl` holds everything: what comes back from the lines is the same session.

mod bad;
mod progress;
mod recorded;
mod same;
mod stage;
