//! What makes the text of a block.
//!
//! A strategy gets a [`LoopSlice`]: the planned sections of one loop, the block in force before,
//! and the turns, read only when asked for. No transaction is open meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::config::CompactionConfig;
use super::cut::cut_tool_result;
use super::notes::SummaryNotes;
use super::one_liner::one_liner;
use crate::model::{AgentMessage, LoopId, Message, Role, SessionId, UserMessage};
use crate::store::append::size_through;
use crate::store::{
    self, BlockRow, Layout, LoopKey, Section, SessionStore, StoreError, StoreRead, StoreResult,
    Turns,
};
use crate::tokens::{TokenCounter, estimate_tokens};

/// Why a strategy gave no text.
#[derive(Debug, thiserror::Error)]
pub enum StrategyError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The strategy itself failed.
    #[error("{0}")]
    Failed(String),
}

/// A message of a loop with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its turn.
    pub turn: u32,
    /// Its sequence.
    pub seq: u32,
    /// The message.
    pub message: AgentMessage,
}

/// One loop of a chain, as a strategy sees it.
pub struct LoopSlice<'a> {
    pub(crate) store: &'a dyn SessionStore,
    pub(crate) loop_key: LoopKey,
    pub(crate) loop_id: LoopId,
    pub(crate) is_current: bool,
    pub(crate) layout: Layout,
    pub(crate) before: Option<BlockRow>,
    pub(crate) round: u32,
    /// The sequence after the last that the block will cover.
    pub(crate) through: u32,
    /// Bytes of the messages read so far.
    pub(crate) read: AtomicU64,
}

