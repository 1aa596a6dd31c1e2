//! What a step of the fallback asks for, and what it comes to.

use crate::compaction::CompactionConfig;
use crate::compaction::plan::KeptTurns;
use crate::context::Chain;
use crate::model::Size;
use crate::store::NewBlock;

/// The step at which only the last turns that fit are kept.
pub(super) const LAST_TURNS: &str = "last_turns";

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
    /// Whether anything is said of what is not kept.
    pub(super) texts: bool,
}

impl FallbackStep {
    /// Compacts as asked.
    pub(super) fn asked(config: &CompactionConfig, recent: u32) -> Self {
        Self {
            name: None,
            config: config.clone(),
            recent,
            prune: None,
            texts: true,
        }
    }

    /// Whether it keeps no more than the last turns that fit.
    pub(super) fn is_squeezed(&self) -> bool {
        self.name == Some(LAST_TURNS)
    }
}

/// How the turns kept at the end are pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prune {
    /// Tokens that a tool result may have; `None`: any number.
    pub(super) output_tokens: Option<u64>,
    /// Whether the last turn loses its images too.
    pub(super) last_images: bool,
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
