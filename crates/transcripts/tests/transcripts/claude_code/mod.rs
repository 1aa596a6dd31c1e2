//! Transcripts of Claude Code: the sessions, loops, turns and messages that are imported.

mod appended;
mod damaged;
mod real;
mod recorder;
mod written;

use std::path::{Path, PathBuf};

use loopstore_transcripts::{ClaudeCode, Cline, Importer, OpenCode};

#[test]
fn a_transcript_names_the_files_that_are_read_with_it() {
    let claude = |path: &str| ClaudeCode.other_files(Path::new(path));
    assert_eq!(claude("p/s1.jsonl"), Some(Vec::new()));
    let parent = PathBuf::from("p/s1.jsonl");
    assert_eq!(claude("p/s1/subagents/agent-a.jsonl"), Some(vec![parent]));
    // Only its records name the parent.
    assert_eq!(claude("p/agent-a.jsonl"), None);
    let tasks = Cline.other_files(Path::new("tasks/1/api_conversation_history.json"));
    assert_eq!(tasks, None);
    let opencode = |path: &str| OpenCode.other_files(Path::new(path));
    assert_eq!(opencode("storage/session/p/ses_1.json"), None);
    assert_eq!(opencode("opencode.db"), Some(Vec::new()));
}
