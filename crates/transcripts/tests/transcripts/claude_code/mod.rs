//! Transcripts of Claude Code: the sessions, loops, turns and messages that are imported.

mod appended;
mod damaged;
mod real;
mod recorder;
mod written;
