//! A step of the fallback, and the candidate that it makes.

use super::prompts::PromptCounts;
use crate::compaction::plan::{ChainTurn, KeptTurns};
use crate::compaction::{CompactionConfig, Summary};
use crate::context::Chain;
use crate::model::{Message, Size};
use crate::store::NewBlock;

/// The step at which only the last turns that fit are kept.
pub(super) const LAST_TURNS: &str = "last_turns";

/// The step at which no complete turn is kept, and texts replace all of them.
pub(super) const NO_TURNS: &str = "no_turns";

/// The text of a context that would be empty otherwise.
const MARKER: &str = "[Earlier turns were left out; `expand` shows them]";

/// One way to compact.
#[derive(Clone)]
pub(super) struct FallbackStep {
    /// The `fallback` of the run; `None` for the first step, as requested.
    pub(super) name: Option<&'static str>,
    pub(super) config: CompactionConfig,
    /// Turns that the recent window takes.
    pub(super) recent: u32,
    /// The pruning of the turns kept at the end.
    pub(super) prune: Option<Prune>,
    /// The source of the text for turns that are not kept.
    pub(super) texts: TextSource,
}

impl FallbackStep {
    /// Returns the first step, as requested.
    pub(super) fn asked(config: &CompactionConfig, recent: u32) -> Self {
        Self {
            name: None,
            config: config.clone(),
            recent,
            prune: None,
            texts: TextSource::Strategy,
        }
    }

    /// Returns the step with the configured tokens for the first summary of the current loop.
    pub(super) fn without_longer_summary(&self) -> Self {
        let mut step = self.clone();
        step.config.fills_window = false;
        step
    }

    /// True if the step keeps only the last turns that fit, or none.
    pub(super) fn is_squeezed(&self) -> bool {
        self.name == Some(LAST_TURNS) || self.is_text_only()
    }

    /// True if the step keeps no complete turn.
    pub(super) fn is_text_only(&self) -> bool {
        self.name == Some(NO_TURNS)
    }
}

/// The source of the text for turns that are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextSource {
    /// The text of the strategy.
    Strategy,
    /// The text of the strategy, or the digest if that text is longer than the config allows.
    Limited,
    /// No text.
    Silent,
    /// A marker that turns were left out: the context would be empty otherwise.
    Marker,
}

impl TextSource {
    /// Returns the summary of a step that does not call the strategy.
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

/// The pruning of the turns kept at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prune {
    /// The first turn that keeps its thinking and its images; `None`: none does.
    pub(super) whole_from: Option<ChainTurn>,
    /// Tokens that a tool result may have; `None`: any number.
    pub(super) output_tokens: Option<u64>,
}

impl Prune {
    /// True if a turn keeps its thinking and its images.
    pub(super) fn keeps_whole(&self, turn: ChainTurn) -> bool {
        self.whole_from.is_some_and(|from| from <= turn)
    }
}

/// The depth of a loop in the chain, and the turns that are kept of it.
pub(super) type PlannedLoop = (usize, KeptTurns);

/// A block that is to be written, and the depth of its loop.
pub(super) struct PlacedBlock {
    pub(super) depth: usize,
    pub(super) block: NewBlock,
}

/// The result of a step, not written yet.
pub(super) struct CompactionCandidate {
    pub(super) step: FallbackStep,
    /// The loops in scope.
    pub(super) planned: Vec<PlannedLoop>,
    pub(super) blocks: Vec<PlacedBlock>,
    /// The chain with the active blocks.
    pub(super) chain: Chain,
    /// The size of the context.
    pub(super) after: Size,
    /// The hidden prompts of people.
    pub(super) prompts: PromptCounts,
}

impl CompactionCandidate {
    /// True if the first step writes no block, and the context is not smaller.
    pub(super) fn changes_nothing(&self, before: Size) -> bool {
        let is_smaller = self.after.tokens < before.tokens;
        self.step.name.is_none() && self.blocks.is_empty() && !is_smaller
    }
}
