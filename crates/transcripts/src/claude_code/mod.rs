//! Claude Code: one JSON record per line, linked to a tree by `uuid` and `parentUuid`.
//!
//! The transcript is read in two passes, so that only one message is in memory at a time: the first indexes the
//! position of each record in the file and the tree ([`index`]), the second reads the records again and emits them
//! ([`emit`]). A prompt of a person begins a loop; the records with the same `message.id` are joined to one answer;
//! sub-agents are sessions of their own.

mod appended;
mod by_id;
mod compacted;
mod content;
mod emit;
mod index;
mod messages;
mod record;
mod shapes;
mod spawn;
mod track;
mod words;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use loopstore::model::{ChildLoopRef, LoopId, ParentSpawnRef, SessionId, Time};

use self::emit::{ClaudeEmitter, TOOL, child_ref};
use self::index::ClaudeIndex;
use self::track::Track;
use super::lines::{LinePart, SourceLocation, ValueReader};
use super::signs::is_qwen;
use super::transcript::session;
use super::{
    Identity, ImportError, Importer, ReadSeek, SessionHead, Sink, Source, holds_conversation,
    unread,
};

/// Reads the transcripts of Claude Code.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaudeCode;

impl Importer for ClaudeCode {
    fn format(&self) -> &'static str {
        TOOL
    }

    fn detect(&self, _path: &Path, head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.lines().filter(|line| !line.trim().is_empty()).take(20);
        lines.any(looks_like_a_record) && !is_qwen(head)
    }

    fn other_files(&self, path: &Path) -> Option<Vec<PathBuf>> {
        spawn::parent_files(path)
    }

    fn is_readable_alone(&self, end: &[u8], first: &LoopId, title: Option<&str>) -> bool {
        appended::is_readable_alone(end, first, title)
    }

    fn import(&self, source: &mut Source<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let path = source.path;
        let mut skip = |line, reason| sink.skip(Some(line), reason);
        let mut index = read_index(path, source.reader, &mut skip)?;
        holds_conversation(index.tracks.iter().any(|track| !track.loops.is_empty()))?;
        let parents = spawn::parents(path, &index);
        index.forget_records();
        for number in 0..index.tracks.len() {
            let track = &index.tracks[number];
            if track.loops.is_empty() {
                continue;
            }
            let head = session_head(path, &index, track, parents[number].clone());
            let children = match number {
                0 => children(path, &index, &parents),
                _ => HashMap::new(),
            };
            let session = head.session.clone();
            sink.session(head)?;
            ClaudeEmitter::new(source, &index, track, session, children)?.run(sink)?;
        }
        Ok(())
    }
}

/// True if a line, which may be truncated, can only be Claude Code's.
fn looks_like_a_record(line: &str) -> bool {
    let has = |key: &str| line.contains(key);
    line.trim_start()
        .trim_start_matches('\u{feff}')
        .starts_with('{')
        && ((has("\"sessionId\"") && has("\"parentUuid\"") && has("\"type\""))
            || (has("\"leafUuid\"") && has("\"summary\""))
            || (has("\"file-history-snapshot\"") && has("\"messageId\""))
            || (has("\"queue-operation\"") && has("\"sessionId\"")))
}

/// Runs the first pass.
fn read_index(
    path: &Path,
    reader: &mut dyn ReadSeek,
    skip: &mut dyn FnMut(u64, String),
) -> Result<ClaudeIndex, ImportError> {
    let failed = unread(path);
    let mut index = ClaudeIndex::new(&stem(path));
    let mut lines = ValueReader::new(reader).map_err(failed)?;
    while let Some((place, read)) = lines.next_as(record::read_head).map_err(failed)? {
        let taken = match read {
            Ok(head) => index.record(head, place),
            Err(found) => take(&mut index, place, found),
        };
        if let Err(reason) = taken {
            skip(place.line, reason);
        }
    }
    for (line, reason) in index.finish() {
        skip(line, reason.to_owned());
    }
    Ok(index)
}

/// Indexes a line or part of a line that is not a record.
fn take(index: &mut ClaudeIndex, place: SourceLocation, found: LinePart<'_>) -> Result<(), String> {
    let (bytes_known, reason) = match found {
        LinePart::Value(text) => match record::read_head(text) {
            Ok(head) => return index.record(head, place),
            Err(reason) => (true, reason),
        },
        // The writer may not have finished the last line: if it were kept now, the next import would add it again,
        // whole.
        LinePart::Unreadable { bytes, reason, cut } => (!bytes.is_empty() && !cut, reason),
    };
    if bytes_known {
        index.unreadable(place);
    }
    Err(reason)
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns the id of the session of the file; for the file of a sub-agent, that of its parent.
fn main_session(path: &Path, index: &ClaudeIndex) -> SessionId {
    let named = index
        .session
        .as_deref()
        .and_then(|id| SessionId::new(id).ok());
    named
        .or_else(|| SessionId::new(stem(path)).ok())
        .unwrap_or_else(SessionId::generate)
}

/// Returns the id of the session of a track.
fn session_id(path: &Path, index: &ClaudeIndex, track: &Track) -> SessionId {
    let main = main_session(path, index);
    let name = match (&track.agent, &track.root) {
        (Some(agent), _) => format!("{main}/agent-{agent}"),
        (None, Some(root)) => format!("{main}/sidechain-{root}"),
        (None, None) => return main,
    };
    SessionId::new(name).unwrap_or(main)
}

fn session_head(
    path: &Path,
    index: &ClaudeIndex,
    track: &Track,
    parent: Option<ParentSpawnRef>,
) -> SessionHead {
    let id = session_id(path, index, track);
    let is_main = parent.is_none();
    let identity = match index.session {
        None if is_main => Identity::Key("0".into()),
        _ => Identity::Own(id.clone()),
    };
    let created = track.started.clone().map(Time::from_text);
    let mut session = session(id, track.agent.as_deref().unwrap_or(TOOL), created);
    session.last_active_at = track.ended.clone().map(Time::from_text);
    session.parent_spawn_ref = parent;
    SessionHead {
        identity,
        session,
        title: index.title.clone().filter(|_| is_main),
        project: index.project.clone(),
    }
}

/// Returns the references from the loops of the main session to the sub-agents in the file.
fn children(
    path: &Path,
    index: &ClaudeIndex,
    parents: &[Option<ParentSpawnRef>],
) -> HashMap<usize, Vec<ChildLoopRef>> {
    let pairs = index.tracks.iter().zip(parents).skip(1);
    let mut children: HashMap<usize, Vec<ChildLoopRef>> = HashMap::new();
    for (track, parent) in pairs {
        let known = index.spawning_call(track.agent.as_deref(), track);
        if let Some(call) = parent
            .as_ref()
            .and_then(|parent| parent.tool_call_id.as_ref())
            && let Some((_, known)) = known
            && let Some(loop_no) = known.main_loop
        {
            let session = session_id(path, index, track);
            let child = child_ref(call, &known.name, track, session);
            children.entry(loop_no).or_default().extend(child);
        }
    }
    children
}
