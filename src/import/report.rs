//! What an import did, for people and scripts.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compact::CompactionEnded;
use crate::model::SessionId;

/// Something that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The file or folder.
    pub file: String,
    /// The line, from 1, if the format has lines.
    pub line: Option<u64>,
    /// Why.
    pub reason: String,
}

/// A tool call or a result that did not come as it must, and was completed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompletedCall {
    /// The file.
    pub file: String,
    /// What came, and as what it was recorded.
    pub note: String,
}

/// What an import found and what of it was new.
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
    /// Files in folders that are no transcript.
    pub unknown_files: u64,
    /// Secrets that were replaced in what was new, by type; `None`: nothing was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, u64>>,
    /// Sessions that came in before without being redacted: what was stored then is as it was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unredacted: Vec<SessionId>,
    /// What could not be used.
    pub skipped: Vec<Skipped>,
    /// Tool calls and results that came without an id or a name, or with arguments of another type, and were
    /// completed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<CompletedCall>,
    /// Size of the files.
    pub bytes: u64,
    /// How long it took.
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
        self.unknown_files += other.unknown_files;
        if let Some(secrets) = other.secrets {
            let all = self.secrets.get_or_insert_default();
            for (kind, count) in secrets {
                *all.entry(kind).or_default() += count;
            }
        }
        self.unredacted.extend(other.unredacted);
        self.skipped.extend(other.skipped);
        self.notes.extend(other.notes);
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.compactions.extend(other.compactions);
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
