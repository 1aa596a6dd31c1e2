//! Which session, turn and prompt wrote the lines of a file.
//!
//! [`blame`] reads the calls of all sessions that changed a file, applies their texts in order, and attributes each
//! line of the file on disk to the turn that wrote it last. [`agent_trace`] writes the result as a record of Agent
//! Trace 0.1.
//!
//! The changes come from the arguments of calls (`loopstore_digest::activity`): whole texts, replaced texts, patches,
//! heredocs. The output of a program is not known, so a file that a redirection or `sed -i` wrote is followed no
//! further; each such change is counted and named. A line that no recorded change wrote is unknown: the crate does not
//! guess, and it reads no repository.
//!
//! - `collect` reads the sessions, `paths` finds the file among the recorded paths;
//! - `replay` applies the changes to a `document`, `lines` matches lines, `place` finds texts of edits;
//! - `report` has the result.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod agent_trace;
mod collect;
mod document;
mod error;
mod file;
mod lines;
mod paths;
mod place;
mod replay;
mod report;

use std::collections::{BTreeMap, BTreeSet};

pub use agent_trace::{AgentTraceOptions, agent_trace};
pub use document::UnfollowedReason;
pub use error::BlameError;
pub use file::{FileText, MAX_FILE_BYTES, read_file, spellings};
pub use report::{
    Attribution, Blame, BlameRange, ChangeEntry, CommitEntry, TurnEntry, UnfollowedCount,
};

use collect::{Collected, RecordedChange, add_session, earlier_paths};
use document::{ChangeNumber, Document};
use loopstore::extend::session::shown_sessions;
use loopstore::extend::{self as store, SessionRow, SessionStore, StoreRead, StoreResult};
use loopstore::model::SessionId;
use loopstore_digest::activity::{FileOperation, normal};
use paths::{FoundPaths, WantedFile};
use place::{DiskIndex, place};
use replay::replay;

/// The file and the sessions of a blame.
#[derive(Clone, Debug, Default)]
pub struct BlameRequest {
    /// The path of the file as it was given.
    pub file: String,
    /// Absolute spellings of the path ([`spellings`]). Without any, the recorded paths that end with `file` match.
    pub absolute: Vec<String>,
    /// Recorded paths of the file, in place of those that are found.
    pub recorded: Vec<String>,
    /// The text on disk ([`read_file`]); `None` if the file does not exist.
    pub text: Option<FileText>,
    /// The first and the last line; all lines if `None`.
    pub lines: Option<(u32, u32)>,
    /// The session; all that are not hidden if `None`.
    pub session: Option<SessionId>,
    /// A text that the project of the sessions contains, in upper or lower case.
    pub project: Option<String>,
}

/// Returns the turns that wrote the lines of a file, from one snapshot.
///
/// # Errors
/// If no session changed the file, several files match, a line does not exist, or the store fails.
///
/// # Examples
/// ```
/// use loopstore::*;
/// use loopstore_blame::{BlameRequest, FileText, blame};
/// use serde_json::json;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("lamp")?;
/// let write = json!({"file_path": "/repo/lamp.py", "content": "def on():\n    pass\n"});
/// chat.append([Message::user("Write a lamp.")])?;
/// chat.append([Message::assistant("").with_tool_call("c1", "Write", write)])?;
/// chat.append([Message::tool_result("c1", "File created successfully")])?;
/// let mut request = BlameRequest { file: "lamp.py".into(), ..BlameRequest::default() };
/// // A person has added a line.
/// let text = "def on():\n    pass\n# tested\n".to_owned();
/// request.text = Some(FileText { text, not_utf8: 0 });
/// let found = blame(store.database(), &request)?;
/// let turn = found.ranges[0].turn.as_ref().unwrap();
/// assert_eq!((found.ranges[0].from_line, found.ranges[0].to_line), (1, 2));
/// assert_eq!(turn.prompt.as_deref(), Some("Write a lamp."));
/// assert_eq!(found.ranges[1].turn, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn blame(store: &dyn SessionStore, request: &BlameRequest) -> Result<Blame, BlameError> {
    store::read(store, |read| Ok(blame_from(read, request)))?
}

