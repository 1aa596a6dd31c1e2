//! What removes content: redaction, pruning, erasing; and what moves it: archiving. Each leaves a
//! receipt.
//!
//! The triggers let content of a session go only while a receipt of that session is open, so
//! everything here is called between [`WriteReceipts::open_receipt`] and
//! [`WriteReceipts::close_receipt`], in one transaction. What is removed may be in the file for as long
//! as its pages are not written anew: [`WriteReceipts::note_scrub`] remembers that.

use super::packs::Pack;
use super::scan::{BlobOwner, MessagePlace, StoreScan, TextCell};
use super::{BlockKey, BlockRow, LoopKey, SessionKey, SourceKey, StoreResult, StoredMessage};

/// Texts that were changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextsChanged {
    /// How many, by table and column.
    pub counts: std::collections::BTreeMap<&'static str, u64>,
}

/// What went with a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRemoved {
    /// Rows by table; those without any are left out.
    pub rows: std::collections::BTreeMap<&'static str, u64>,
    /// Blobs that other sessions show too, and that so stay.
    pub shared_blobs: u64,
}

/// The state of the bytes of removed content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// There was nothing to do.
    Clean,
    /// They are gone.
    Done,
    /// They are gone from the file, and still in its log: somebody reads an older state.
    InLog,
    /// They are in no row; a server may have them in pages that it has not used again, in its log and in
    /// its backups.
    OnServer,
}

/// Writes receipts of removals.
pub trait WriteReceipts {
    /// Opens a receipt of a kind (`erase`, `redact`, `prune`, `archive`) for a session: from now on its content
    /// may go.
    fn open_receipt(
        &mut self,
        session: SessionKey,
        kind: &str,
        opened_at: &str,
    ) -> StoreResult<i64>;

    /// Closes a receipt and writes what it says.
    fn close_receipt(&mut self, key: i64, detail: &str) -> StoreResult<()>;

    /// Remembers that bytes of what was removed may be in the file.
    fn note_scrub(&mut self) -> StoreResult<()>;
}

/// Removes sessions and kept files.
pub trait RemoveSessions {
    /// Removes a session with all that belongs to it, but for kept files.
    fn remove_session(&mut self, session: SessionKey) -> StoreResult<SessionRemoved>;

    /// Removes a kept file, whole: no part of it could be given back as it was. Returns how many of its
    /// parts stay, as other kept files hold them too.
    fn remove_source(&mut self, source: SourceKey) -> StoreResult<u64>;

    /// Notes that a kept file, which stays for others, is no longer one of a session.
    fn unlink_source(&mut self, session: SessionKey, source: SourceKey) -> StoreResult<()>;
}

/// Changes texts that are not messages.
pub trait ChangeTexts {
    /// Replaces the texts, ids apart, for which `change` returns another one; digests that hold them are derived
    /// anew. Refused if such a digest did not fit before.
    fn change_texts(
        &mut self,
        session: SessionKey,
        change: &mut dyn FnMut(TextCell<'_>) -> StoreResult<Option<String>>,
    ) -> StoreResult<TextsChanged>;
}

/// Rewrites messages and blocks that a redaction changes.
pub trait RedactMessages {
    /// Writes what a message says now. Its digest and its place in the chain stay, the salt goes; the
    /// digest of `new` is noted beside it. If it is archived, its whole pack is taken apart first.
    fn redact_message(
        &mut self,
        place: MessagePlace,
        new: &StoredMessage,
        receipt: i64,
    ) -> StoreResult<()>;

    /// Notes that an owner no longer shows a blob, which goes if nothing else shows it.
    fn forget_blob(&mut self, owner: BlobOwner, name: &[u8; 32]) -> StoreResult<()>;

    /// Writes the size of a quote, whose original says something else now.
    fn resize_quote(
        &mut self,
        block: BlockKey,
        ordinal: u32,
        quote: &StoredMessage,
    ) -> StoreResult<()>;

    /// Writes the sizes of a block and derives its digest anew. Refused if that did not fit before.
    fn resize_block(&mut self, block: &BlockRow) -> StoreResult<()>;
}

/// Moves the content of messages into packs and back.
pub trait MovePacks {
    /// Moves the content of messages out of their rows and into a pack. Refused if one of them is not
    /// there.
    fn put_pack(&mut self, loop_key: LoopKey, pack: &Pack) -> StoreResult<()>;

    /// Moves the content of the pack that begins with message `first` back into the rows.
    fn take_pack(&mut self, loop_key: LoopKey, first: u32) -> StoreResult<()>;
}

/// What can be done while content is removed.
pub trait StoreRemove:
    StoreScan + WriteReceipts + RemoveSessions + ChangeTexts + RedactMessages + MovePacks
{
}
