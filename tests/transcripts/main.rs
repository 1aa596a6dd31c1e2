//! Transcripts of other tools become the sessions, loops, turns and messages that they record.

mod adk;
#[path = "../valid/check.rs"]
mod check;
mod codex;
mod copilot;
mod damaged;
mod formats;
mod gemini;
#[path = "../keyed/mod.rs"]
mod keyed;
mod pi;
#[path = "../support/provider_faults/mod.rs"]
mod provider_faults;
mod real;
mod recorder;
mod stored;
