//! Transcripts of Claude Code: the sessions, loops, turns and messages that are imported.

mod appended;
mod damaged;
mod real;
mod recorder;
mod written;

use std::path::Path;

use loopstore_transcripts::{ClaudeCode, Cline, Importer, OpenCode};

#[test]
fn a_transcript_names_the_files_that_are_read_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("q/p/s1/subagents")).unwrap();
    for name in [
        "q/p/s1.jsonl",
        "q/p/agent-a.jsonl",
        "q/p/s1/subagents/agent-a.jsonl",
    ] {
        std::fs::write(at(name), "{\"sessionId\":\"s1\"}\n").unwrap();
    }
    let claude = |name: &str| ClaudeCode.other_files(&at(name));
    assert_eq!(claude("q/p/s1.jsonl"), Some(vec![at("s1.jsonl")]));
    let parents = ["q/p/s1/subagents/s1.jsonl", "q/p/s1.jsonl"].map(at);
    assert_eq!(
        claude("q/p/s1/subagents/agent-a.jsonl"),
        Some(parents.to_vec())
    );
    // Only its records name the parent, and no records can be read.
    assert_eq!(claude("q/p/agent-a.jsonl"), None);
    assert_eq!(claude("q/p/none.jsonl"), None);
    let tasks = Cline.other_files(Path::new("tasks/1/api_conversation_history.json"));
    assert_eq!(tasks, None);
    let opencode = |path: &str| OpenCode.other_files(Path::new(path));
    assert_eq!(opencode("storage/session/p/ses_1.json"), None);
    assert_eq!(opencode("opencode.db"), Some(Vec::new()));
}
