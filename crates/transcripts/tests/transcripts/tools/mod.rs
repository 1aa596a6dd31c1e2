//! Transcripts of other tools become the sessions, loops, turns and messages that they record.

mod adk;
mod codex;
mod copilot;
mod damaged;
mod formats;
mod gemini;
mod pi;
mod real;
mod recorder;
mod stored;
