//! Claude Code transcripts become the sessions, loops, turns and messages that they record.

#[path = "claude_code/damaged.rs"]
mod damaged;
#[path = "claude_code/real.rs"]
mod real;
#[path = "claude_code/recorder.rs"]
mod recorder;
#[path = "claude_code/written.rs"]
mod written;
