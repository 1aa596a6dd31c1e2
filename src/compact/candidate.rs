//! What a step of the fallback asks for, and what it comes to.

use crate::compaction::plan::{ChainTurn, KeptTurns};
use crate::compaction::{CompactionConfig, Summary};
use crate::context::Chain;
use crate::model::{Message, Size};
use crate::store::NewBlock;

/// The step at which only the last turns that fit are kept.
pub(super) const LAST_TURNS: &str = "last_turns";

/// What a context says that would be empty otherwise.
const MARKER: &str = "[Earlier turns were left out; `expand` shows them]";

/// One way to compact.
#[derive(Clone)]
pub(super) struct FallbackStep {
    /// What the run's `fallback` names; `None` as asked.
    pub(super) name: Option<&'static str>,
    pub(super) config: CompactionConfig,
    /// Turns that the recent window takes.
    pub(super) recent: u32,
    /// How the turns kept at the end are pruned.
    pub(super) prune: Option<Prune>,
    /// What is said of what is not kept.
    pub(super) texts: TextSource,
    /// Whether the first summary of the current loop gets what the kept turns leave free.
    pub(super) fills_window: bool,
}

impl FallbackStep {
    /// Compacts as asked.
    pub(super) fn asked(config: &CompactionConfig, recent: u32) -> Self {
        Self {
            name: None,
            config: config.clone(),
            recent,
            prune: None,
            texts: TextSource::Strategy,
            fills_window: config.fills_window,
        }
    }

    /// Whether it keeps no more than the last turns that fit.
    pub(super) fn is_squeezed(&self) -> bool {
        self.name == Some(LAST_TURNS)
    }
}

/// What is said of what is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextSource {
    /// What the strategy says.
    Strategy,
    /// The same, but the digest stands in for each text that is longer than the config allows.
    Limited,
    /// Nothing.
    Silent,
    /// That something was left out: there would be no context otherwise.
    Marker,
}

impl TextSource {
    /// Returns what stands in the place of turns of which nothing is said.
    pub(super) fn unsaid(self) -> Option<Summary> {
        let messages = match self {
            Self::Strategy | Self::Limited => return None,
            Self::Silent => Vec::new(),
            Self::Marker => vec![Message::user(MARKER).into()],
        };
        Some(Summary {
            messages,
            ..Summary::default()
        })
    }
}

/// How the turns kept at the end are pruned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prune {
    /// The first turn that keeps its thinking and its images; `None`: none does.
    pub(super) whole_from: Option<ChainTurn>,
    /// Tokens that a tool result may have; `None`: any number.
    pub(super) output_tokens: Option<u64>,
}

impl Prune {
    /// Whether a turn keeps its thinking and its images.
    pub(super) fn keeps_whole(&self, turn: ChainTurn) -> bool {
        self.whole_from.is_some_and(|from| from <= turn)
    }
}

/// A loop of the chain, and what is kept of it.
pub(super) type PlannedLoop = (usize, KeptTurns);

/// A block that is to be written, and the place of its loop.
pub(super) struct PlacedBlock {
    pub(super) depth: usize,
    pub(super) block: NewBlock,
}

/// What a step comes to; nothing of it is written yet.
pub(super) struct Candidate {
    pub(super) step: FallbackStep,
    /// The loops in scope.
    pub(super) planned: Vec<PlannedLoop>,
    pub(super) blocks: Vec<PlacedBlock>,
    /// The chain with the active blocks.
    pub(super) chain: Chain,
    /// The size of the context.
    pub(super) after: Size,
}

impl Candidate {
    /// Whether nothing is written as asked, and the context is no smaller for it.
    pub(super) fn changes_nothing(&self, before: Size) -> bool {
        let is_smaller = self.after.tokens < before.tokens;
        self.step.name.is_none() && self.blocks.is_empty() && !is_smaller
    }
}
