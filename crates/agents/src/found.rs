//! The transcripts that coding agents have on this machine, and when the agents delete them.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use loopstore_terminal::folders::{folder, set, with_home};
use serde::Serialize;
use serde_json::Value;

/// The days for which Claude Code keeps transcripts by default.
const CLAUDE_DAYS: u64 = 30;
/// The agents whose transcripts are searched for, as their formats are named.
pub const AGENTS: [&str; 8] = [
    "claude-code",
    "codex",
    "pi",
    "opencode",
    "gemini-cli",
    "qwen-code",
    "copilot-cli",
    "goose",
];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum depth of the folders that are walked. Transcripts are at most five folders deep.
const MAX_DEPTH: usize = 8;

/// The transcripts of an agent.
#[derive(Clone, Debug, Serialize)]
pub struct FoundTranscripts {
    /// The agent, as its format is named.
    pub agent: &'static str,
    /// The folder to import, or the file.
    pub path: PathBuf,
    /// The number of transcripts: files, or databases of the agent.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// The days after which the agent deletes a transcript that was not continued; `None` if the agent keeps all.
    pub deletes_after_days: Option<u64>,
    /// The days until the agent deletes the oldest.
    pub oldest_deleted_in_days: Option<u64>,
    /// The time of the last change, in milliseconds since the epoch.
    pub newest_at: Option<i64>,
    /// The file that was changed last.
    pub newest: Option<PathBuf>,
    /// All of them.
    #[serde(skip)]
    pub all: Vec<FoundFile>,
}

/// A transcript.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// The path.
    pub path: PathBuf,
    /// The size in bytes.
    pub bytes: u64,
    /// The time of the last change, in milliseconds since the epoch.
    pub changed_at: i64,
}

/// A place where an agent keeps transcripts.
struct TranscriptPlace {
    agent: &'static str,
    path: PathBuf,
    /// The endings of the files that are transcripts.
    endings: &'static [&'static str],
    deletes_after_days: Option<u64>,
}

/// Returns the transcripts of all agents that are known here. Agents without a transcript are left out.
pub fn transcripts() -> Vec<FoundTranscripts> {
    let found = places().into_iter().map(FoundTranscripts::of);
    found.filter(|found| found.files > 0).collect()
}

fn places() -> Vec<TranscriptPlace> {
    let in_home = |agent, variable: &str, usual: &str, within: &str, endings| {
        folder(variable, usual).map(|root| TranscriptPlace {
            agent,
            path: root.join(within),
            endings,
            deletes_after_days: None,
        })
    };
    let claude = folder("CLAUDE_CONFIG_DIR", ".claude").map(|root| TranscriptPlace {
        agent: "claude-code",
        path: root.join("projects"),
        endings: &["jsonl"],
        deletes_after_days: Some(claude_days(&root)),
    });
    let pi = match set("PI_CODING_AGENT_SESSION_DIR") {
        Some(folder) => Some(TranscriptPlace {
            agent: "pi",
            path: with_home(folder),
            endings: &["jsonl"],
            deletes_after_days: None,
        }),
        None => in_home(
            "pi",
            "PI_CODING_AGENT_DIR",
            ".pi/agent",
            "sessions",
            &["jsonl"],
        ),
    };
    // A variable that no agent reads is never set: these agents use the home folder only.
    let none = "";
    let places = [
        claude,
        in_home(
            "codex",
            "CODEX_HOME",
            ".codex",
            "sessions",
            &["jsonl", "zst"],
        ),
        in_home(
            "codex",
            "CODEX_HOME",
            ".codex",
            "archived_sessions",
            &["jsonl", "zst"],
        ),
        pi,
        in_home(
            "opencode",
            "XDG_DATA_HOME",
            ".local/share",
            "opencode/opencode.db",
            &["db"],
        ),
        in_home(
            "opencode",
            "XDG_DATA_HOME",
            ".local/share",
            "opencode/storage/session",
            &["json"],
        ),
        in_home("gemini-cli", none, ".gemini", "tmp", &["json", "jsonl"]),
        in_home("qwen-code", none, ".qwen", "projects", &["jsonl"]),
        in_home("copilot-cli", none, ".copilot", "session-state", &["jsonl"]),
        in_home(
            "goose",
            "XDG_DATA_HOME",
            ".local/share",
            "goose/sessions",
            &["db", "jsonl"],
        ),
    ];
    places.into_iter().flatten().collect()
}

