//! The input of a strategy: the planned sections of one loop, its active block, and its turns, which are read on
//! demand.
//!
//! The module does not depend on a store. In a compaction the store implements [`TurnReader`], and no transaction is
//! open between two calls; tests implement it with messages in memory.

use super::cancel::CancelFlag;
use crate::tokens::TokenCounter;
use crate::{AgentMessage, Layout, LoopId, Message, SessionId, Turns};

/// The error of a reader that cannot read turns.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ReadError(Box<dyn std::error::Error + Send + Sync>);

impl ReadError {
    /// Wraps the error of a reader.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    #[doc(hidden)]
    pub fn into_inner(self) -> Box<dyn std::error::Error + Send + Sync> {
        self.0
    }
}

/// A message of a loop with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopMessage {
    /// The turn of the message.
    pub turn: u32,
    /// The sequence number of the message in its loop.
    pub seq: u32,
    /// The message.
    pub message: AgentMessage,
}

/// A reader of the turns of one loop. It never returns extension messages.
pub trait TurnReader: Send + Sync {
    /// Returns the id of the loop's session.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn session_id(&self) -> Result<SessionId, ReadError>;

    /// Returns the tokens of some turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn tokens(&self, turns: Turns) -> Result<u64, ReadError>;

    /// Returns the messages of some turns, in order.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn messages(&self, turns: Turns) -> Result<Vec<LoopMessage>, ReadError>;

    /// Returns the tool results of some turns that have a text of more than `max_lines` lines.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn long_results(&self, turns: Turns, max_lines: usize) -> Result<Vec<LoopMessage>, ReadError> {
        let mut found = self.messages(turns)?;
        found.retain(|placed| match placed.message.message() {
            Some(result @ Message::ToolResult(_)) => {
                result.texts().any(|text| text.lines().count() > max_lines)
            }
            _ => false,
        });
        Ok(found)
    }

    /// Returns the loop's first message with a [`Message::prompt_text`], which need not be among the planned
    /// turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn first_prompt(&self) -> Result<Option<AgentMessage>, ReadError>;

    /// Returns the messages with which the active block replaces its compacted turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn earlier_messages(&self) -> Result<Vec<AgentMessage>, ReadError>;

    /// Returns the number of bytes of messages read so far.
    fn bytes_read(&self) -> u64 {
        0
    }
}

/// The active block of a loop before a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierBlock {
    /// The sections of the block.
    pub layout: Layout,
    /// True if the block also replaces the loops before.
    pub is_rollup: bool,
    /// The strategy that made its text.
    pub strategy: String,
    /// The settings that affected its text ([`CompactionConfig::shaping`](super::CompactionConfig::shaping)).
    pub shaping: String,
}

/// One loop of a chain, the input of a strategy.
pub struct LoopSlice<'a> {
    #[doc(hidden)]
    pub reader: Box<dyn TurnReader + 'a>,
    #[doc(hidden)]
    pub counter: &'a dyn TokenCounter,
    #[doc(hidden)]
    pub cancel: CancelFlag,
    #[doc(hidden)]
    pub loop_id: LoopId,
    #[doc(hidden)]
    pub is_current: bool,
    #[doc(hidden)]
    pub layout: Layout,
    #[doc(hidden)]
    pub before: Option<EarlierBlock>,
    #[doc(hidden)]
    pub round: u32,
}

impl<'a> LoopSlice<'a> {
    /// Returns the slice of a current loop without earlier compactions, to run a strategy without a store.
    pub fn new(
        reader: impl TurnReader + 'a,
        counter: &'a dyn TokenCounter,
        loop_id: LoopId,
        layout: Layout,
    ) -> Self {
        Self {
            reader: Box::new(reader),
            counter,
            cancel: CancelFlag::new(),
            loop_id,
            is_current: true,
            layout,
            before: None,
            round: 1,
        }
    }

    /// Sets the active block.
    #[must_use]
    pub fn with_before(mut self, before: EarlierBlock) -> Self {
        self.before = Some(before);
        self
    }
}

