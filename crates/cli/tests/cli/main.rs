//! The command line: its commands, its behaviour at a terminal, the MCP server, the pages of reports, keys, removal,
//! and the figures of `eval`.

mod acp;
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
