//! The report of an import, for people and scripts.

use std::collections::BTreeMap;
use std::path::Path;

use loopstore::compact::CompactionEnded;
use loopstore::model::{LoopId, SessionId};
use loopstore_redact::add_counts;
use serde::Serialize;

use super::ImportError;
use super::files::with_causes;

/// Something that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The file or folder.
    pub file: String,
    /// The line, from 1, if the format has lines.
    pub line: Option<u64>,
    /// The cause.
    pub reason: String,
}

/// A loop of a transcript that became a branch: what was stored goes on otherwise, or another loop has its id. Both
/// are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportedBranch {
    /// The file.
    pub file: String,
    /// The session.
    pub session: SessionId,
    /// The loop that is the branch.
    pub loop_id: LoopId,
}

/// A session of a transcript that got another id, since its own is that of another conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeparatedSession {
    /// The file.
    pub file: String,
    /// The id in the transcript.
    pub id: SessionId,
    /// The session that it became.
    pub session: SessionId,
}

/// Damage of a file that was repaired so that its records could be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// The file.
    pub file: String,
    /// The line of the first of it, from 1, if the format has lines.
    pub line: Option<u64>,
    /// The number of times it was found.
    pub count: u64,
    /// The damage, and what was done.
    pub what: String,
}

/// A tool call or a result that did not come as it must, and was completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompletedCall {
    /// The file.
    pub file: String,
    /// The call as it came, and as it was recorded.
    pub note: String,
}

/// The report of an import: the numbers of things found, and of those that were new.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportReport {
    /// Files of which something came in or was already there.
    pub files: u64,
    /// Sessions that came in or were already there, in the order of the transcripts.
    pub sessions: Vec<SessionId>,
    /// Loops of the transcripts.
    pub loops: u64,
    /// Turns of the transcripts.
    pub turns: u64,
    /// Messages of the transcripts, extensions not counted.
    pub messages: u64,
    /// Those of them that were not stored yet.
    pub added_messages: u64,
    /// Complete messages that came back changed and were kept beside the stored ones.
    pub revised: u64,
    /// Parts of conversations that were written anew, or continued in two places.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<ImportedBranch>,
    /// Conversations under an id that another one has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub separated: Vec<SeparatedSession>,
    /// Files in folders that are no transcript.
    pub unknown_files: u64,
    /// Those of them that may hold a conversation all the same, each with the reason why it was not read.
    pub unread: Vec<Skipped>,
    /// Paths that were named and could not be imported, though others were.
    pub failed: Vec<Skipped>,
    /// Secrets that were replaced in what was new, by type; `None`: nothing was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, u64>>,
    /// Secrets that were found in what was new and not replaced, as their confidence is too low, by type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held_back: BTreeMap<String, u64>,
    /// Sessions that came in before without being redacted: what was stored then is as it was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unredacted: Vec<SessionId>,
    /// The parts that could not be used.
    pub skipped: Vec<Skipped>,
    /// The damaged parts that could be used all the same.
    pub repaired: Vec<Repaired>,
    /// Tool calls and results that came without an id or a name, or with arguments of another type, and were
    /// completed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<CompletedCall>,
    /// Size of the files.
    pub bytes: u64,
    /// The duration of the import.
    pub seconds: f64,
    /// The compactions of other tools that were new.
    #[serde(skip)]
    pub(crate) compactions: Vec<CompactionEnded>,
}

impl ImportReport {
    /// Adds what another file brought.
    pub fn merge(&mut self, other: Self) {
        self.files += other.files;
        for session in other.sessions {
            if !self.sessions.contains(&session) {
                self.sessions.push(session);
            }
        }
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

    /// Notes damage that was repaired; of one kind in one file the first place counts.
    pub fn repair(&mut self, file: &str, line: Option<u64>, count: u64, what: &str) {
        let mut known = self.repaired.iter_mut();
        match known.find(|one| one.file == file && one.what == what) {
            Some(known) => known.count += count,
            None => self.repaired.push(Repaired {
                file: file.to_owned(),
                line,
                count,
                what: what.to_owned(),
            }),
        }
    }

    /// Notes a named path that could not be imported.
    pub(super) fn fail(&mut self, path: &Path, error: &ImportError) {
        let reason = match error {
            // The file is named beside the reason.
            ImportError::Read { source, .. } => format!("cannot be read: {source}"),
            error => with_causes(error),
        };
        self.failed.push(Skipped {
            file: path.to_string_lossy().into_owned(),
            line: None,
            reason,
        });
    }

    /// Notes something that could not be used.
    pub fn skip(&mut self, file: impl Into<String>, line: Option<u64>, reason: impl Into<String>) {
        self.skipped.push(Skipped {
            file: file.into(),
            line,
            reason: reason.into(),
        });
    }
}
