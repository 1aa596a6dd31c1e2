//! Recorded transcripts, if they are available: the folder that `LOOPSTORE_REAL_TRANSCRIPTS` names contains
//! `MANIFEST.md`, which describes each file.

use std::path::{Path, PathBuf};

use loopstore::{Message, Role};

use crate::agents::stage::*;
use crate::support::recording::{Recording, real_transcripts, try_import};

/// Returns the files in a section of the manifest, with their descriptions.
fn manifest(folder: &Path, section: &str) -> Vec<(PathBuf, String)> {
    let text = std::fs::read_to_string(folder.join("MANIFEST.md")).unwrap();
    let mut parts = text.split("\n## ");
    let part = parts
        .find(|part| part.starts_with(&format!("{section} (")))
        .unwrap();
    let rows = part.lines().filter(|line| line.contains(".json"));
    let files = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (folder.join(section).join(cells[1]), cells[4].to_owned())
    });
    files.collect()
}

/// Returns the number before a word of the manifest.
fn number_before(counts: &str, word: &str) -> usize {
    let words: Vec<&str> = counts
        .split([' ', ',', ';', '(', ')'])
        .filter(|w| !w.is_empty())
        .collect();
    let at = words.windows(2).find(|pair| pair[1] == word);
    at.map_or(0, |pair| pair[0].parse().unwrap())
}

fn count(found: &Recording, role: Role) -> usize {
    found
        .sessions
        .iter()
        .map(|session| session.count(role))
        .sum()
}

fn calls(found: &Recording) -> usize {
    let messages = found.sessions.iter().flat_map(|session| session.messages());
    let calls = messages.filter_map(|message| message.message());
    calls.flat_map(Message::tool_calls).count()
}

fn found_in(path: &Path) -> Recording {
    let importer = importer_of(path).unwrap_or_else(|| panic!("{} is unknown", path.display()));
    let (found, end) = try_import(importer, &std::fs::read(path).unwrap());
    assert!(end.is_ok(), "{}: {}", path.display(), found.reasons());
    assert_eq!(found.reasons(), "", "{}", path.display());
    let (store, report) = imported(path);
    for session in &report.sessions {
        check_original(&store, session, &std::fs::read(path).unwrap());
    }
    found
}

#[test]
fn opencode() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    for (path, counts) in manifest(&folder, "opencode") {
        let found = found_in(&path);
        let results = number_before(&counts, "tool");
        let has = [
            count(&found, Role::User),
            count(&found, Role::Assistant),
            calls(&found),
        ];
        let expected = ["user", "assistant", "tool"].map(|word| number_before(&counts, word));
        assert_eq!(has, expected, "{}", path.display());
        let running = usize::from(path.to_string_lossy().contains("running"));
        assert_eq!(
            count(&found, Role::ToolResult),
            results - running,
            "{}",
            path.display()
        );
    }
}

#[test]
fn swe_agent() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    for (path, counts) in manifest(&folder, "swe-agent") {
        let found = found_in(&path);
        let has = [Role::User, Role::Assistant, Role::ToolResult].map(|role| count(&found, role));
        assert_eq!(
            has[..2],
            ["user", "assistant"].map(|word| number_before(&counts, word)),
            "{}",
            path.display()
        );
        let results = if counts.contains(" tool)") { has[2] } else { 0 };
        let tools = counts
            .split([' ', ',', ')'])
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>();
        let at = tools.windows(2).find(|pair| pair[1] == "tool").unwrap();
        assert_eq!(results.to_string(), at[0].to_string(), "{}", path.display());
        assert_eq!(
            (found.sessions.len(), found.sessions[0].loops.len()),
            (1, 1)
        );
    }
}

#[test]
fn mini_swe_agent() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    for (path, counts) in manifest(&folder, "mini-swe-agent") {
        let found = found_in(&path);
        let has = [Role::User, Role::Assistant].map(|role| count(&found, role));
        assert_eq!(
            has,
            ["user", "assistant"].map(|word| number_before(&counts, word)),
            "{}",
            path.display()
        );
        assert_eq!(calls(&found), 0);
        assert_eq!(
            (found.sessions.len(), found.sessions[0].loops.len()),
            (1, 1)
        );
    }
}

#[test]
fn openhands() {
    let Some(folder) = real_transcripts() else {
        return;
    };
    for (path, counts) in manifest(&folder, "openhands") {
        let found = found_in(&path);
        let name = path.to_string_lossy().into_owned();
        if name.ends_with(".jsonl") {
            let notes = number_before(&counts, "ConversationStateUpdateEvent");
            assert_eq!(count(&found, Role::Extension), notes);
            assert_eq!(
                count(&found, Role::ToolResult),
                number_before(&counts, "ObservationEvent")
            );
            assert_eq!(calls(&found), number_before(&counts, "ActionEvent"));
            continue;
        }
        // The manifest does not count the answer of a log's own call.
        let own = usize::from(name.contains("log"));
        let expected = [
            number_before(&counts, "user"),
            number_before(&counts, "assistant") + own,
        ];
        let has = [Role::User, Role::Assistant].map(|role| count(&found, role));
        assert_eq!(has, expected, "{name}");
        assert_eq!(count(&found, Role::Extension), 1, "{name}");
    }
    let store = loopstore::SqliteStore::in_memory().unwrap();
    let report = import_into(&store, &folder.join("openhands/llm-logs"));
    assert_eq!((report.sessions.len(), report.added_messages), (1, 6));
    check_store(&store, &report.sessions);
}
