//! What makes the text of a block.
//!
//! A strategy gets a [`LoopSlice`] and gives back a [`Draft`]: the sections of a block before anything is
//! stored. Who wants to see one work without a store reads the tests beside the strategies.

use std::collections::BTreeSet;
use std::fmt;

use super::config::CompactionConfig;
use super::cut::cut_tool_result;
use super::notes::SummaryNotes;
use super::one_liner::rollup_of_lines;
use super::slice::{LoopSlice, Placed, ReadError, RollupSlice};
use crate::{AgentMessage, Layout, Turns};

impl fmt::Debug for dyn BlockCompactionStrategy + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockCompactionStrategy({:?})", self.name())
    }
}

/// Why a strategy gave no text.
#[derive(Debug, thiserror::Error)]
pub enum StrategyError {
    /// Turns could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The strategy itself failed.
    #[error("{0}")]
    Failed(String),
}

/// What stands in place of the compacted turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The messages; may be none.
    pub messages: Vec<AgentMessage>,
    /// The turns that something in the messages was made from; the others are dropped.
    pub turns: BTreeSet<u32>,
    /// How it was made.
    pub notes: SummaryNotes,
}

/// The turns kept at the end, and those of their messages that are not shown as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Recent {
    /// The turns.
    pub turns: Turns,
    /// Replaced messages, by the sequence of the original; `None` drops it.
    pub replaced: Vec<(u32, Option<AgentMessage>)>,
}

/// A block as a strategy makes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// Turns kept word for word.
    pub first: Option<Turns>,
    /// The turns in between, with their replacement.
    pub compacted: Option<(Turns, Summary)>,
    /// Turns kept at the end.
    pub recent: Option<Recent>,
}

impl Draft {
    /// Returns how its summary was made.
    pub fn notes(&self) -> Option<&SummaryNotes> {
        self.compacted.as_ref().map(|(_, summary)| &summary.notes)
    }

    /// Returns the sections.
    pub fn layout(&self) -> Layout {
        Layout {
            first: self.first,
            compacted: self.compacted.as_ref().map(|(turns, _)| *turns),
            recent: self.recent.as_ref().map(|recent| recent.turns),
        }
    }
}

/// Makes the block of one loop.
///
/// A strategy must be deterministic in what it says of coverage: a turn that it names in
/// [`Summary::turns`] must have something made from it in the messages. Ranges that do not follow
/// each other from the loop's first turn to its last planned one, or that part a call from its
/// result, fail the run before anything is written.
///
/// ```
/// use loopstore_model::compaction::{
///     BlockCompactionStrategy, CompactionConfig, LoopSlice, StrategyError, Summary,
/// };
/// use loopstore_model::{Message, Turns};
/// use std::sync::Arc;
///
/// /// Says only how much is gone.
/// struct Gone;
///
/// impl BlockCompactionStrategy for Gone {
///     fn name(&self) -> &str {
///         "gone"
///     }
///
///     fn keep_compacted(
///         &self,
///         slice: &LoopSlice<'_>,
///         turns: Turns,
///         _: &CompactionConfig,
///     ) -> Result<Summary, StrategyError> {
///         let text = format!("[{} messages are left out]", slice.messages(turns)?.len());
///         // No turn counts as summarised: the text says nothing of any.
///         Ok(Summary { messages: vec![Message::user(text).into()], ..Summary::default() })
///     }
/// }
///
/// let mut config = CompactionConfig::default();
/// config.block_strategy = Some(Arc::new(Gone));
/// ```
pub trait BlockCompactionStrategy: Send + Sync {
    /// Names the strategy; stored with each run and block.
    fn name(&self) -> &str;

    /// Whether it runs nothing but code of this library. An attempt with another one is noted before the
    /// strategy is asked, so that it leaves a trace if the process is killed.
    fn is_own(&self) -> bool {
        false
    }

    /// Returns what shapes the text of a block, as it is stored with it: a block whose shaping is
    /// another one is made anew. A strategy with options of its own adds them.
    fn shaping(&self, config: &CompactionConfig) -> String {
        config.shaping()
    }

    /// Returns the turns kept word for word; the planned ones unless overridden.
    ///
    /// # Errors
    /// What keeps the strategy from going on; the run fails with it.
    fn keep_first(
        &self,
        slice: &LoopSlice<'_>,
        _config: &CompactionConfig,
    ) -> Result<Option<Turns>, StrategyError> {
        Ok(slice.layout().first)
    }

    /// Returns the turns kept at the end: the planned ones, each text of a tool result cut to
    /// [`CompactionConfig::tool_output_max_lines`], unless overridden.
    ///
    /// # Errors
    /// What keeps the strategy from going on; the run fails with it.
    fn keep_recent(
        &self,
        slice: &LoopSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Option<Recent>, StrategyError> {
        Ok(cut_recent(slice, config)?)
    }

    /// Returns what stands in place of `turns`.
    ///
    /// # Errors
    /// What keeps the strategy from going on; the run fails with it.
    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError>;

    /// Returns the summary of the loops before the scope, of at most
    /// [`CompactionConfig::max_rollup_tokens`]: unless overridden, the lines of the summaries that
    /// they show and a line for each answer, the newest that fit.
    ///
    /// # Errors
    /// What keeps the strategy from going on; the run fails with it.
    fn rollup(
        &self,
        slice: &RollupSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Ok(rollup_of_lines(slice, config.max_rollup_tokens)?)
    }

    /// Makes the whole block from the three sections; what lies between the first and the recent
    /// turns is compacted.
    ///
    /// # Errors
    /// What keeps the strategy from going on; the run fails with it.
    fn compact(
        &self,
        slice: &LoopSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Draft, StrategyError> {
        let first = self.keep_first(slice, config)?;
        let recent = self.keep_recent(slice, config)?;
        let from = first.map_or(0, Turns::end);
        let to = recent
            .as_ref()
            .map_or(slice.layout().end(), |recent| recent.turns.first);
        let compacted = match Turns::of(from..to) {
            Some(turns) => Some((turns, self.keep_compacted(slice, turns, config)?)),
            None => None,
        };
        Ok(Draft {
            first,
            compacted,
            recent,
        })
    }
}

/// Returns the turns that the plan keeps at the end, each text of a tool result cut to
/// [`CompactionConfig::tool_output_max_lines`].
#[doc(hidden)]
pub fn cut_recent(
    slice: &LoopSlice<'_>,
    config: &CompactionConfig,
) -> Result<Option<Recent>, ReadError> {
    let Some(turns) = slice.layout().recent else {
        return Ok(None);
    };
    let most = config.tool_output_max_lines;
    let long = slice.long_results(turns, most)?;
    let cut =
        |placed: Placed| cut_tool_result(&placed.message, most).map(|cut| (placed.seq, Some(cut)));
    Ok(Some(Recent {
        turns,
        replaced: long.into_iter().filter_map(cut).collect(),
    }))
}
