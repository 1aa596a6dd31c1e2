//! Reads everything that is stored, row by row, for `verify`.
//!
//! Lists contain keys only and each row is read by itself, so that a row which cannot be read is one
//! finding and the rest is still checked.

use std::ops::Range;

use super::audit::AuditChain;
use super::error::StoreResult;
use super::packs::PackRow;
use super::rows::{
    BlockKey, BlockRow, EditRow, FlipKey, FlipRow, HideKey, HideRow, ImportNote, LoopKey,
    ManifestKey, ManifestRow, PinKey, PinRow, Redaction, RunKey, RunRow, SessionKey, SourceKey,
    SourceRow, StoredBlob,
};
use super::{ReceiptRow, StoreRead};

/// The number of messages that [`ScanPacks::unpacked`] reads at most.
pub const MOST_UNPACKED: u32 = 4096;

/// The message or block that shows a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobOwner {
    /// A message, by its loop and sequence.
    Message(LoopKey, u32),
    /// The messages of a block.
    Block(BlockKey),
}

/// The place of a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePlace {
    /// A message, by its loop and sequence.
    InLoop(LoopKey, u32),
    /// A message of a block, by its place there.
    InBlock(BlockKey, u32),
}

/// The form in which a text is redacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// As plain text.
    Text,
    /// As JSON.
    Json,
    /// As JSON in which the ids of sessions and loops stay.
    Meta,
    /// As the key of an append: a key with a secret is replaced whole, by a digest under which the append is
    /// found again.
    AppendKey,
    /// The text of an edit, JSON if it is the arguments of a call. It is changed with its edit.
    Edit,
    /// Not redacted: an id.
    Id,
}

/// A text beside the messages.
#[derive(Clone, Copy, Debug)]
pub struct TextCell<'a> {
    /// The table and the column of the text.
    pub place: &'static str,
    /// The form in which the text is redacted.
    pub form: TextForm,
    /// The text.
    pub text: &'a str,
}

/// The sessions whose loops continue, or are continued by, loops of one session. Each list is in the order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuations {
    /// The sessions that continue a loop of this session.
    pub by: Vec<SessionKey>,
    /// The sessions of which this session continues a loop.
    pub of: Vec<SessionKey>,
}

/// Reads all rows of sessions.
pub trait ScanSessions {
    /// Returns the keys of all sessions.
    fn session_keys(&self) -> StoreResult<Vec<SessionKey>>;

    /// Returns the sessions that continue a loop of this one, and the sessions of which this one continues a loop.
    fn continuations(&self, session: SessionKey) -> StoreResult<Continuations>;

