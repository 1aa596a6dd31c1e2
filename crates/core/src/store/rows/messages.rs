//! Messages, their sizes, blobs, and the remainders of redacted messages.

use super::{Size, Tick};
use crate::model::{Author, Role};

/// The remainder of a redacted message: the salt and the digest of its redacted content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redaction {
    /// The receipt of the redaction.
    pub receipt: i64,
    /// The salt of that digest.
    pub salt: [u8; 16],
    /// SHA-256 of salt and stored bytes.
    pub digest: [u8; 32],
}

/// A message without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Its sequence in the loop.
    pub seq: u32,
    /// Its turn group.
    pub turn: Option<u32>,
    /// Its role.
    pub role: Role,
    /// The author of its words.
    pub author: Author,
    /// Its size.
    pub size: Size,
    /// Lines of the longest text of a tool result.
    pub lines: Option<u32>,
}

impl MessageSize {
    /// True if the message is a prompt, as of [`Message::is_prompt`](loopstore_model::Message::is_prompt).
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
    /// Its sequence in the loop.
    pub seq: u32,
    /// Its turn group; `None` for an extension before the first.
    pub turn: Option<u32>,
    /// The tick of its append.
    pub tick: Tick,
    /// The message in its stored form.
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
    /// The author of its words. A message of a block has no such column; its author follows from its role.
    pub author: Author,
    /// Its tokens.
    pub tokens: u64,
    /// The size of its JSON.
    pub bytes: u64,
    /// Lines of the longest text of a tool result.
    pub lines: Option<u32>,
    /// The content block whose text is `text`.
    pub text_block: Option<u32>,
    /// The random salt of the digest; `None` after a redaction.
    pub salt: Option<[u8; 16]>,
    /// SHA-256 of salt and stored bytes.
    pub digest: [u8; 32],
    /// The interchange form with that text left empty; `None` once redacted or archived.
    pub head: Option<String>,
    /// The largest text.
    pub text: Option<String>,
}

impl StoredMessage {
    /// True if the message is a prompt, as of [`Message::is_prompt`](loopstore_model::Message::is_prompt).
    pub fn is_prompt(&self) -> bool {
        is_prompt(self.role, self.author)
    }
}

/// Content that is stored outside its message, named by its SHA-256.
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
    /// The recorded length.
    pub bytes: u64,
    /// Its bytes.
    pub data: Vec<u8>,
}
