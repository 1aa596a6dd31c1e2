//! Transcripts of every agent, handed to every other: those of the fixtures, and recorded ones if they are at
//! hand, in the folder that `LOOPSTORE_REAL_TRANSCRIPTS` names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loopstore::provider::{MendingKind, NO_RESULT};
use loopstore::{AgentMessage, SqliteStore};
use loopstore_export::{NativeAgent, originals};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde_json::Value;

use super::{hand, plain};
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

/// The originals of every session of the fixtures.
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

fn of_kind(said: &[Value], kinds: &[&str]) -> Vec<Value> {
    let is_one = |block: &&Value| kinds.contains(&block[0].as_str().unwrap());
    said.iter().filter(is_one).cloned().collect()
}

/// The results by what they say: a late one moves behind its call.
fn results(said: &[Value]) -> BTreeMap<String, usize> {
    let mut results = BTreeMap::new();
    for result in of_kind(said, &["toolResult"]) {
        // An image that nobody reads is named behind the rest.
        let text = result[4].as_str().unwrap();
        let text = text.split("[image left out: ").next().unwrap_or_default();
        let text = text.trim().to_owned();
        if text != NO_RESULT {
            *results.entry(text).or_insert(0) += 1;
        }
    }
    results
}

/// The name of a tool as every provider takes it.
fn plain_name(name: &Value) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '-' {
        true => c,
        false => '_',
    };
    name.as_str().unwrap().chars().map(plain).collect()
}

/// Whether a text was added so that a provider takes the rest.
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
            let handed = hand(agent, &given);
            let after = plain(&handed.messages);
            let label = format!("{name} for {}", agent.as_str());
            let words = ["user", "assistant"];
            let mut said = of_kind(&after, &words);
            let mut wanted = of_kind(&before, &words);
            said.retain(|block| !is_added(block));
            // A result without its call is told as text, behind a line that says so.
            let mut is_told = false;
            said.retain(|block| {
                let text = block[1].as_str().unwrap_or_default();
                let heads = ["Result of tool call ", "Error of tool call "];
                let begins = heads.iter().any(|head| text.starts_with(head));
                let follows = std::mem::replace(&mut is_told, begins);
                !begins && !follows
            });
            // Those of results may stand behind them.
            said.retain(|block| block[1] != "image");
            let is_note = |block: &Value| {
                let text = block[1].as_str().unwrap_or_default();
                text.starts_with("[image left out: ")
            };
            said.retain(|block| !is_note(block));
            wanted.retain(|block| block[1] != "image");
            assert_eq!(said, wanted, "{label}");
            let images = |said: &[Value]| {
                let images = said.iter().filter(|b| b[1] == "image" || b[0] == "image");
                images.count()
            };
            let left_out = |kind| {
                let counts = handed.report.left_out.iter();
                let counts = counts.filter(|count| count.kind == kind);
                counts.map(|count| count.count as usize).sum::<usize>()
            };
            // One that nobody can read is counted.
            let missing = images(&before) - images(&after);
            let left = left_out(MendingKind::BlockDropped) + left_out(MendingKind::ImageReplaced);
            assert!(missing <= left, "{label}");
            let names = |said: &[Value]| {
                let calls = of_kind(said, &["call"]);
                let names = calls.iter().map(|call| plain_name(&call[2]));
                names.collect::<Vec<_>>()
            };
            // A search that another provider carried out has no result that could go with it.
            let searches = handed.report.left_out.iter();
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
            let mended = handed.report.mended.iter();
            let told = mended.filter(|count| count.kind == MendingKind::ResultTold);
            if left_out(MendingKind::ResultDropped) == 0 && told.count() == 0 {
                assert_eq!(results(&after), results(&before), "{label}");
            }
        }
    }
}
