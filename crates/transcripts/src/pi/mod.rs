//! pi: sessions of one JSON entry per line. In version 1 entries have no ids and follow each other; since then each
//! names its parent, and the model sees the path from the last entry to the root.
//!
//! The transcript is read in two passes: the first collects the location of each entry and the title of the session,
//! the second reads the entries again and emits them ([`emit`]).

mod emit;
mod entries;
mod messages;

use std::path::Path;

use loopstore::model::Time;

use self::entries::PiEntries;
use super::key_outline::KeyOutline;
use super::records::{RecordLine, RecordStream};
use super::transcript::{identity, session};
use super::{ImportError, Importer, ReadSeek, SessionHead, Sink, Source, holds_conversation};

/// The name of the tool, for compactions and agents.
const TOOL: &str = "pi";

/// Reads the sessions of pi.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pi;

impl Importer for Pi {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let mut lines = head.split(|byte| *byte == b'\n').take(20);
        lines.any(looks_like_an_entry)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let path = source.path;
        let mut skip = |line, reason| sink.skip(Some(line), reason);
        let entries = read_entries(path, source.reader, &mut skip)?;
        let head = head(path, &entries);
        holds_conversation(emit::emit(source, &entries, head, sink)?)
    }
}

/// True if a line, which may be truncated, can only be pi's.
fn looks_like_an_entry(line: &[u8]) -> bool {
    const OTHERS: [&str; 6] = ["payload", "uuid", "sessionId", "data", "messages", "loops"];
    let keys = KeyOutline::of(line);
    if !keys.has("type") || OTHERS.iter().any(|key| keys.has(key)) {
        return false;
    }
    let is_header = keys.has("id") && keys.has("timestamp") && keys.has("cwd");
    let is_message = keys.has("timestamp") && keys.has("message.role");
    let is_compaction =
        keys.has("summary") && (keys.has("firstKeptEntryId") || keys.has("firstKeptEntryIndex"));
    is_header || is_message || is_compaction
}

/// Runs the first pass.
fn read_entries(
    path: &Path,
    reader: &mut dyn ReadSeek,
    skip: &mut dyn FnMut(u64, String),
) -> Result<PiEntries, ImportError> {
    let mut entries = PiEntries::default();
    let mut records = RecordStream::new(path, reader)?;
    while let Some((location, line)) = records.next()? {
        match line {
            RecordLine::Record(_, fields) => entries.add(&fields, location),
            RecordLine::Bad { reason, kept } => {
                if !kept.is_empty() {
                    entries.add_unreadable(location);
                }
                skip(location.line, reason);
            }
        }
    }
    Ok(entries)
}

fn head(path: &Path, entries: &PiEntries) -> SessionHead {
    let (identity, id) = identity(path, entries.session.as_deref());
    let mut session = session(id, TOOL, entries.started.clone().map(Time::from_text));
    session.last_active_at = entries.ended.clone().map(Time::from_text);
    for (key, value) in &entries.origin {
        session.extra.insert(*key, value.clone());
    }
    SessionHead {
        identity,
        session,
        title: entries.title.clone(),
        project: entries.project.clone(),
    }
}
