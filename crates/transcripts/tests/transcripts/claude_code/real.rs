//! Recorded transcripts, if they are available: the folder that `LOOPSTORE_REAL_TRANSCRIPTS` names contains
//! `MANIFEST.md`, which describes each file, and the files in `claude-code/`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use loopstore::{AgentMessage, Message, Role};
use loopstore_transcripts::{ClaudeCode, FoundEffect, Importer};
use serde_json::Value;

use crate::claude_code::damaged::{assert_prefixes, line_ends};
use crate::claude_code::recorder::{Recorder, TestLoop, TestSession};

/// The counts of a file in the manifest.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    records: usize,
    user: usize,
    answers: usize,
    calls: usize,
    results: usize,
    errors: usize,
}

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS");
    if folder.is_none() {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing checked");
    }
    folder.map(PathBuf::from)
}

/// Reads the rows of the manifest's section on Claude Code.
fn manifest(folder: &Path) -> Vec<(PathBuf, Counts)> {
    let text = std::fs::read_to_string(folder.join("MANIFEST.md")).unwrap();
    let section = text
        .split("\n## ")
        .find(|part| part.starts_with("claude-code"))
        .unwrap();
    let rows = section.lines().filter(|line| line.contains(".jsonl"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (
            folder.join("claude-code").join(cells[1]),
            expected(cells[4]),
        )
    })
    .collect()
}

fn expected(cell: &str) -> Counts {
    let words: Vec<&str> = cell
        .split([' ', ',', ';', '(', ')'])
        .filter(|w| !w.is_empty())
        .collect();
    let before = |word: &str| {
        let at = words.iter().position(|w| *w == word);
        at.map_or(0, |at| words[at - 1].parse().unwrap())
    };
    Counts {
        records: before("records"),
        user: before("user"),
        answers: before("assistant"),
        calls: words
            .windows(2)
            .find(|w| w[1] == "tool")
            .map_or(0, |w| w[0].parse().unwrap()),
        results: before("results"),
        errors: before("errors"),
    }
}

fn source(message: &AgentMessage) -> Value {
    let json = serde_json::to_value(message).unwrap();
    json.get("source").cloned().unwrap_or_default()
}

fn found(recorded: &Recorder) -> Counts {
    let mut counts = Counts::default();
    let mut raws: HashSet<&[u8]> = HashSet::new();
    for (message, raw) in recorded.messages() {
        raws.extend(raw.split(|byte| *byte == b'\n'));
        match message.message() {
            None => {}
            Some(Message::User(_)) => {
                let source = source(message);
                let said = source.get("isMeta") != Some(&Value::Bool(true))
                    && source.get("isCompactSummary") != Some(&Value::Bool(true));
                counts.user += usize::from(said);
            }
            Some(Message::Assistant(_)) => counts.answers += 1,
            Some(Message::ToolResult(result)) => {
                counts.results += 1;
                counts.errors += usize::from(result.is_error);
            }
        }
        counts.calls += message.message().map_or(0, |m| m.tool_calls().count());
    }
    let objects = raws.iter().filter(|raw| raw.starts_with(b"{")).count();
    let repeated = recorded
        .skipped
        .iter()
        .filter(|(_, why)| why.starts_with("repeats"))
        .count();
    let compactions = recorded
        .sessions
        .iter()
        .flat_map(|session| &session.compactions);
    let compacted: usize = compactions
        .map(|(found, _)| match found.effect {
            FoundEffect::Summary { .. } => 2,
            _ => 1,
        })
        .sum();
    counts.records = objects + repeated + compacted;
    counts
}

#[test]
fn real_transcripts_hold_what_the_manifest_says() {
    let Some(folder) = folder() else { return };
    let files = manifest(&folder);
    assert!(files.len() >= 20, "the manifest was read");
    for (path, expected) in files {
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            ClaudeCode.detect(&path, &bytes[..bytes.len().min(65_536)]),
            "{path:?}"
        );
        let recorded = Recorder::of(&path, &bytes);
        assert_eq!(recorded.error, None, "{path:?}");
        assert_eq!(
            found(&recorded),
            expected,
            "{path:?} {:#?}",
            recorded.skips()
        );
        let begun: usize = recorded
            .sessions
            .iter()
            .map(|session| session.loops.len())
            .sum();
        let prompts: usize = recorded.sessions.iter().map(prompts).sum();
        assert!(
            begun >= prompts && begun <= prompts + recorded.sessions.len(),
            "{path:?}"
        );
    }
}

/// Counts the loops that begin with a human prompt, each named after its record.
fn prompts(session: &TestSession) -> usize {
    let starts = |l: &&TestLoop| {
        l.messages.iter().any(|(message, _)| {
            message.role() == Role::User
                && source(message)["uuid"]
                    .as_str()
                    .is_some_and(|uuid| l.record.loop_id.as_str().split('~').next() == Some(uuid))
        })
    };
    session.loops.iter().filter(starts).count()
}

#[test]
fn real_transcripts_that_grow_give_what_they_gave_before() {
    let Some(folder) = folder() else { return };
    for (path, counts) in manifest(&folder) {
        let bytes = std::fs::read(&path).unwrap();
        // A file with two session ids is identified by its last record.
        let mixed = path.to_string_lossy().contains("v1.0/1-") || path.ends_with("task_sdk.jsonl");
        if !mixed {
            let every = counts.records.div_ceil(25).max(1);
            assert_prefixes(&path, &bytes, line_ends(&bytes).step_by(every));
        }
    }
}
