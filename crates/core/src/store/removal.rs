//! Writes that remove content (redaction, pruning, erasing) or move it (archiving). Each leaves a
//! receipt.
//!
//! The triggers allow the removal of content only while a receipt of its session is open, so
//! everything here is called between [`WriteReceipts::open_receipt`] and
//! [`WriteReceipts::close_receipt`], in one transaction. Removed bytes may stay in the file until its
//! pages are rewritten: [`WriteReceipts::note_scrub`] records that.

use super::packs::Pack;
use super::scan::{BlobOwner, MessagePlace, StoreScan, TextCell};
use super::{
    BlockKey, BlockRow, EditRow, LoopKey, RunKey, SessionKey, SourceKey, StoreResult, StoredMessage,
};

/// Texts that were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextsChanged {
    /// The number of changed texts, by table and column.
    pub counts: std::collections::BTreeMap<&'static str, u64>,
}

/// The rows that were removed with a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRemoved {
    /// The number of rows by table; tables without any are left out.
    pub rows: std::collections::BTreeMap<&'static str, u64>,
    /// The number of blobs that stay because other sessions show them too.
    pub shared_blobs: u64,
}

/// The state of the bytes of removed content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubState {
    /// There were no bytes to remove.
    Clean,
    /// The bytes are gone.
    Done,
    /// The bytes are gone from the file, but still in its log: a reader uses an older snapshot.
    InLog,
    /// No row contains the bytes; a server may have them in pages that it has not reused, in its log and in
    /// its backups.
    OnServer,
}

/// Writes receipts of removals.
pub trait WriteReceipts {
    /// Opens a receipt of a kind (`erase`, `redact`, `prune`, `archive`) for a session: from now on its content
    /// can be removed.
    fn open_receipt(
        &mut self,
        session: SessionKey,
        kind: &str,
        opened_at: &str,
    ) -> StoreResult<i64>;

    /// Closes a receipt and writes its content.
    fn close_receipt(&mut self, key: i64, detail: &str) -> StoreResult<()>;

    /// Records that removed bytes may still be in the file.
    fn note_scrub(&mut self) -> StoreResult<()>;
}

/// Removes sessions and kept files.
pub trait RemoveSessions {
    /// Removes a session with all rows that belong to it, except kept files.
    fn remove_session(&mut self, session: SessionKey) -> StoreResult<SessionRemoved>;

    /// Removes a kept file, whole: without one part it could not be returned unchanged. Returns the number of
    /// its parts that stay, as other kept files have them too.
    fn remove_source(&mut self, source: SourceKey) -> StoreResult<u64>;

    /// Removes a kept file from a session; the file stays for others.
    fn unlink_source(&mut self, session: SessionKey, source: SourceKey) -> StoreResult<()>;
}

/// Changes texts that are not messages.
pub trait ChangeTexts {
    /// Replaces the texts, except ids and the texts of edits, for which `change` returns another one, and derives their digests again.
    /// Fails if such a digest did not match before.
    fn change_texts(
        &mut self,
        session: SessionKey,
        change: &mut dyn FnMut(TextCell<'_>) -> StoreResult<Option<String>>,
    ) -> StoreResult<TextsChanged>;
}

/// Rewrites messages and blocks that a redaction changes.
pub trait RedactMessages {
    /// Writes the redacted content of a message. Its digest and its place in the chain stay, and the salt is
    /// removed; the digest of `new` is recorded in addition. The pack of an archived message is unpacked first.
    fn redact_message(
        &mut self,
        place: MessagePlace,
        new: &StoredMessage,
        receipt: i64,
    ) -> StoreResult<()>;

    /// Removes a blob from an owner; the blob is deleted if nothing else shows it.
    fn forget_blob(&mut self, owner: BlobOwner, name: &[u8; 32]) -> StoreResult<()>;

    /// Writes the size of a quote whose original was changed.
    fn resize_quote(
        &mut self,
        block: BlockKey,
        ordinal: u32,
        quote: &StoredMessage,
    ) -> StoreResult<()>;

    /// Writes the edits of a run again: their texts, sizes, salts and positions. `edits` are those that stay, in their
    /// order; the others are deleted. Derives the digests again. Fails if one did not match before.
    fn rewrite_edits(&mut self, run: RunKey, edits: &[EditRow]) -> StoreResult<()>;

    /// Writes the sizes of a block and derives its digest again. Fails if the digest did not match before.
    fn resize_block(&mut self, block: &BlockRow) -> StoreResult<()>;
}

/// Moves the content of messages into packs and back.
pub trait MovePacks {
    /// Moves the content of messages out of their rows and into a pack. Fails if one of them has no content.
    fn put_pack(&mut self, loop_key: LoopKey, pack: &Pack) -> StoreResult<()>;

    /// Moves the content of the pack that begins with message `first` back into the rows.
    fn take_pack(&mut self, loop_key: LoopKey, first: u32) -> StoreResult<()>;
}

/// The operations of a transaction that removes content.
pub trait StoreRemove:
    StoreScan + WriteReceipts + RemoveSessions + ChangeTexts + RedactMessages + MovePacks
{
}
