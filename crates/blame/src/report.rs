//! The result of a blame.

use serde::Serialize;

use crate::collect::{ChangeTurn, RecordedCommit, time_text};
use crate::document::UnfollowedReason;

/// The turn that changed a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnEntry {
    /// The session.
    pub session_id: String,
    /// The loop.
    pub loop_id: String,
    /// The turn of the loop.
    pub turn: Option<u32>,
    /// The time of the change, as ISO-8601 text.
    pub time: Option<String>,
    /// The agent, or the format that the session was imported from.
    pub agent: Option<String>,
    /// The model that made the call.
    pub model: Option<String>,
    /// The provider of the model.
    pub provider: Option<String>,
    /// The beginning of the prompt that the turn belongs to.
    pub prompt: Option<String>,
    /// The first commit that the session made after the change.
    pub commit: Option<CommitEntry>,
}

/// A commit that a session made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommitEntry {
    /// The id as git printed it; git may have shortened it.
    pub commit_id: String,
    /// The branch.
    pub branch: Option<String>,
    /// The first line of the message.
    pub subject: Option<String>,
    /// The loop of the turn that made the commit.
    pub loop_id: String,
    /// The turn that made the commit.
    pub turn: Option<u32>,
}

/// The way in which a line was attributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribution {
    /// The line is where the recorded changes leave it.
    Replayed,
    /// The text of the edit was found in the file; its place is not recorded.
    Found,
}

/// Consecutive lines that one turn wrote, or that no recorded turn wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlameRange {
    /// The first line, counted from 1.
    pub from_line: u32,
    /// The last line.
    pub to_line: u32,
    /// The way in which the lines were attributed; `None` if they were not.
    pub attribution: Option<Attribution>,
    /// The turn that wrote the lines; `None` if no recorded turn did.
    #[serde(flatten)]
    pub turn: Option<TurnEntry>,
}

/// A recorded change of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeEntry {
    /// The turn.
    #[serde(flatten)]
    pub turn: TurnEntry,
    /// The path at that time, within its working folder if that is known.
    pub path: String,
    /// `created`, `written`, `edited`, `deleted`, `moved` or `reverted`, as the arguments of the call say.
    pub action: &'static str,
    /// The path that the file was moved from.
    pub moved_from: Option<String>,
    /// The number of lines of the file that the change wrote.
    pub lines: u32,
    /// The reason if the change could not be followed line by line.
    pub unfollowed: Option<UnfollowedReason>,
}

/// The number of changes that could not be followed for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UnfollowedCount {
    /// The reason.
    pub reason: UnfollowedReason,
    /// The number of changes.
    pub count: u64,
}

/// The turns that wrote the lines of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blame {
    /// The path as it was given.
    pub file: String,
    /// The paths under which the sessions recorded the file, the last first.
    pub paths: Vec<String>,
    /// True if the lines are those of the file on disk; false if they are those that the recorded changes leave.
    pub on_disk: bool,
    /// True if the last recorded change of the file deleted it, or moved it away.
    pub deleted: bool,
    /// The number of lines; `None` if the text is not known.
    pub lines: Option<u32>,
    /// The lines in order, of those that were asked for.
    pub ranges: Vec<BlameRange>,
    /// The recorded changes in order, those of lines that are gone included.
    pub changes: Vec<ChangeEntry>,
    /// The changes that could not be followed, by reason.
    pub unfollowed: Vec<UnfollowedCount>,
    /// The lines that edits wrote and whose place in the file was not found: changed since, or at several places.
    pub unplaced_lines: u64,
    /// The lines of the file on disk that are not UTF-8.
    pub not_utf8_lines: u64,
    /// The sessions that were read.
    pub sessions: u64,
    /// Messages that were redacted or removed, and may have contained changes.
    pub removed_messages: u64,
    /// Calls that several sessions contain, counted once for each repetition.
    pub repeated_calls: u64,
    /// Changes whose time is not known; they count as older than all others.
    pub untimed_changes: u64,
}

impl TurnEntry {
    pub(crate) fn of(turn: &ChangeTurn, commit: Option<&RecordedCommit>) -> Self {
        Self {
            session_id: turn.session_id.to_string(),
            loop_id: turn.loop_id.to_string(),
            turn: turn.turn,
            time: turn.time.and_then(time_text),
            agent: turn.agent.as_deref().map(str::to_owned),
            model: turn.model.as_deref().map(str::to_owned),
            provider: turn.provider.as_deref().map(str::to_owned),
            prompt: turn.prompt.as_deref().map(str::to_owned),
            commit: commit.map(|commit| CommitEntry {
                commit_id: commit.id.clone(),
                branch: commit.branch.clone(),
                subject: commit.subject.clone(),
                loop_id: commit.turn.loop_id.to_string(),
                turn: commit.turn.turn,
            }),
        }
    }
}