    /// Visits every text of a session outside its messages.
    fn texts(
        &self,
        session: SessionKey,
        visit: &mut dyn FnMut(TextCell<'_>) -> StoreResult<()>,
    ) -> StoreResult<()>;
}

/// Reads all rows of loops.
pub trait ScanLoops {
    /// Returns the keys of a session's loops in the order of their creation.
    fn loop_keys(&self, session: SessionKey) -> StoreResult<Vec<LoopKey>>;
}

/// Reads all rows of messages.
pub trait ScanMessages {
    /// Returns the first number from `from` on with which a turn is stored.
    fn next_turn(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<u32>>;

    /// Returns the first sequence from `from` on with which a message is stored.
    fn next_message(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<u32>>;

    /// Returns the remainder of a redacted message; `None` if it was not redacted.
    fn redaction(&self, place: MessagePlace) -> StoreResult<Option<Redaction>>;
}

/// Reads all rows of blobs.
pub trait ScanBlobs {
    /// Returns the names of the blobs that are recorded for an owner.
    fn blobs_of(&self, owner: BlobOwner) -> StoreResult<Vec<[u8; 32]>>;

    /// Returns the first key of a blob after `after`.
    fn next_blob(&self, after: i64) -> StoreResult<Option<i64>>;

    /// Returns the blob with this key.
    fn blob_row(&self, key: i64) -> StoreResult<StoredBlob>;
}

/// Reads all rows of compaction runs, their undos and redos.
pub trait ScanRuns {
    /// Returns the keys of a session's runs in order.
    fn run_keys(&self, session: SessionKey) -> StoreResult<Vec<RunKey>>;

    /// Returns a run and its stored digest; the digest is `None` while the run is open.
    fn run_and_digest(&self, key: RunKey) -> StoreResult<(RunRow, Option<[u8; 32]>)>;

    /// Returns the stored digests of a run's blocks, in the order of their keys, then those of its edits in order.
    fn part_digests(&self, run: RunKey) -> StoreResult<Vec<[u8; 32]>>;

    /// Returns the keys of a session's undos and redos in order.
    fn flip_keys(&self, session: SessionKey) -> StoreResult<Vec<FlipKey>>;

    /// Returns an undo or redo and its stored digest.
    fn flip_and_digest(&self, key: FlipKey) -> StoreResult<(FlipRow, [u8; 32])>;
}

/// Reads all rows of edits.
pub trait ScanEdits {
    /// Returns the edits of a run in order, each with its stored digest.
    fn edits_and_digests(&self, run: RunKey) -> StoreResult<Vec<(EditRow, [u8; 32])>>;

    /// Returns the packed edits of a run; `None` without edits.
    fn packed_edits_of_run(&self, run: RunKey) -> StoreResult<Option<Vec<u8>>>;
}

/// Reads all rows of pins.
pub trait ScanPins {
    /// Returns the keys of a session's pins in order.
    fn pin_keys(&self, session: SessionKey) -> StoreResult<Vec<PinKey>>;

    /// Returns a pin and its stored digest.
    fn pin_and_digest(&self, key: PinKey) -> StoreResult<(PinRow, [u8; 32])>;
}

/// Reads all rows of the hides of sessions.
pub trait ScanHides {
    /// Returns the keys of a session's hides, in order.
    fn hide_keys(&self, session: SessionKey) -> StoreResult<Vec<HideKey>>;

    /// Returns a hide and its stored digest.
    fn hide_and_digest(&self, key: HideKey) -> StoreResult<(HideRow, [u8; 32])>;
}

/// Reads all rows of blocks.
pub trait ScanBlocks {
    /// Returns the keys of the blocks on a loop, oldest generation first.
    fn block_keys(&self, loop_key: LoopKey) -> StoreResult<Vec<BlockKey>>;

    /// Returns a block and its stored digest.
    fn block_and_digest(&self, key: BlockKey) -> StoreResult<(BlockRow, [u8; 32])>;
}

/// Reads all rows of manifests.
pub trait ScanManifests {
    /// Returns the keys of a session's manifests in order.
    fn manifest_keys(&self, session: SessionKey) -> StoreResult<Vec<ManifestKey>>;

    /// Returns a manifest and its stored digest.
    fn manifest_and_digest(&self, key: ManifestKey) -> StoreResult<(ManifestRow, [u8; 32])>;
}

/// Reads all rows of the audit chain.
pub trait ScanAudit {
    /// Returns the audit chain of a session.
    fn audit_chain(&self, session: SessionKey) -> StoreResult<AuditChain>;

    /// Returns the audit chain of all receipts; where tenants are kept apart, one of each.
    fn receipt_chains(&self) -> StoreResult<Vec<AuditChain>>;

    /// Returns the compressed content of a head; `None` if it is not stored here.
    fn head(&self, sha256: &[u8; 32]) -> StoreResult<Option<Vec<u8>>>;
}

/// Reads all rows of imports and kept files.
pub trait ScanSources {
    /// Returns the keys of the notes of a session's imports in order.
    fn import_keys(&self, session: SessionKey) -> StoreResult<Vec<i64>>;

    /// Returns the note of an import and its stored digest.
    fn import_and_digest(&self, key: i64) -> StoreResult<(ImportNote, [u8; 32])>;

    /// Returns the keys of all kept files.
    fn source_keys(&self) -> StoreResult<Vec<SourceKey>>;

    /// Returns the sessions that a kept file contains messages of.
    fn sessions_of(&self, source: SourceKey) -> StoreResult<Vec<SessionKey>>;

    /// Returns the kept file with this key.
    fn source_row(&self, key: SourceKey) -> StoreResult<SourceRow>;
}

/// Reads all rows of packs of archived messages.
pub trait ScanPacks {
    /// Returns the pack that holds an archived message.
    fn pack_at(&self, loop_key: LoopKey, seq: u32) -> StoreResult<Option<PackRow>>;

    /// Returns the first pack that begins at `from` or later.
    fn next_pack(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<PackRow>>;

    /// Returns the compressed content of the pack that begins with message `first`.
    fn pack_content(&self, loop_key: LoopKey, first: u32) -> StoreResult<Vec<u8>>;

    /// Returns the fields that the views show of archived messages, by sequence.
    fn packed_heads(&self, loop_key: LoopKey, seqs: Range<u32>) -> StoreResult<Vec<(u32, String)>>;

    /// Returns the first consecutive messages from `from` on whose rows contain their content, at most
    /// [`MOST_UNPACKED`] of them.
    fn unpacked(&self, loop_key: LoopKey, from: u32) -> StoreResult<Option<Range<u32>>>;
}

/// Reads all rows of receipts.
pub trait ScanReceipts {
    /// Returns all receipts in order.
    fn receipts(&self) -> StoreResult<Vec<ReceiptRow>>;
}

/// The reads of `verify` within one snapshot, in addition to [`StoreRead`].
pub trait StoreScan:
    StoreRead
    + ScanSessions
    + ScanLoops
    + ScanMessages
    + ScanBlobs
    + ScanRuns
    + ScanEdits
    + ScanPins
    + ScanHides
    + ScanBlocks
    + ScanManifests
    + ScanAudit
    + ScanSources
    + ScanPacks
    + ScanReceipts
{
    /// Describes rows without an owner, at most `limit` of each table.
    fn strays(&self, limit: u32) -> StoreResult<Vec<String>>;
}