fn blame_from(read: &dyn StoreRead, request: &BlameRequest) -> Result<Blame, BlameError> {
    let mut found = Collected::default();
    for owner in sessions(read, request)? {
        add_session(read, &owner, &mut found)?;
    }
    found.sort();
    let last = last_paths(request, &found.changes)?;
    let names = earlier_paths(&found.changes, &last);
    let document = replay(read, &found.changes, &names, &last)?;
    if document.history.is_empty() {
        return Err(BlameError::NoChange(request.file.clone()));
    }
    let mut paths = last;
    let mut earlier: Vec<String> = names
        .into_iter()
        .filter(|name| !paths.contains(name))
        .collect();
    earlier.sort();
    paths.extend(earlier);
    report(request, paths, &found, &document)
}

/// Returns the sessions to read, oldest first, so that a copied call belongs to the session that made it.
fn sessions(read: &dyn StoreRead, request: &BlameRequest) -> StoreResult<Vec<SessionRow>> {
    let mut sessions = match &request.session {
        Some(id) => vec![store::session_of(read, id)?],
        None => shown_sessions(read)?,
    };
    if let Some(part) = &request.project {
        let part = part.to_lowercase();
        sessions.retain(|row| {
            let project = row.project.as_deref().unwrap_or_default();
            project.to_lowercase().contains(&part)
        });
    }
    sessions.sort_by(|a, b| (&a.created_at, a.key).cmp(&(&b.created_at, b.key)));
    Ok(sessions)
}

fn last_paths(
    request: &BlameRequest,
    changes: &[RecordedChange],
) -> Result<Vec<String>, BlameError> {
    let recorded: BTreeSet<&str> = changes.iter().map(|change| &*change.path).collect();
    if !request.recorded.is_empty() {
        return Ok(request.recorded.iter().map(|path| normal(path)).collect());
    }
    let wanted = WantedFile {
        given: normal(&request.file),
        absolute: request.absolute.clone(),
    };
    match paths::find(&wanted, &recorded) {
        FoundPaths::Of(paths) => Ok(paths),
        FoundPaths::Several(paths) => Err(BlameError::SeveralFiles {
            file: request.file.clone(),
            paths,
        }),
        FoundPaths::None => Err(BlameError::NoChange(request.file.clone())),
    }
}

/// A line with the change that wrote it.
type AttributedLine = Option<(ChangeNumber, Attribution)>;

fn report(
    request: &BlameRequest,
    paths: Vec<String>,
    found: &Collected,
    document: &Document,
) -> Result<Blame, BlameError> {
    let (lines, unplaced) = match &request.text {
        Some(disk) => {
            let (lines, unplaced) = attribute(document, &disk.text);
            (Some(lines), unplaced)
        }
        None => known_lines(document),
    };
    let entry = |number: ChangeNumber| {
        let change = &found.changes[number as usize];
        TurnEntry::of(&change.turn, found.commit_after(change))
    };
    let ranges = ranges_of(request, lines.as_deref(), &entry)?;
    let mut counts: BTreeMap<ChangeNumber, u32> = BTreeMap::new();
    for (number, _) in lines.iter().flatten().flatten() {
        *counts.entry(*number).or_default() += 1;
    }
    let mut reasons: BTreeMap<UnfollowedReason, u64> = BTreeMap::new();
    let changes = document.history.iter().map(|(number, unfollowed)| {
        if let Some(reason) = unfollowed {
            *reasons.entry(*reason).or_default() += 1;
        }
        let change = &found.changes[*number];
        let (action, moved_from) = action_of(&change.operation);
        ChangeEntry {
            turn: entry(*number as ChangeNumber),
            path: change.path.clone(),
            action,
            moved_from,
            lines: counts.get(&(*number as ChangeNumber)).copied().unwrap_or(0),
            unfollowed: *unfollowed,
        }
    });
    let changes: Vec<ChangeEntry> = changes.collect();
    let reasons = reasons.into_iter();
    Ok(Blame {
        file: request.file.clone(),
        paths,
        on_disk: request.text.is_some(),
        deleted: document.is_deleted,
        lines: lines.as_ref().map(|lines| lines.len() as u32),
        ranges,
        changes,
        unfollowed: reasons
            .map(|(reason, count)| UnfollowedCount { reason, count })
            .collect(),
        unplaced_lines: unplaced,
        not_utf8_lines: request.text.as_ref().map_or(0, |text| text.not_utf8),
        sessions: found.sessions,
        removed_messages: found.removed,
        repeated_calls: found.repeated,
        untimed_changes: found.untimed,
    })
}

