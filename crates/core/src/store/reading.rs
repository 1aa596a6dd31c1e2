//! Rows as the hot paths read them: on the way to a context no more than it needs, and texts where they
//! lie; before an append all that it needs at once.

use super::lease::LeaseRow;
use super::rows::{
    Generation, LoopCore, LoopProgress, MessageRow, Point, RunKey, SessionActivity, StoredMessage,
    Tick, TurnRow,
};
use crate::model::Role;

/// What a message says, in its stored form, as it lies in its row.
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
    /// What it can be checked with, if that was asked for.
    pub proof: Option<Proof>,
    /// The interchange form with that text left empty; `None` once redacted or archived.
    pub head: Option<&'a str>,
    /// The largest text.
    pub text: Option<&'a str>,
}

/// What a message can be checked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// What the digest begins with; `None` once redacted.
    pub salt: Option<[u8; 16]>,
    /// SHA-256 of salt and stored bytes.
    pub digest: [u8; 32],
}

/// What a message of a loop says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRef<'a> {
    /// Its place in the loop.
    pub seq: u32,
    /// Its turn group; `None` for an extension before the first.
    pub turn: Option<u32>,
    /// Milliseconds since the epoch; of a read without times it may be missing.
    pub created_at: Option<i64>,
    /// What it says.
    pub message: StoredMessageRef<'a>,
}

impl<'a> MessageRef<'a> {
    /// Returns what a stored message says, with its proof if that is asked for.
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

/// A loop of a chain with its newest block.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopWithBlock {
    /// The loop.
    pub row: LoopCore,
    /// Its block of the highest generation, if the run of that committed and was never undone or
    /// redone.
    pub newest: Option<Generation>,
    /// Whether it has blocks, but only their runs and flips tell which applies.
    pub is_disputed: bool,
}

/// A run without most of what it says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSummary<'a> {
    /// Its key.
    pub key: RunKey,
    /// Where it was made.
    pub point: Point,
    /// When it ended.
    pub tick: Tick,
    /// Which round of compaction it was.
    pub round: u32,
    /// Whether it committed.
    pub is_committed: bool,
    /// Whether it was ever undone or redone.
    pub is_flipped: bool,
    /// Whether it is a compaction that only its provider can read.
    pub is_sealed: bool,
    /// `skip` or `rollup`.
    pub older_loops: &'a str,
}

/// A loop, with what an append has to know of it.
#[derive(Clone, Debug)]
pub struct AppendState {
    /// The loop.
    pub row: LoopCore,
    /// What else of it the append goes on from.
    pub progress: LoopProgress,
    /// Its session.
    pub session: SessionActivity,
    /// Its lease as it was last written.
    pub lease: Option<LeaseRow>,
    /// Its last turn.
    pub last: Option<TurnRow>,
}
