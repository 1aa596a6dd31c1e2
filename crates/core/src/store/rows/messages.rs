//! Messages, their sizes, blobs, and what is left of redacted ones.

use super::{Size, Tick};
use crate::model::{Author, Role};

/// What is left of a message that was redacted: the digest of what stands there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redaction {
    /// The receipt of the redaction.
    pub receipt: i64,
    /// The salt of that digest.
    pub salt: [u8; 16],
    /// SHA-256 of salt and stored bytes.
    pub digest: [u8; 32],
}

/// A message without what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Its place in the loop.
    pub seq: u32,
    /// Its turn group.
    pub turn: Option<u32>,
    /// Its role.
    pub role: Role,
    /// Whose words it is.
    pub author: Author,
    /// Its size.
    pub size: Size,
    /// Lines of the longest text of a tool result.
    pub lines: Option<u32>,
}

impl MessageSize {
    /// Whether it asks something of the agent, as [`Message::is_prompt`](crate::Message::is_prompt).
    pub fn is_prompt(&self) -> bool {
        is_prompt(self.role, self.author)
    }
}

fn is_prompt(role: Role, author: Author) -> bool {
    role == Role::User && author != Author::Harness
}

/// A row of `messages`.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageRow {
    /// Its place in the loop.
    pub seq: u32,
    /// Its turn group; `None` for an extension before the first.
    pub turn: Option<u32>,
    /// When it was appended.
    pub tick: Tick,
    /// What it says.
    pub body: StoredMessage,
    /// Milliseconds since the epoch.
    pub created_at: Option<i64>,
    /// Keyed digest of the record that it was imported from.
    pub origin: Option<[u8; 32]>,
    /// The digest chain through this message.
    pub chain: [u8; 32],
}

/// A message in its stored form: small JSON, the largest text apart, images in blobs.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMessage {
    /// Its role.
    pub role: Role,
    /// Whose words it is. No row says so of a message of a block, which has that of its role.
    pub author: Author,
    /// Its tokens.
    pub tokens: u64,
    /// The size of its JSON.
    pub bytes: u64,
    /// Lines of the longest text of a tool result.
    pub lines: Option<u32>,
    /// The content block whose text is `text`.
    pub text_block: Option<u32>,
    /// The random salt of its digest; `None` once redacted.
    pub salt: Option<[u8; 16]>,
    /// SHA-256 of salt and stored bytes.
    pub digest: [u8; 32],
    /// The interchange form with that text left empty; `None` once redacted or archived.
    pub head: Option<String>,
    /// The largest text.
    pub text: Option<String>,
}

impl StoredMessage {
    /// Whether it asks something of the agent, as [`Message::is_prompt`](crate::Message::is_prompt).
    pub fn is_prompt(&self) -> bool {
        is_prompt(self.role, self.author)
    }
}

/// Content that stands apart from its message, named by its SHA-256.
#[derive(Clone, Debug, PartialEq)]
pub struct Blob {
    /// Its name.
    pub sha256: [u8; 32],
    /// Its bytes.
    pub data: Vec<u8>,
}

/// A row of `blobs`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredBlob {
    /// Its name.
    pub sha256: [u8; 32],
    /// The noted length.
    pub bytes: u64,
    /// Its bytes.
    pub data: Vec<u8>,
}
