//! The command line: its commands, what somebody meets at a terminal, the server of tools, the pages of
//! reports, and the examples that users are shown.

#[cfg(feature = "browse")]
mod browse;
mod commands;
mod examples;
mod face;
mod library_texts;
#[cfg(feature = "mcp")]
mod mcp;
mod readme;
mod report;
#[path = "../support/mod.rs"]
mod support;
