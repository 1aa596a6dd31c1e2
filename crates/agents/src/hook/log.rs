//! The log of hook calls: one JSON object per line, in `hooks.jsonl` of the state folder.
//!
//! The log never exceeds 128 KiB: its older half is dropped at that size. An entry has the failure and its reason,
//! and no content of a conversation.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use loopstore::Time;
use serde::{Deserialize, Serialize};

use super::state;

/// The maximum size of the log, in bytes.
const MAX_BYTES: u64 = 128 << 10;
/// The maximum length of a text in an entry, in characters.
const MAX_TEXT: usize = 400;

/// One call of a hook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookEntry {
    /// The time of its end, or of its start if it did not end.
    pub at: String,
    /// The agent.
    pub agent: String,
    /// The event.
    pub event: String,
    /// The duration.
    pub milliseconds: u64,
    /// The number of messages that were added.
    #[serde(default)]
    pub added_messages: u64,
    /// The database.
    #[serde(default)]
    pub database: Option<String>,
    /// The error, if the hook failed.
    #[serde(default)]
    pub failure: Option<String>,
    /// The hint for the error.
    #[serde(default)]
    pub hint: Option<String>,
}

impl HookEntry {
    /// Returns the entry of a call that has just begun.
    pub fn new(agent: &str, event: &str) -> Self {
        Self {
            at: Time::now().as_str().to_owned(),
            agent: short(agent),
            event: short(event),
            milliseconds: 0,
            added_messages: 0,
            database: None,
            failure: None,
            hint: None,
        }
    }

    /// Sets the failure and its hint. A failure that was set before is kept.
    pub fn fail(&mut self, why: String, hint: Option<&str>) {
        if self.failure.is_none() {
            self.failure = Some(why);
            self.hint = hint.map(str::to_owned);
        }
    }

    /// Returns the entry of a call with these unparsed arguments.
    pub fn of_arguments(args: &[OsString]) -> Self {
        let texts: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        let at = texts.iter().skip(1).rposition(|arg| arg == "hook");
        let word = |place: usize| {
            let text = at.and_then(|at| texts.get(at + 1 + place));
            text.map_or("", |text| &**text)
        };
        Self::new(word(1), word(2))
    }
}

/// Returns a text on one line, truncated.
fn short(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(MAX_TEXT).collect()
}

/// Returns the path of the log; `None` if no variable names its folder.
pub fn path() -> Option<PathBuf> {
    Some(state::folder()?.join("hooks.jsonl"))
}

/// Adds an entry.
pub fn append(entry: &HookEntry) -> io::Result<()> {
    let path = state::made("")?.join("hooks.jsonl");
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let mut file = options.open(path)?;
    let mut entry = entry.clone();
    entry.failure = entry.failure.as_deref().map(short);
    let mut line = serde_json::to_vec(&entry)?;
    line.push(b'\n');
    // Several hooks may end at once, and a process that holds the lock may hang: then the log is shortened later.
    if file.metadata()?.len() + line.len() as u64 > MAX_BYTES && file.try_lock().is_ok() {
        drop_older_half(&mut file)?;
    }
    file.write_all(&line)
}

/// Tests whether an entry can be added.
pub fn try_writing() -> io::Result<()> {
    let path = state::made("")?.join("hooks.jsonl");
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)?;
    Ok(())
}

fn drop_older_half(file: &mut std::fs::File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut kept = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_BYTES / 2)))?;
    file.take(MAX_BYTES).read_to_end(&mut kept)?;
    let begins = kept.iter().position(|byte| *byte == b'\n');
    let begins = begins.map_or(kept.len(), |at| at + 1);
    file.set_len(0)?;
    file.write_all(&kept[begins..])
}

/// Returns all entries, oldest first, without invalid lines.
pub fn entries() -> io::Result<Vec<HookEntry>> {
    let Some(path) = path() else {
        return Ok(Vec::new());
    };
    let mut text = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(4 * MAX_BYTES).read_to_end(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let lines = text.split(|byte| *byte == b'\n');
    Ok(lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}