impl LoopSlice<'_> {
    /// Returns the loop's id.
    pub fn loop_id(&self) -> &LoopId {
        &self.loop_id
    }

    /// Whether this is the loop that the agent is in; the others are earlier ones of its chain.
    pub fn is_current(&self) -> bool {
        self.is_current
    }

    /// Returns the planned sections.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the block that is in force now.
    pub fn before(&self) -> Option<&BlockRow> {
        self.before.as_ref()
    }

    /// Returns the number of the run that this is to become, counted over the chain from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the session's id.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn session_id(&self) -> StoreResult<SessionId> {
        store::read(self.store, |read| {
            let session = read.loop_by_key(self.loop_key)?.session;
            Ok(read.session_by_key(session)?.session_id)
        })
    }

    /// Returns the counter that budgets are measured with.
    pub fn counter(&self) -> &dyn TokenCounter {
        self.store.counter()
    }

    /// Returns the tokens of some turns, from stored totals.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn tokens(&self, turns: Turns) -> StoreResult<u64> {
        store::read(self.store, |read| {
            let before = size_through(read, self.loop_key, turns.first)?;
            let size = size_through(read, self.loop_key, turns.end())?;
            Ok(size.without(before).tokens)
        })
    }

    /// Returns what the block that is in force now shows in place of its compacted turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn before_messages(&self) -> StoreResult<Vec<AgentMessage>> {
        let Some(block) = &self.before else {
            return Ok(Vec::new());
        };
        store::read(self.store, |read| {
            let shown = read.block_messages(block.key)?.into_iter();
            let own = shown.filter(|message| message.section == Section::Compacted);
            own.filter_map(|message| message.body)
                .filter(|body| body.role != Role::Extension)
                .map(|body| {
                    self.count_read(body.bytes);
                    store::decode(read, body)
                })
                .collect()
        })
    }

    /// Returns the loop's first user message, which need not be among the planned turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn first_prompt(&self) -> StoreResult<Option<AgentMessage>> {
        store::read(self.store, |read| {
            let mut prompt = None;
            read.sizes(self.loop_key, 0..self.through, &mut |size| {
                if size.role == Role::User {
                    prompt = Some(size.seq);
                    return Ok(std::ops::ControlFlow::Break(()));
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
            let mut found = None;
            let seqs = prompt.map_or(0..0, |seq| seq..seq + 1);
            read.messages(self.loop_key, seqs, &mut |row| {
                found = Some(store::decode(read, row.body)?);
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
            Ok(found)
        })
    }

    /// Returns how many bytes of messages were read through this slice.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn count_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the messages of some turns; extensions are left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn messages(&self, turns: Turns) -> StoreResult<Vec<Placed>> {
        store::read(self.store, |read| {
            let mut found = Vec::new();
            let seqs = seqs_of(read, self.loop_key, turns, self.through)?;
            read.messages(self.loop_key, seqs, &mut |row| {
                self.count_read(row.body.bytes);
                if let (Some(turn), true) = (row.turn, row.body.role != Role::Extension) {
                    let message = store::decode(read, row.body)?;
                    found.push(Placed {
                        turn,
                        seq: row.seq,
                        message,
                    });
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
            Ok(found)
        })
    }

    /// Returns the tool results of some turns that have a text of more than `max_lines` lines.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn long_results(&self, turns: Turns, max_lines: usize) -> StoreResult<Vec<Placed>> {
        store::read(self.store, |read| {
            let seqs = seqs_of(read, self.loop_key, turns, self.through)?;
            let mut long = Vec::new();
            read.sizes(self.loop_key, seqs, &mut |size| {
                if size.lines.is_some_and(|lines| lines as usize > max_lines) {
                    long.push(size.seq);
                }
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
            let mut found = Vec::new();
            for seq in long {
                read.messages(self.loop_key, seq..seq + 1, &mut |row| {
                    self.count_read(row.body.bytes);
                    let turn = row.turn.unwrap_or_default();
                    let message = store::decode(read, row.body)?;
                    found.push(Placed { turn, seq, message });
                    Ok(std::ops::ControlFlow::Continue(()))
                })?;
            }
            Ok(found)
        })
    }
}

/// Returns the sequences of some turns, none at or after `end`.
pub(crate) fn seqs_of(
    read: &dyn StoreRead,
    loop_key: LoopKey,
    turns: Turns,
    end: u32,
) -> StoreResult<std::ops::Range<u32>> {
    let missing = || StoreError::Damaged(format!("turn {} is missing", turns.first));
    let first = read
        .turn(loop_key, turns.first)?
        .ok_or_else(missing)?
        .first_seq;
    let after = read
        .turn(loop_key, turns.end())?
        .map_or(end, |turn| turn.first_seq);
    Ok(first..after.min(end))
}

/// A message that a loop shows, and the turn of the original; `None` for one of a summary.
pub type Shown = (Option<u32>, AgentMessage);

/// The loops that a rollup stands for, oldest first.
pub struct RollupSlice<'a> {
    pub(crate) loops: Vec<LoopId>,
    pub(crate) extends: bool,
    pub(crate) round: u32,
    pub(crate) counter: &'a dyn TokenCounter,
    pub(crate) read: &'a dyn Fn(usize) -> StoreResult<Vec<Shown>>,
    pub(crate) task: &'a dyn Fn() -> StoreResult<Option<String>>,
}

impl RollupSlice<'_> {
    /// Returns the loops.
    pub fn loops(&self) -> &[LoopId] {
        &self.loops
    }

    /// Whether the first of the loops shows the rollup that this one goes on from.
    pub fn extends(&self) -> bool {
        self.extends
    }

    /// Returns the token counter of the store.
    pub fn counter(&self) -> &dyn TokenCounter {
        self.counter
    }

    /// Returns the number that the run would have; they count a chain's committed runs from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the first prompt of the chain's root.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn task(&self) -> StoreResult<Option<String>> {
        (self.task)()
    }

    /// Returns what the context shows of a loop now.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn messages(&self, at: usize) -> StoreResult<Vec<Shown>> {
        (self.read)(at)
    }
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
/// use loopstore::*;
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
/// # use loopstore::store::{append, session};
/// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
/// # let new = Session::new(id.clone(), "agent");
/// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
/// # monday.status = LoopStatus::Completed;
/// # let loop_key = store::write(&store, |write| {
/// #     let key = session::create_session(write, &new, None, None)?;
/// #     let loop_key = session::create_loop(write, key, &monday)?;
/// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
/// #     let said = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
/// #     append::append(write, loop_key, said.collect(), &HeuristicTokenCounter)?;
/// #     Ok(loop_key)
/// # })?;
/// let mut request = CompactRequest::default();
/// # request.trigger = CompactTrigger::Force;
/// request.config.block_strategy = Arc::new(Gone);
/// let report = compact_session_loops(&store, &id, &request)?;
/// assert_eq!(report.strategy, "gone");
/// let context = build_context_from_session(&store, &id, &BuildOptions::default())?;
/// assert_eq!(context.messages[2], Message::user("[28 messages are left out]").into());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait BlockCompactionStrategy: Send + Sync {
    /// Names the strategy; stored with each run and block.
    fn name(&self) -> &str;

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
pub(crate) fn cut_recent(
    slice: &LoopSlice<'_>,
    config: &CompactionConfig,
) -> StoreResult<Option<Recent>> {
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

/// The first line of a rollup that is made of lines.
const ROLLUP_HEAD: &str = "[Summary of earlier loops]";

fn rollup_of_lines(slice: &RollupSlice<'_>, most: u64) -> StoreResult<Summary> {
    let mut lines: Vec<String> = Vec::new();
    for at in 0..slice.loops().len() {
        for (turn, message) in slice.messages(at)? {
            match message.message() {
                Some(Message::Assistant(answer)) => lines.push(one_liner(answer)),
                Some(said @ Message::User(_)) if turn.is_none() => {
                    lines.extend(said.texts().flat_map(str::lines).map(str::to_owned));
                }
                _ => {}
            }
        }
    }
    lines.retain(|line| line != ROLLUP_HEAD && !line.is_empty());
    let message = |lines: &[String]| {
        AgentMessage::from(Message::user(format!(
            "{ROLLUP_HEAD}\n{}",
            lines.join("\n")
        )))
    };
    // The newest lines that fit: a longer list never costs less.
    let counter = slice.counter();
    let (mut low, mut high) = (0, lines.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if counter.message_tokens(&message(&lines[middle..])) <= most {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let mut summary = Summary::default();
    if low < lines.len() {
        summary.messages.push(message(&lines[low..]));
    }
    Ok(summary)
}

/// The original's strategy: a line for each answer until the tokens are used up.
///
/// Prompts and tool results leave no message. A line costs the estimate of its whole text.
///
/// ```
/// use loopstore::*;
/// use std::sync::Arc;
///
/// # use loopstore::store::{append, session};
/// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
/// # let new = Session::new(id.clone(), "agent");
/// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
/// # monday.status = LoopStatus::Completed;
/// # let loop_key = store::write(&store, |write| {
/// #     let key = session::create_session(write, &new, None, None)?;
/// #     let loop_key = session::create_loop(write, key, &monday)?;
/// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
/// #     let said = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
/// #     append::append(write, loop_key, said.collect(), &HeuristicTokenCounter)?;
/// #     Ok(loop_key)
/// # })?;
/// let mut request = CompactRequest::default();
/// # request.trigger = CompactTrigger::Force;
/// request.config.block_strategy = Arc::new(DefaultBlockCompaction);
/// let report = compact_session_loops(&store, &id, &request)?;
/// assert_eq!(report.strategy, "one-liner");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultBlockCompaction;

impl BlockCompactionStrategy for DefaultBlockCompaction {
    fn name(&self) -> &str {
        "one-liner"
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let mut summary = Summary::default();
        let mut left = config.max_summary_tokens;
        for placed in slice.messages(turns)? {
            let Some(Message::Assistant(answer)) = placed.message.message() else {
                continue;
            };
            let line = one_liner(answer);
            let Some(rest) = left.checked_sub(estimate_tokens(&line)) else {
                break;
            };
            left = rest;
            summary.turns.insert(placed.turn);
            // The answer's own time: a summary must not change with the time it is made at.
            summary
                .messages
                .push(AgentMessage::from(Message::User(UserMessage {
                    content: vec![crate::model::Content::text(line)],
                    timestamp: answer.timestamp.clone(),
                })));
        }
        Ok(summary)
    }
}
