//! Blocks, their messages and coverage.

use std::ops::{Deref, DerefMut};

use crate::model::SealingProvider;

use super::{Blob, BlockKey, Layout, LoopKey, Point, RunKey, Size, StoredMessage, Tick};

/// A block with the position and the tick of its run, which decide if it is active.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The block.
    pub block: BlockCore,
    /// The position at which its run was made.
    pub point: Point,
    /// The tick at which the run was committed.
    pub tick: Tick,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// On the leaf of its run.
    Current,
    /// On an earlier loop.
    Earlier,
    /// A summary that also covers every loop before its own.
    Rollup,
    /// A compaction that only its provider can read, over every loop before its own too: it is active
    /// in contexts for that provider.
    Sealed(SealingProvider),
}

impl BlockKind {
    const ALL: [Self; 5] = [
        Self::Current,
        Self::Earlier,
        Self::Rollup,
        Self::Sealed(SealingProvider::OpenAi),
        Self::Sealed(SealingProvider::Anthropic),
    ];

    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Earlier => "earlier",
            Self::Rollup => "rollup",
            Self::Sealed(SealingProvider::OpenAi) => "sealed:openai",
            Self::Sealed(SealingProvider::Anthropic) => "sealed:anthropic",
        }
    }

    /// True if a block of this kind also covers every loop before its own.
    pub fn covers_earlier_loops(self) -> bool {
        matches!(self, Self::Rollup | Self::Sealed(_))
    }

    /// True if only a provider can read a block of this kind.
    pub fn is_sealed(self) -> bool {
        matches!(self, Self::Sealed(_))
    }

    /// Returns the value for a word in SQL and JSON.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The part of a block that a chain needs: its coverage and the sizes of its sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCore {
    /// Its key.
    pub key: BlockKey,
    /// The loop of the block.
    pub loop_key: LoopKey,
    /// Its number on that loop, from 1.
    pub generation: u32,
    /// The run that wrote it.
    pub run: RunKey,
    /// The kind.
    pub kind: BlockKind,
    /// The rollup that it extends.
    pub extends: Option<BlockKey>,
    /// Its sections.
    pub layout: Layout,
    /// The sequence after the last covered message.
    pub through: u32,
    /// The size of its sections, with kept messages as they were recorded.
    pub size: Size,
    /// The ids of the runs with edits that its text was made with, in order. The block is active only while these are
    /// the live ones.
    pub edits: Vec<String>,
}

/// A row of `blocks`: the core, to which the row dereferences, and the columns that only later
/// compactions and reports need.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRow {
    /// The part that a chain needs.
    pub core: BlockCore,
    /// The tokens of the messages that it covers.
    pub tokens_covered: u64,
    /// The strategy that made the text.
    pub strategy: String,
    /// The configuration that shaped it.
    pub shaping: String,
    /// ISO-8601 text.
    pub created_at: String,
    /// Fields of a foreign block.
    pub extra: Option<String>,
}

impl Deref for BlockRow {
    type Target = BlockCore;

    fn deref(&self) -> &BlockCore {
        &self.core
    }
}

impl DerefMut for BlockRow {
    fn deref_mut(&mut self) -> &mut BlockCore {
        &mut self.core
    }
}

/// A section that has messages of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `keep_compacted`.
    Compacted,
    /// `keep_recent`.
    Recent,
}

/// A row of `block_messages`.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockMessage {
    /// The section of the message.
    pub section: Section,
    /// The original that it replaces or quotes.
    pub replaces: Option<u32>,
    /// The loop of the pinned message that it quotes. Its `body` has the size of the quote and the digest
    /// of the original; the text is read from the original ([`shown_message`](crate::store::shown_message)).
    pub quotes: Option<LoopKey>,
    /// The message; `None` if the original is dropped.
    pub body: Option<StoredMessage>,
}

impl BlockMessage {
    /// Returns the pinned message that it quotes, by loop and sequence.
    pub fn quoted(&self) -> Option<(LoopKey, u32)> {
        self.quotes.zip(self.replaces)
    }
}

/// The treatment of a message or a turn that a block covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disposition {
    /// Shown word for word.
    Kept,
    /// Shown with its tool output cut.
    Truncated,
    /// The replacement summarises it.
    Summarised,
    /// Nothing of it is shown.
    Dropped,
    /// The whole loop is part of a summary on another loop.
    RolledUp,
    /// A provider's compaction replaces it.
    Sealed,
    /// An edit removed it before the summary was made.
    Removed,
}

impl Disposition {
    /// All dispositions, in the order of the JSON.
    pub const ALL: [Self; 7] = [
        Self::Kept,
        Self::Truncated,
        Self::Summarised,
        Self::Dropped,
        Self::RolledUp,
        Self::Sealed,
        Self::Removed,
    ];

    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Truncated => "truncated",
            Self::Summarised => "summarised",
            Self::Dropped => "dropped",
            Self::RolledUp => "rolled_up",
            Self::Sealed => "sealed",
            Self::Removed => "removed",
        }
    }

    /// Returns the value for a word in SQL and JSON.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|disposition| disposition.as_str() == word)
    }
}

/// A row of `coverage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverageRow {
    /// The loop that is covered.
    pub loop_key: LoopKey,
    /// Sequences, both ends inclusive; `None` for a loop without messages.
    pub seqs: Option<(u32, u32)>,
    /// Turns, both ends inclusive.
    pub turns: Option<(u32, u32)>,
    /// The treatment of the messages.
    pub disposition: Disposition,
}

impl CoverageRow {
    /// True if `next` covers the messages that follow in the same loop, with the same disposition.
    #[doc(hidden)]
    pub fn goes_on_with(&self, next: &Self) -> bool {
        let follows = |(one, other): ((u32, u32), (u32, u32))| one.1.saturating_add(1) == other.0;
        self.loop_key == next.loop_key
            && self.disposition == next.disposition
            && self.seqs.zip(next.seqs).is_some_and(follows)
    }
}

/// A block with its messages, coverage and blobs, as a run writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewBlock {
    /// The row; its key, generation and run are given by the store.
    pub row: BlockRow,
    /// The messages that differ from the originals.
    pub messages: Vec<BlockMessage>,
    /// The treatment of everything that the block covers.
    pub coverage: Vec<CoverageRow>,
    /// Blobs that its messages show.
    pub blobs: Vec<Blob>,
}
