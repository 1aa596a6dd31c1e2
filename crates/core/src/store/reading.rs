//! Rows as the hot paths read them: a build reads only the columns that it needs, with borrowed texts; an
//! append reads all that it needs at once.

use super::lease::LeaseRow;
use super::rows::{
    Generation, LoopCore, LoopProgress, MessageRow, Point, RunKey, SessionActivity, StoredMessage,
    Tick, TurnRow,
};
use crate::model::Role;

/// A message in its stored form, borrowed from its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredMessageRef<'a> {
    /// Its role.
    pub role: Role,
    /// Its tokens.
    pub tokens: u64,
    /// The size of its JSON.
    pub bytes: u64,
    /// The content block whose text is `text`.
    pub text_block: Option<u32>,
    /// The proof of its content, if requested.
    pub proof: Option<Proof>,
    /// The interchange form with that text left empty; `None` once redacted or archived.
    pub head: Option<&'a str>,
    /// The largest text.
    pub text: Option<&'a str>,
}

/// The values that a message is verified with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The salt at the beginning of the digest's input; `None` once redacted.
    pub salt: Option<[u8; 16]>,
    /// SHA-256 of salt and stored bytes.
    pub digest: [u8; 32],
}

/// A message of a loop, borrowed from its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef<'a> {
    /// Its sequence in the loop.
    pub seq: u32,
    /// Its turn group; `None` for an extension before the first.
    pub turn: Option<u32>,
    /// Milliseconds since the epoch; may be `None` if the read does not ask for times.
    pub created_at: Option<i64>,
    /// The message in its stored form.
    pub message: StoredMessageRef<'a>,
}

impl<'a> MessageRef<'a> {
    /// Borrows a stored message, with its proof if `proofs` is set.
    pub fn of(row: &'a MessageRow, proofs: bool) -> Self {
        let message = row.body.as_stored_ref();
        let proof = message.proof.filter(|_| proofs);
        Self {
            seq: row.seq,
            turn: row.turn,
            created_at: row.created_at,
            message: StoredMessageRef { proof, ..message },
        }
    }
}

impl StoredMessage {
    /// Returns the message for reading.
    pub fn as_stored_ref(&self) -> StoredMessageRef<'_> {
        StoredMessageRef {
            role: self.role,
            tokens: self.tokens,
            bytes: self.bytes,
            text_block: self.text_block,
            proof: Some(Proof {
                salt: self.salt,
                digest: self.digest,
            }),
            head: self.head.as_deref(),
            text: self.text.as_deref(),
        }
    }
}

/// The content of a message that a read needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentNeed {
    /// Head and text.
    Whole,
    /// The head; the text may be left out.
    Head,
    /// Nothing; the message may be left out.
    Nothing,
}

/// A loop of a chain with its newest block.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopWithBlock {
    /// The loop.
    pub row: LoopCore,
    /// The block of the highest generation on the loop, if the block's run committed and was never undone or redone.
    pub newest: Option<Generation>,
    /// True if the active block of the loop must be derived from runs and flips, since `newest` is not known to be
    /// active.
    pub is_disputed: bool,
}

/// A run without most of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSummary<'a> {
    /// Its key.
    pub key: RunKey,
    /// The position of the leaf at the time.
    pub point: Point,
    /// The tick at which it ended.
    pub tick: Tick,
    /// The number of the run among the committed runs of the chain.
    pub round: u32,
    /// True if the run committed.
    pub is_committed: bool,
    /// True if the run was ever undone or redone.
    pub is_flipped: bool,
    /// True if the run says nothing about how contexts are built: a compaction that only its provider can read, or
    /// edits.
    pub has_no_settings: bool,
    /// `skip` or `rollup`.
    pub older_loops: &'a str,
}

/// A loop with everything that an append reads.
#[derive(Clone, Debug)]
pub struct AppendState {
    /// The loop.
    pub row: LoopCore,
    /// The running state that the append continues.
    pub progress: LoopProgress,
    /// Its session.
    pub session: SessionActivity,
    /// Its lease as it was last written.
    pub lease: Option<LeaseRow>,
    /// Its last turn.
    pub last: Option<TurnRow>,
}
