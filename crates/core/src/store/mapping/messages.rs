//! Messages, their sizes, blobs, and the remainders of redacted messages.

use std::borrow::Cow;

use crate::model::{Author, Role};
use crate::store::columns::Columns;
use crate::store::prompt::PromptPlace;
use crate::store::{
    MessageRow, MessageSize, Proof, Redaction, Size, StoreResult, StoredBlob, StoredMessage,
};

/// Reads a message from its columns.
pub fn message_row(row: &impl Columns) -> StoreResult<MessageRow> {
    Ok(MessageRow {
        seq: row.number("seq")?,
        turn: row.get("turn")?,
        tick: row.get("tick")?,
        body: stored_message(row, row.get("role")?, row.get("author")?, row.get("lines")?)?,
        created_at: row.get("created_at")?,
        origin: row.get("origin")?,
        chain: row.get("chain")?,
    })
}

/// Reads a message in its stored form, of which role, author and lines were read.
pub(super) fn stored_message(
    row: &impl Columns,
    role: Role,
    author: Author,
    lines: Option<u32>,
) -> StoreResult<StoredMessage> {
    Ok(StoredMessage {
        role,
        author,
        tokens: row.get("tokens")?,
        bytes: row.get("bytes")?,
        lines,
        text_block: row.get("body_block")?,
        salt: row.get("salt")?,
        digest: row.get("digest")?,
        head: row.get("head")?,
        text: row.content("body")?.map(Cow::into_owned),
    })
}

/// Reads the position of a prompt from its columns.
pub fn prompt_place(row: &impl Columns) -> StoreResult<PromptPlace> {
    Ok(PromptPlace {
        session: row.get("session")?,
        loop_key: row.get("loop")?,
        seq: row.number("seq")?,
    })
}

/// Reads the proof of a message from its columns.
pub fn proof(row: &impl Columns) -> StoreResult<Proof> {
    Ok(Proof {
        salt: row.get("salt")?,
        digest: row.get("digest")?,
    })
}

/// Reads the size of a message from its columns.
pub fn message_size(row: &impl Columns) -> StoreResult<MessageSize> {
    Ok(MessageSize {
        seq: row.number("seq")?,
        turn: row.get("turn")?,
        role: row.get("role")?,
        author: row.get("author")?,
        size: Size {
            tokens: row.get("tokens")?,
            bytes: row.get("bytes")?,
            messages: 1,
        },
        lines: row.get("lines")?,
    })
}

/// Reads the remainder of a redacted message from its columns.
pub fn redaction(row: &impl Columns) -> StoreResult<Redaction> {
    Ok(Redaction {
        receipt: row.get("receipt")?,
        salt: row.get("salt")?,
        digest: row.get("digest")?,
    })
}

/// Reads a blob from its columns.
pub fn stored_blob(row: &impl Columns) -> StoreResult<StoredBlob> {
    Ok(StoredBlob {
        sha256: row.get("sha256")?,
        bytes: row.get("bytes")?,
        data: row.get("data")?,
    })
}
