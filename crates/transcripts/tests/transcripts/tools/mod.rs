//! Transcripts of other tools: the sessions, loops, turns and messages that are imported.

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
