//! Claude Code transcripts become the sessions, loops, turns and messages that they record.

mod appended;
mod damaged;
mod real;
mod recorder;
mod written;
