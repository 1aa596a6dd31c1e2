//! Recorded transcripts, if they are available: the folder that `LOOPSTORE_REAL_TRANSCRIPTS` names contains
//! `MANIFEST.md`, which describes each file, and the files.

use std::path::{Path, PathBuf};

use loopstore::{AgentMessage, Message};

use crate::tools::formats::formats_of;
use crate::tools::recorder::{Recorder, importer};
use crate::tools::stored::{FORMATS, content_of, import, is_sound, store};

/// The counts of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    prompts: usize,
    answers: usize,
    calls: usize,
    results: usize,
    errors: usize,
    runs: usize,
    compactions: usize,
}

/// A file with its description in the manifest: its counts, and its peculiarities.
struct File {
    path: PathBuf,
    description: String,
    peculiar: String,
}

fn manifest(folder: &Path, format: &str) -> Vec<File> {
    let text = std::fs::read_to_string(folder.join("MANIFEST.md")).unwrap();
    let mut sections = text.split("\n## ");
    let section = sections.find(|part| part.starts_with(&format!("{format} (")));
    let rows = section
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains(".json"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        File {
            path: folder.join(format).join(cells[1]),
            description: cells[4].to_owned(),
            peculiar: cells[5].to_owned(),
        }
    })
    .collect()
}

/// Returns the number before one of `names`, 0 if there is none.
fn number(text: &str, names: &[&str]) -> usize {
    let before = |name: &&str| {
        let (before, _) = text.split_once(&format!(" {name}"))?;
        let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    names.iter().find_map(before).unwrap_or(0)
}

fn expected(format: &str, file: &File) -> Counts {
    let description = file.description.as_str();
    Counts {
        prompts: number(description, &["prompts", "user"]),
        answers: number(description, &["assistant messages", "gemini"]),
        calls: number(description, &["tool calls", "function calls"]),
        results: match format {
            "gemini-cli" => number(description, &["tool calls"]),
            "adk" => number(description, &["function calls"]),
            _ => number(description, &["outputs", "results"]),
        },
        runs: number(description, &["tool runs"]),
        errors: number(description, &["errors"]),
        compactions: number(&format!(" {}", file.peculiar), &["compaction", "compacted"]),
    }
}

fn is_prompt(format: &str, message: &AgentMessage) -> bool {
    let json = serde_json::to_value(message).unwrap();
    let role = &json["source"]["message"]["role"];
    let is_added =
        json["source"].get("customType").is_some() || json["source"].get("fromId").is_some();
    format != "pi" || role.is_null() && !is_added
}

fn found(format: &str, recorded: &Recorder) -> Counts {
    let mut counts = Counts::default();
    for session in &recorded.sessions {
        counts.compactions += session.compactions.len();
    }
    for (message, _) in recorded.messages() {
        match message.message() {
            // The manifest counts commands that were started.
            None => counts.runs += usize::from(is_start(message)),
            Some(Message::User(_)) => counts.prompts += usize::from(is_prompt(format, message)),
            Some(Message::Assistant(answer)) => {
                let texts = answer
                    .content
                    .iter()
                    .filter(|b| matches!(b, loopstore::Content::Text(_)));
                // The manifest counts items, of which one call of the model produces several.
                counts.answers += if format == "codex" { texts.count() } else { 1 };
            }
            Some(Message::ToolResult(result)) => {
                counts.results += 1;
                counts.errors += usize::from(result.is_error);
            }
        }
        counts.calls += message.message().map_or(0, |m| m.tool_calls().count());
    }
    if format == "codex" {
        let loops = recorded.sessions.iter().flat_map(|session| &session.loops);
        counts.prompts = loops.count();
    }
    counts
}

fn is_start(message: &AgentMessage) -> bool {
    matches!(message, AgentMessage::Extension(note) if note.kind == "tool.execution_start")
}

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS");
    if folder.is_none() {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing checked");
    }
    folder.map(PathBuf::from)
}

#[test]
fn real_transcripts_hold_what_the_manifest_says() {
    let Some(folder) = folder() else { return };
    for format in FORMATS {
        let files = manifest(&folder, format);
        assert!(files.len() >= 2, "the manifest was read");
        for file in files {
            let path = file.path.to_string_lossy().into_owned();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(formats_of(&bytes), [format], "{path}");
            let recorded = Recorder::of(format, &path, &bytes);
            let mut expected = expected(format, &file);
            let mut found = found(format, &recorded);
            if !["pi", "codex"].contains(&format) || number(&file.description, &["errors"]) == 0 {
                (expected.errors, found.errors) = (0, 0);
            }
            if format == "adk" {
                // The manifest counts events, each of which becomes one message.
                let all = found.prompts + found.answers + found.results;
                assert_eq!(all, number(&file.description, &["events"]), "{path}");
                (expected.prompts, expected.answers) = (found.prompts, found.answers);
            }
            if format == "copilot-cli" {
                (expected.calls, found.calls) = (0, 0);
                (expected.results, found.results) = (0, 0);
            }
            if expected.answers + expected.prompts == 0 {
                assert!(recorded.error.is_some(), "{path}");
                continue;
            }
            assert_eq!(found, expected, "{path} {:#?}", recorded.skips());
            assert_eq!(recorded.skips(), [""; 0], "{path}");
            let store = store();
            import(&store, importer(format), &path, &bytes).unwrap();
            is_sound(&store, &path);
        }
    }
}

#[test]
fn real_transcripts_that_grow_add_only_what_is_new() {
    let Some(folder) = folder() else { return };
    for (format, shorter, longer) in [
        ("codex", "prefix-a-0.140.0.jsonl", "prefix-b-0.140.0.jsonl"),
        ("gemini-cli", "grow-a.json", "grow-b.json"),
    ] {
        let [a, b] = [shorter, longer].map(|name| folder.join(format).join(name));
        let [first, second] = [&a, &b].map(|path| std::fs::read(path).unwrap());
        let (grown, whole) = (store(), store());
        let one = import(&grown, importer(format), &a.to_string_lossy(), &first).unwrap();
        let two = import(&grown, importer(format), &b.to_string_lossy(), &second).unwrap();
        import(&whole, importer(format), &b.to_string_lossy(), &second).unwrap();
        assert_eq!(one.sessions, two.sessions);
        assert_eq!(content_of(&grown), content_of(&whole), "{format}");
        assert_eq!(two.revised, 0, "{format}");
        is_sound(&grown, format);
        // Messages that were imported stay if the shorter file is imported again.
        let again = import(&grown, importer(format), &a.to_string_lossy(), &first).unwrap();
        assert_eq!((again.added_messages, again.revised), (0, 0), "{format}");
    }
}
