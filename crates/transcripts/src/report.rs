//! The report of an import, for people and scripts.

use std::collections::BTreeMap;
use std::path::Path;

use loopstore::compact::CompactionEnded;
use loopstore::model::{LoopId, SessionId};
use loopstore_redact::add_counts;
use serde::Serialize;

use super::ImportError;
use super::files::with_causes;

/// A record or file that could not be imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The file or folder.
    pub file: String,
    /// The line, from 1, if the format has lines.
    pub line: Option<u64>,
    /// The cause.
    pub reason: String,
}

/// A loop of a transcript that was stored as a branch, since the stored loop continues differently or another loop
/// has its id. Both loops are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportedBranch {
    /// The file.
    pub file: String,
    /// The session.
    pub session: SessionId,
    /// The loop that is the branch.
    pub loop_id: LoopId,
}

/// A session of a transcript that was stored under another id, since another conversation has its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeparatedSession {
    /// The file.
    pub file: String,
    /// The id in the transcript.
    pub id: SessionId,
    /// The id under which the session is stored.
    pub session: SessionId,
}

/// Damage of a file that was repaired so that its records could be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileRepair {
    /// The file.
    pub file: String,
    /// The first damaged line, from 1, if the format has lines.
    pub line: Option<u64>,
    /// The number of places with this damage.
    pub count: u64,
    /// A description of the damage and of the repair.
    pub what: String,
}

/// A tool call or a result that was incomplete in the transcript and was completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompletedCall {
    /// The file.
    pub file: String,
    /// The call in the transcript, and as it was recorded.
    pub note: String,
}

/// The report of an import: the numbers of sessions, loops, turns and messages found, and of new messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportReport {
    /// Files with content that was imported or was stored already.
    pub files: u64,
    /// Sessions that were imported or were stored already, in the order of the transcripts.
    pub sessions: Vec<SessionId>,
    /// Files among them that are unchanged since an earlier import, and were not read.
    #[serde(skip_serializing_if = "is_zero")]
    pub unchanged: u64,
    /// Loops of the transcripts.
    pub loops: u64,
    /// Turns of the transcripts.
    pub turns: u64,
    /// Messages of the transcripts, extensions not counted.
    pub messages: u64,
    /// Messages that were not stored before.
    pub added_messages: u64,
    /// Complete messages that differ from the stored version; both versions are kept.
    pub revised: u64,
    /// Loops that were stored as branches, since a conversation was rewritten or continued in two places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<ImportedBranch>,
    /// Sessions that were stored under another id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub separated: Vec<SeparatedSession>,
    /// Files in folders that are no transcript.
    pub unknown_files: u64,
    /// Files among them that may contain a conversation, each with the reason that it was not read.
    pub unread: Vec<Skipped>,
    /// Paths of the request that could not be imported, although others were imported.
    pub failed: Vec<Skipped>,
    /// Secrets that were replaced in new content, by type; `None` if no content was searched for secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, u64>>,
    /// Secrets that were found in new content and not replaced, since their confidence is too low, by type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held_back: BTreeMap<String, u64>,
    /// Sessions that were imported earlier without redaction; their earlier content is unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unredacted: Vec<SessionId>,
    /// The records and files that could not be imported.
    pub skipped: Vec<Skipped>,
    /// The damage that was repaired.
    pub repaired: Vec<FileRepair>,
    /// Tool calls and results that had no id, no name or arguments of another type, and were completed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<CompletedCall>,
    /// The total size of the files in bytes.
    pub bytes: u64,
    /// The duration of the import in seconds.
    pub seconds: f64,
    /// The compactions of other tools that were new.
    #[serde(skip)]
    pub(crate) compactions: Vec<CompactionEnded>,
}

// The signature is the one that serde calls.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ImportReport {
    /// Adds the report of another file.
    pub fn merge(&mut self, other: Self) {
        self.files += other.files;
        for session in other.sessions {
            if !self.sessions.contains(&session) {
                self.sessions.push(session);
            }
        }
        self.unchanged += other.unchanged;
        self.loops += other.loops;
        self.turns += other.turns;
        self.messages += other.messages;
        self.added_messages += other.added_messages;
        self.revised += other.revised;
        self.branches.extend(other.branches);
        self.separated.extend(other.separated);
        self.unknown_files += other.unknown_files;
        self.unread.extend(other.unread);
        self.failed.extend(other.failed);
        self.repaired.extend(other.repaired);
        if let Some(secrets) = other.secrets {
            add_counts(self.secrets.get_or_insert_default(), &secrets);
        }
        add_counts(&mut self.held_back, &other.held_back);
        self.unredacted.extend(other.unredacted);
        self.skipped.extend(other.skipped);
        self.notes.extend(other.notes);
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.compactions.extend(other.compactions);
    }

    /// Adds damage that was repaired. Damage of one kind in one file is one entry, with its first line.
    pub fn repair(&mut self, file: &str, line: Option<u64>, count: u64, what: &str) {
        let mut known = self.repaired.iter_mut();
        match known.find(|one| one.file == file && one.what == what) {
            Some(known) => known.count += count,
            None => self.repaired.push(FileRepair {
                file: file.to_owned(),
                line,
                count,
                what: what.to_owned(),
            }),
        }
    }

    /// Records a named path that could not be imported.
    pub(super) fn fail(&mut self, path: &Path, error: &ImportError) {
        let reason = match error {
            // The entry names the file.
            ImportError::Read { source, .. } => format!("cannot be read: {source}"),
            error => with_causes(error),
        };
        self.failed.push(Skipped {
            file: path.to_string_lossy().into_owned(),
            line: None,
            reason,
        });
    }

    /// Adds a record or file that could not be imported.
    pub fn skip(&mut self, file: impl Into<String>, line: Option<u64>, reason: impl Into<String>) {
        self.skipped.push(Skipped {
            file: file.into(),
            line,
            reason: reason.into(),
        });
    }
}