/// Returns the number of days for which Claude Code keeps transcripts, by its settings.
fn claude_days(root: &Path) -> u64 {
    let text = std::fs::read(root.join("settings.json")).unwrap_or_default();
    let settings: Value = serde_json::from_slice(&text).unwrap_or_default();
    settings["cleanupPeriodDays"]
        .as_u64()
        .unwrap_or(CLAUDE_DAYS)
}

impl FoundTranscripts {
    fn of(place: TranscriptPlace) -> Self {
        let mut found = Self {
            agent: place.agent,
            path: place.path.clone(),
            files: 0,
            bytes: 0,
            deletes_after_days: place.deletes_after_days,
            oldest_deleted_in_days: None,
            newest_at: None,
            newest: None,
            all: Vec::new(),
        };
        let millis = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            i64::try_from(since.as_millis()).ok()
        };
        let (mut oldest, mut newest) = (None, None);
        walk(&place.path, MAX_DEPTH, &mut |path, data| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            if !ending.is_some_and(|ending| place.endings.contains(&ending)) || data.len() == 0 {
                return;
            }
            found.files += 1;
            found.bytes += data.len();
            let Ok(changed) = data.modified() else {
                return;
            };
            found
                .all
                .extend(millis(changed).map(|changed_at| FoundFile {
                    path: path.to_owned(),
                    bytes: data.len(),
                    changed_at,
                }));
            oldest = Some(oldest.map_or(changed, |oldest: SystemTime| oldest.min(changed)));
            if newest.is_none_or(|newest| newest < changed) {
                newest = Some(changed);
                found.newest = Some(path.to_owned());
            }
        });
        found.newest_at = newest.and_then(millis);
        found.oldest_deleted_in_days =
            place.deletes_after_days.zip(oldest).map(|(days, oldest)| {
                let age = SystemTime::now().duration_since(oldest).unwrap_or_default();
                days.saturating_sub(age.as_secs() / DAY.as_secs())
            });
        found
    }
}

/// Visits the files in a folder, or the file itself. Links to folders are not followed, as in imports; what cannot be
/// read is not counted, and the import reports it.
fn walk(path: &Path, depth: usize, visit: &mut dyn FnMut(&Path, &Metadata)) {
    let Ok(data) = path.symlink_metadata() else {
        return;
    };
    if data.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries.filter(|_| depth > 0) {
            walk(&entry.path(), depth - 1, visit);
        }
        return;
    }
    if let Ok(data) = path.metadata()
        && data.is_file()
    {
        visit(path, &data);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn place(path: &Path, days: u64) -> TranscriptPlace {
        TranscriptPlace {
            agent: "claude-code",
            path: path.to_owned(),
            endings: &["jsonl"],
            deletes_after_days: Some(days),
        }
    }

    fn file(path: &Path, age_in_days: u32) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "{}\n").unwrap();
        let changed = SystemTime::now() - DAY * age_in_days;
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(changed)
            .unwrap();
    }

    #[test]
    fn the_oldest_transcript_says_when_the_first_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        file(&folder.path().join("a/new.jsonl"), 1);
        file(&folder.path().join("b/c/old.jsonl"), 27);
        // It is no transcript.
        file(&folder.path().join("a/notes.txt"), 29);
        std::fs::write(folder.path().join("a/empty.jsonl"), "").unwrap();
        std::os::unix::fs::symlink(folder.path().join("b"), folder.path().join("link")).unwrap();
        let found = FoundTranscripts::of(place(folder.path(), 30));
        assert_eq!((found.files, found.bytes), (2, 6));
        assert_eq!(found.oldest_deleted_in_days, Some(3));
        assert_eq!(found.newest, Some(folder.path().join("a/new.jsonl")));
        let overdue = FoundTranscripts::of(place(folder.path(), 20));
        assert_eq!(overdue.oldest_deleted_in_days, Some(0));
        assert_eq!(
            FoundTranscripts::of(place(&folder.path().join("none"), 30)).files,
            0
        );
    }

    #[test]
    fn settings_decide_for_how_long_transcripts_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(claude_days(folder.path()), 30);
        let settings = folder.path().join("settings.json");
        std::fs::write(&settings, r#"{"cleanupPeriodDays": 365}"#).unwrap();
        assert_eq!(claude_days(folder.path()), 365);
        for broken in [r#"{"cleanupPeriodDays": "long"}"#, "{", ""] {
            std::fs::write(&settings, broken).unwrap();
            assert_eq!(claude_days(folder.path()), 30, "{broken}");
        }
    }
}
