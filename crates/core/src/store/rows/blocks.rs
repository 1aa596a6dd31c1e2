//! Blocks, their messages and coverage.

use std::ops::{Deref, DerefMut};

use crate::model::SealingProvider;

use super::{Blob, BlockKey, Layout, LoopKey, Point, RunKey, Size, StoredMessage, Tick};

/// A block with what is needed to tell whether it is active.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The block.
    pub block: BlockCore,
    /// Where its run was made.
    pub point: Point,
    /// When its run was committed.
    pub tick: Tick,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// On the leaf of its run.
    Current,
    /// On a loop before that.
    Earlier,
    /// It also covers every loop before its own.
    Rollup,
    /// The same, by a compaction that only its provider can read: it is active in contexts for that
    /// provider.
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

    /// Whether it also covers every loop before its own.
    pub fn covers_earlier_loops(self) -> bool {
        matches!(self, Self::Rollup | Self::Sealed(_))
    }

    /// Whether only its provider can read it.
    pub fn is_sealed(self) -> bool {
        matches!(self, Self::Sealed(_))
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// What a chain needs of a block: what it covers, and how much it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCore {
    /// Its key.
    pub key: BlockKey,
    /// The loop that it stands on.
    pub loop_key: LoopKey,
    /// Its number on that loop, from 1.
    pub generation: u32,
    /// The run that wrote it.
    pub run: RunKey,
    /// What it is.
    pub kind: BlockKind,
    /// The rollup that it goes on from.
    pub extends: Option<BlockKey>,
    /// Its sections.
    pub layout: Layout,
    /// Sequences before this one are covered.
    pub through: u32,
    /// What its sections show.
    pub size: Size,
}

/// A row of `blocks`: the core, which can be asked for as if it were the row's own, and what else
/// compacting again and showing need.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRow {
    /// What a chain needs.
    pub core: BlockCore,
    /// Tokens of what it covers.
    pub tokens_covered: u64,
    /// What made the text.
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
    /// Where it stands.
    pub section: Section,
    /// The original that it replaces or quotes.
    pub replaces: Option<u32>,
    /// The loop of the pinned message that it quotes. Its `body` has the size of the quote and the digest
    /// of the original; what it says is read from there ([`shown_message`](crate::store::shown_message)).
    pub quotes: Option<LoopKey>,
    /// What it says; `None`: the original is dropped.
    pub body: Option<StoredMessage>,
}

impl BlockMessage {
    /// Returns the pinned message that it quotes, by loop and sequence.
    pub fn quoted(&self) -> Option<(LoopKey, u32)> {
        self.quotes.zip(self.replaces)
    }
}

/// What happened to a message or a turn that a block covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disposition {
    /// Shown word for word.
    Kept,
    /// Shown with its tool output cut.
    Truncated,
    /// The replacement holds something made from it.
    Summarised,
    /// Nothing of it is shown.
    Dropped,
    /// The whole loop went into a summary that stands on another loop.
    RolledUp,
    /// The provider's compaction stands for it.
    Sealed,
}

impl Disposition {
    /// All of them, in the order of the JSON.
    pub const ALL: [Self; 6] = [
        Self::Kept,
        Self::Truncated,
        Self::Summarised,
        Self::Dropped,
        Self::RolledUp,
        Self::Sealed,
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
        }
    }

    /// Reads the word.
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
    /// What happened.
    pub disposition: Disposition,
}

impl CoverageRow {
    /// Whether a further row covers what follows in the same loop, in the same way.
    #[doc(hidden)]
    pub fn goes_on_with(&self, next: &Self) -> bool {
        let follows = |(one, other): ((u32, u32), (u32, u32))| one.1.saturating_add(1) == other.0;
        self.loop_key == next.loop_key
            && self.disposition == next.disposition
            && self.seqs.zip(next.seqs).is_some_and(follows)
    }
}

/// A block with what belongs to it, as a run writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewBlock {
    /// The row; its key, generation and run are given by the store.
    pub row: BlockRow,
    /// The messages that differ from the originals.
    pub messages: Vec<BlockMessage>,
    /// What happened to what it covers.
    pub coverage: Vec<CoverageRow>,
    /// Blobs that its messages show.
    pub blobs: Vec<Blob>,
}