impl LoopSlice<'_> {
    /// Returns the loop's id.
    pub fn loop_id(&self) -> &LoopId {
        &self.loop_id
    }

    /// True for the current loop of the agent; false for an earlier loop of its chain.
    pub fn is_current(&self) -> bool {
        self.is_current
    }

    /// Returns the planned sections.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the active block, if there is one.
    pub fn before(&self) -> Option<&EarlierBlock> {
        self.before.as_ref()
    }

    /// Returns the number of the run, counted over the chain from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the token counter of budgets.
    pub fn counter(&self) -> &dyn TokenCounter {
        self.counter
    }

    /// Returns the flag that is set when the compaction is cancelled.
    pub fn cancel(&self) -> &CancelFlag {
        &self.cancel
    }

    /// Returns the session's id.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn session_id(&self) -> Result<SessionId, ReadError> {
        self.reader.session_id()
    }

    /// Returns the tokens of some turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn tokens(&self, turns: Turns) -> Result<u64, ReadError> {
        self.reader.tokens(turns)
    }

    /// Returns the messages of some turns, without extensions.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn messages(&self, turns: Turns) -> Result<Vec<LoopMessage>, ReadError> {
        self.reader.messages(turns)
    }

    /// Returns the tool results of some turns that have a text of more than `max_lines` lines.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn long_results(
        &self,
        turns: Turns,
        max_lines: usize,
    ) -> Result<Vec<LoopMessage>, ReadError> {
        self.reader.long_results(turns, max_lines)
    }

    /// Returns the loop's first prompt, of a person or a parent agent. It need not be among the planned turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn first_prompt(&self) -> Result<Option<AgentMessage>, ReadError> {
        self.reader.first_prompt()
    }

    /// Returns the messages with which the active block replaces its compacted turns.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn before_messages(&self) -> Result<Vec<AgentMessage>, ReadError> {
        self.reader.earlier_messages()
    }

    /// Returns the number of bytes of messages read through this slice.
    pub fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }
}

/// A message of a loop in a context, with the number of its turn; the turn of a message of a summary is `None`.
pub type ContextMessage = (Option<u32>, AgentMessage);

/// The loops that a rollup replaces, oldest first.
pub struct RollupSlice<'a> {
    #[doc(hidden)]
    pub loops: Vec<LoopId>,
    #[doc(hidden)]
    pub extends: bool,
    #[doc(hidden)]
    pub round: u32,
    #[doc(hidden)]
    pub counter: &'a dyn TokenCounter,
    #[doc(hidden)]
    pub cancel: &'a CancelFlag,
    #[doc(hidden)]
    pub read: &'a dyn Fn(usize) -> Result<Vec<ContextMessage>, ReadError>,
    /// Returns the strategy of the active block of a loop; `None` if it has none.
    #[doc(hidden)]
    pub strategy: &'a dyn Fn(usize) -> Result<Option<String>, ReadError>,
    #[doc(hidden)]
    pub task: &'a dyn Fn() -> Result<Option<String>, ReadError>,
}

impl RollupSlice<'_> {
    /// Returns the loops.
    pub fn loops(&self) -> &[LoopId] {
        &self.loops
    }

    /// True if the first loop has an earlier rollup, which this one extends.
    pub fn extends(&self) -> bool {
        self.extends
    }

    /// Returns the token counter of the store.
    pub fn counter(&self) -> &dyn TokenCounter {
        self.counter
    }

    /// Returns the flag that is set when the compaction is cancelled.
    pub fn cancel(&self) -> &CancelFlag {
        self.cancel
    }

    /// Returns the number of the run, counted over the committed runs of the chain from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the first prompt of the chain's root.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn task(&self) -> Result<Option<String>, ReadError> {
        (self.task)()
    }

    /// Returns the messages of a loop in the current context.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn messages(&self, at: usize) -> Result<Vec<ContextMessage>, ReadError> {
        (self.read)(at)
    }
}