/// Attributes the lines of a file on disk. Returns them with the number of written lines whose place is not known.
fn attribute(document: &Document, text: &str) -> (Vec<AttributedLine>, u64) {
    let disk = document::Piece::of(text, None);
    let disk: Vec<&str> = disk.lines().map(|(line, _)| line).collect();
    let mut replayed: Vec<Option<ChangeNumber>> = vec![None; disk.len()];
    if let Some(whole) = &document.whole {
        let (known, by): (Vec<&str>, Vec<_>) = whole.lines().unzip();
        for (at, line) in lines::matched(&known, &disk).into_iter().enumerate() {
            replayed[at] = line.and_then(|line| by[line]);
        }
    }
    let mut by = replayed.clone();
    let unplaced = place(&document.pieces, &DiskIndex::new(&disk), &mut by);
    let attributed = by.iter().zip(&replayed).map(|(by, replayed)| {
        let how = match replayed {
            Some(_) => Attribution::Replayed,
            None => Attribution::Found,
        };
        by.map(|by| (by, how))
    });
    (attributed.collect(), unplaced)
}

/// Returns the lines that the recorded changes leave, if they are known, and the number of written lines whose place
/// is not.
fn known_lines(document: &Document) -> (Option<Vec<AttributedLine>>, u64) {
    let pieces = document.pieces.iter().flat_map(document::Piece::lines);
    let unplaced = pieces.filter(|(_, by)| by.is_some()).count() as u64;
    let whole = document.whole.as_ref().map(|whole| {
        let lines = whole.lines();
        lines
            .map(|(_, by)| by.map(|by| (by, Attribution::Replayed)))
            .collect()
    });
    (whole, unplaced)
}

/// Returns the lines that were asked for as ranges of one turn each.
fn ranges_of(
    request: &BlameRequest,
    lines: Option<&[AttributedLine]>,
    entry: &dyn Fn(ChangeNumber) -> TurnEntry,
) -> Result<Vec<BlameRange>, BlameError> {
    let Some(lines) = lines else {
        return match request.lines {
            Some(_) => Err(BlameError::UnknownLines(request.file.clone())),
            None => Ok(Vec::new()),
        };
    };
    let count = lines.len() as u32;
    let (first, last) = request.lines.unwrap_or((1, count));
    if let Some((first, last)) = request.lines
        && (first == 0 || last > count || last < first)
    {
        return Err(BlameError::NoLine {
            file: request.file.clone(),
            line: if first == 0 { 0 } else { last.max(first) },
            lines: count,
        });
    }
    let mut ranges: Vec<BlameRange> = Vec::new();
    let mut numbers: BTreeMap<ChangeNumber, TurnEntry> = BTreeMap::new();
    for line in first..=last {
        let (turn, attribution) = match lines[line as usize - 1] {
            Some((number, how)) => {
                let turn = numbers.entry(number).or_insert_with(|| entry(number));
                (Some(&*turn), Some(how))
            }
            None => (None, None),
        };
        match ranges.last_mut() {
            Some(range)
                if range.attribution == attribution && is_same_turn(range.turn.as_ref(), turn) =>
            {
                range.to_line = line;
            }
            _ => ranges.push(BlameRange {
                from_line: line,
                to_line: line,
                attribution,
                turn: turn.cloned(),
            }),
        }
    }
    Ok(ranges)
}

/// True if two changes belong to one turn: a turn may change a file several times.
fn is_same_turn(one: Option<&TurnEntry>, other: Option<&TurnEntry>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            (&one.session_id, &one.loop_id, one.turn)
                == (&other.session_id, &other.loop_id, other.turn)
                && one.turn.is_some()
                || one == other
        }
        (None, None) => true,
        _ => false,
    }
}

fn action_of(operation: &FileOperation) -> (&'static str, Option<String>) {
    match operation {
        FileOperation::Create | FileOperation::Touch => ("created", None),
        FileOperation::Write => ("written", None),
        FileOperation::Edit => ("edited", None),
        FileOperation::Delete => ("deleted", None),
        FileOperation::Revert => ("reverted", None),
        FileOperation::MoveFrom(from) => ("moved", Some(from.clone())),
        FileOperation::Read => ("read", None),
    }
}
