//! Recorded transcripts, if they are at hand: the folder that `LOOPSTORE_REAL_TRANSCRIPTS` names
//! holds `MANIFEST.md` with what each file contains, and the files.

use std::path::{Path, PathBuf};

use loopstore::{AgentMessage, Message};

use crate::tools::formats::formats_of;
use crate::tools::recorder::{Recorder, importer};
use crate::tools::stored::{FORMATS, import, is_sound, said, store};

/// What a file holds.
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

/// A file with the manifest's words on it: its counts, and what is peculiar.
struct File {
    path: PathBuf,
    said: String,
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
            said: cells[4].to_owned(),
            peculiar: cells[5].to_owned(),
        }
    })
    .collect()
}

/// Returns the number that stands before one of `names`, 0 if none does.
fn number(text: &str, names: &[&str]) -> usize {
    let before = |name: &&str| {
        let (before, _) = text.split_once(&format!(" {name}"))?;
        let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    names.iter().find_map(before).unwrap_or(0)
}

fn expected(format: &str, file: &File) -> Counts {
    let said = file.said.as_str();
    Counts {
        prompts: number(said, &["prompts", "user"]),
        answers: number(said, &["assistant messages", "gemini"]),
        calls: number(said, &["tool calls", "function calls"]),
        results: match format {
            "gemini-cli" => number(said, &["tool calls"]),
            "adk" => number(said, &["function calls"]),
            _ => number(said, &["outputs", "results"]),
        },
        runs: number(said, &["tool runs"]),
        errors: number(said, &["errors"]),
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
            // The manifest counts what began to run.
            None => counts.runs += usize::from(is_start(message)),
            Some(Message::User(_)) => counts.prompts += usize::from(is_prompt(format, message)),
            Some(Message::Assistant(answer)) => {
                let texts = answer
                    .content
                    .iter()
                    .filter(|b| matches!(b, loopstore::Content::Text(_)));
                // The manifest counts items, of which a call of the model gives several.
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
            if !["pi", "codex"].contains(&format) || number(&file.said, &["errors"]) == 0 {
                (expected.errors, found.errors) = (0, 0);
            }
            if format == "adk" {
                // The manifest counts events, of which each gives one message here.
                let all = found.prompts + found.answers + found.results;
                assert_eq!(all, number(&file.said, &["events"]), "{path}");
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
        assert_eq!(said(&grown), said(&whole), "{format}");
        assert_eq!(two.revised, 0, "{format}");
        is_sound(&grown, format);
        // What was grown already is not lost if the shorter file comes again.
        let again = import(&grown, importer(format), &a.to_string_lossy(), &first).unwrap();
        assert_eq!((again.added_messages, again.revised), (0, 0), "{format}");
    }
}
