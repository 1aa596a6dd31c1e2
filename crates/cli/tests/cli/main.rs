//! The command line: its commands, what somebody meets at a terminal, the server of tools, the pages of
//! reports, keys, and what is removed; and the figures of `eval`.

mod agents;
#[cfg(feature = "browse")]
mod browse;
mod commands;
mod face;
mod hooks;
#[cfg(feature = "sqlcipher")]
mod keys;
mod library_texts;
#[cfg(feature = "mcp")]
mod mcp;
mod readme;
mod removal;
mod report;
mod retention;
#[path = "../support/mod.rs"]
mod support;
