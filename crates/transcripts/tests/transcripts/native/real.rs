//! Transcripts of every agent, written for every other: those of the fixtures, and recorded ones if they are available
//! in the folder that `LOOPSTORE_REAL_TRANSCRIPTS` names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loopstore::provider::{MendingKind, NO_RESULT};
use loopstore::{AgentMessage, SqliteStore};
use loopstore_export::{NativeAgent, originals};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::Value;

use super::{plain, write_and_read};
use crate::support::root;

const FORMATS: [&str; 8] = [
    "claude-code",
    "codex",
    "copilot-cli",
    "gemini-cli",
    "openai-chat",
    "opencode",
    "openhands",
    "pi",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// Returns the originals of every session of the fixtures.
fn sessions() -> Vec<(String, Vec<AgentMessage>)> {
    let mut found = Vec::new();
    let recorded = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from);
    for format in FORMATS {
        files(&root::fixture(format), &mut found);
        if let Some(recorded) = &recorded {
            files(&recorded.join(format), &mut found);
        }
    }
    found.sort();
    let mut sessions = Vec::new();
    for file in found {
        let store = SqliteStore::in_memory().unwrap();
        let options = ImportOptions::default();
        let name = file.display().to_string();
        let Ok(report) = import_paths(&store, &[file], &options, &mut |_| {}) else {
            continue;
        };
        for id in report.sessions {
            let messages = originals(&store, &id, None).unwrap();
            if messages.iter().any(|message| message.message().is_some()) {
                sessions.push((format!("{name} {id}"), messages));
            }
        }
    }
    sessions
}

fn of_kind(content: &[Value], kinds: &[&str]) -> Vec<Value> {
    let is_one = |block: &&Value| kinds.contains(&block[0].as_str().unwrap());
    content.iter().filter(is_one).cloned().collect()
}

/// Counts the results by content: a late result moves behind its call.
fn results(content: &[Value]) -> BTreeMap<String, usize> {
    let mut results = BTreeMap::new();
    for result in of_kind(content, &["toolResult"]) {
        // An image that the agent cannot read is named after the rest.
        let text = result[4].as_str().unwrap();
        let text = text.split("[image left out: ").next().unwrap_or_default();
        let text = text.trim().to_owned();
        if text != NO_RESULT {
            *results.entry(text).or_insert(0) += 1;
        }
    }
    results
}

/// Returns the name of a tool in the form that every provider accepts.
fn plain_name(name: &Value) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '-' {
        true => c,
        false => '_',
    };
    name.as_str().unwrap().chars().map(plain).collect()
}

/// True if a text was added so that a provider accepts the rest.
fn is_added(block: &Value) -> bool {
    let text = block[1].as_str().unwrap_or_default();
    text == "[what came before is not included]" || text.starts_with("Images that tool call ")
}

#[test]
fn no_recorded_session_loses_words_calls_or_results_on_its_way_to_another_agent() {
    let sessions = sessions();
    assert!(sessions.len() > 10, "{}", sessions.len());
    for (name, given) in sessions {
        let before = plain(&given);
        for agent in NativeAgent::ALL {
            let written = write_and_read(agent, &given);
            let after = plain(&written.messages);
            let label = format!("{name} for {}", agent.as_str());
            let words = ["user", "assistant"];
            let mut content = of_kind(&after, &words);
            let mut wanted = of_kind(&before, &words);
            content.retain(|block| !is_added(block));
            // A result without its call becomes a text, after a line that says so.
            let mut is_told = false;
            content.retain(|block| {
                let text = block[1].as_str().unwrap_or_default();
                let heads = ["Result of tool call ", "Error of tool call "];
                let begins = heads.iter().any(|head| text.starts_with(head));
                let follows = std::mem::replace(&mut is_told, begins);
                !begins && !follows
            });
            // The images of results may follow them.
            content.retain(|block| block[1] != "image");
            let is_note = |block: &Value| {
                let text = block[1].as_str().unwrap_or_default();
                text.starts_with("[image left out: ")
            };
            content.retain(|block| !is_note(block));
            wanted.retain(|block| block[1] != "image");
            assert_eq!(content, wanted, "{label}");
            let images = |content: &[Value]| {
                let images = content
                    .iter()
                    .filter(|b| b[1] == "image" || b[0] == "image");
                images.count()
            };
            let left_out = |kind| {
                let counts = written.report.left_out.iter();
                let counts = counts.filter(|count| count.kind == kind);
                counts.map(|count| count.count as usize).sum::<usize>()
            };
            // An image that no agent can read is counted.
            let missing = images(&before) - images(&after);
            let left = left_out(MendingKind::BlockDropped) + left_out(MendingKind::ImageReplaced);
            assert!(missing <= left, "{label}");
            let names = |content: &[Value]| {
                let calls = of_kind(content, &["call"]);
                let names = calls.iter().map(|call| plain_name(&call[2]));
                names.collect::<Vec<_>>()
            };
            // A search that another provider executed has no result to go with it.
            let searches = written.report.left_out.iter();
            let searches =
                searches.filter(|count| count.item.as_deref() == Some("web_search_call"));
            let searches: usize = searches.map(|count| count.count as usize).sum();
            assert!(searches == 0 || agent != NativeAgent::Codex, "{label}");
            let mut wanted = names(&before);
            if searches > 0 {
                let all = wanted.len();
                wanted.retain(|name| name != "web_search");
                assert_eq!(all - wanted.len(), searches, "{label}");
            }
            assert_eq!(names(&after), wanted, "{label}");
            let mended = written.report.mended.iter();
            let told = mended.filter(|count| count.kind == MendingKind::ResultTold);
            if left_out(MendingKind::ResultDropped) == 0 && told.count() == 0 {
                assert_eq!(results(&after), results(&before), "{label}");
            }
        }
    }
}
