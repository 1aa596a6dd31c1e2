//! The imports of sessions, and the kept files of these imports.

use super::{SessionKey, SourceKey};
use crate::model::Time;

/// A row of `imports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRow {
    /// The format.
    pub format: String,
    /// The file, as it was given.
    pub path: String,
    /// The file's name without folders.
    pub file_name: String,
    /// The record's own key.
    pub record_key: Option<String>,
}

/// A row of `imports` as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportNote {
    /// Its key.
    pub key: i64,
    /// The session.
    pub session: SessionKey,
    /// The source of the import.
    pub from: ImportRow,
    /// ISO-8601 text.
    pub imported_at: String,
}

impl ImportNote {
    /// Returns the note of an import at the present time, still without a key.
    pub fn now(session: SessionKey, from: &ImportRow) -> Self {
        Self {
            key: 0,
            session,
            from: from.clone(),
            imported_at: Time::now().as_str().to_owned(),
        }
    }
}

/// A row of `sources`: a file that sessions were imported from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRow {
    /// Its key.
    pub key: SourceKey,
    /// The format.
    pub format: String,
    /// The whole path of the file.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of the names of its parts, in order.
    pub digest: [u8; 32],
}

/// A part of a kept file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePart {
    /// SHA-256 of the original bytes.
    pub sha256: [u8; 32],
    /// The number of the original bytes.
    pub bytes: u64,
}

/// The bytes of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePiece {
    /// SHA-256 of the original bytes.
    pub sha256: [u8; 32],
    /// The number of the original bytes.
    pub bytes: u64,
    /// The bytes, packed.
    pub data: Vec<u8>,
}
