//! The trait of strategies, which make the text of a block.
//!
//! A strategy gets a [`LoopSlice`] and returns a [`Draft`]: the sections of a block before it is stored. The tests of
//! the strategies show how to run one without a store.

use std::collections::BTreeSet;
use std::fmt;

use super::config::CompactionConfig;
use super::cut::cut_tool_result;
use super::notes::SummaryNotes;
use super::one_liner::rollup_of_lines;
use super::slice::{LoopMessage, LoopSlice, ReadError, RollupSlice};
use crate::{AgentMessage, Layout, Turns};

impl fmt::Debug for dyn BlockCompactionStrategy + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockCompactionStrategy({:?})", self.name())
    }
}

/// The error of a strategy.
#[derive(Debug, thiserror::Error)]
pub enum StrategyError {
    /// Turns could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The strategy itself failed.
    #[error("{0}")]
    Failed(String),
}

/// The replacement of the compacted turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The messages; may be empty.
    pub messages: Vec<AgentMessage>,
    /// The turns that the messages summarise; the other turns count as dropped.
    pub turns: BTreeSet<u32>,
    /// Notes on how the summary was made.
    pub notes: SummaryNotes,
}

/// The turns kept at the end, and their changed messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Recent {
    /// The turns.
    pub turns: Turns,
    /// Replaced messages, by the sequence number of the original; `None` drops the message.
    pub replaced: Vec<(u32, Option<AgentMessage>)>,
}

/// A block before it is stored, as a strategy returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// The turns kept unchanged at the start.
    pub first: Option<Turns>,
    /// The turns in between, with their replacement.
    pub compacted: Option<(Turns, Summary)>,
    /// The turns kept at the end.
    pub recent: Option<Recent>,
}

impl Draft {
    /// Returns the notes of the summary.
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

/// A strategy, which makes the block of one loop.
///
/// The messages of a summary must summarise each turn that the strategy lists in [`Summary::turns`]. The ranges of a
/// draft must cover all turns from the first to the last planned one without a gap, and must not separate a call from
/// its result; else the run fails, and no block is written.
///
/// ```
/// use loopstore_model::compaction::{
///     BlockCompactionStrategy, CompactionConfig, LoopSlice, StrategyError, Summary,
/// };
/// use loopstore_model::{Message, Turns};
/// use std::sync::Arc;
///
/// /// A strategy that only counts the removed messages.
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
///         // No turn counts as summarised, since the text mentions none.
///         Ok(Summary { messages: vec![Message::user(text).into()], ..Summary::default() })
///     }
/// }
///
/// let mut config = CompactionConfig::default();
/// config.block_strategy = Some(Arc::new(Gone));
/// ```
pub trait BlockCompactionStrategy: Send + Sync {
    /// Returns the name of the strategy, which is stored with each run and block.
    fn name(&self) -> &str;

    /// True if the strategy runs only code of this library. An attempt with any other strategy is recorded before the
    /// strategy runs, so that it leaves a trace if the process is killed.
    fn is_own(&self) -> bool {
        false
    }

    /// Returns the settings that affect the text of a block, as they are stored with it: a block with other settings is
    /// made again. A strategy with options of its own must append them.
    fn shaping(&self, config: &CompactionConfig) -> String {
        config.shaping()
    }

    /// Returns the turns kept unchanged at the start; the planned ones unless overridden.
    ///
    /// # Errors
    /// Any error ends the strategy; the run is recorded as failed.
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
    /// Any error ends the strategy; the run is recorded as failed.
    fn keep_recent(
        &self,
        slice: &LoopSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Option<Recent>, StrategyError> {
        Ok(cut_recent(slice, config)?)
    }

    /// Returns the replacement of `turns`.
    ///
    /// # Errors
    /// Any error ends the strategy; the run is recorded as failed.
    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError>;

    /// Returns the summary of the loops before the scope, with at most [`CompactionConfig::max_rollup_tokens`]. The
    /// default summary has the lines of the loops' summaries and a line for each answer; if they do not fit, the
    /// oldest lines are left out.
    ///
    /// # Errors
    /// Any error ends the strategy; the run is recorded as failed.
    fn rollup(
        &self,
        slice: &RollupSlice<'_>,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        Ok(rollup_of_lines(slice, config.max_rollup_tokens)?)
    }

    /// Returns the whole block of three sections; the turns between the first and the recent ones are compacted.
    ///
    /// # Errors
    /// Any error ends the strategy; the run is recorded as failed.
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
    let cut = |placed: LoopMessage| {
        cut_tool_result(&placed.message, most).map(|cut| (placed.seq, Some(cut)))
    };
    Ok(Some(Recent {
        turns,
        replaced: long.into_iter().filter_map(cut).collect(),
    }))
}
