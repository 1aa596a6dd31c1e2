//! The lines of `export --format jsonl` contain everything: an import of the lines restores the same session.

mod bad;
mod progress;
mod recorded;
mod same;
pub mod stage;
