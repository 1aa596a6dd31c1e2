//! What a strategy sees: the planned sections of one loop, the active block before, and the turns,
//! read only when asked for.
//!
//! Nothing here knows where turns are kept. In a compaction the store stands behind [`TurnReader`], with
//! no transaction open between two calls; a test gives a strategy messages in memory.

use super::cancel::CancelFlag;
use crate::tokens::TokenCounter;
use crate::{AgentMessage, Layout, LoopId, Message, SessionId, Turns};

/// Turns could not be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ReadError(Box<dyn std::error::Error + Send + Sync>);

impl ReadError {
    /// Wraps what kept a reader from reading.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    #[doc(hidden)]
    pub fn into_inner(self) -> Box<dyn std::error::Error + Send + Sync> {
        self.0
    }
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

/// Reads the turns of one loop. Extensions are never among what it returns.
pub trait TurnReader: Send + Sync {
    /// Returns the id of the loop's session.
    ///
    /// # Errors
    /// If it cannot be read.
    fn session_id(&self) -> Result<SessionId, ReadError>;

    /// Returns the tokens of some turns.
    ///
    /// # Errors
    /// If they cannot be read.
    fn tokens(&self, turns: Turns) -> Result<u64, ReadError>;

    /// Returns the messages of some turns, in order.
    ///
    /// # Errors
    /// If they cannot be read.
    fn messages(&self, turns: Turns) -> Result<Vec<Placed>, ReadError>;

    /// Returns the tool results of some turns that have a text of more than `max_lines` lines.
    ///
    /// # Errors
    /// If they cannot be read.
    fn long_results(&self, turns: Turns, max_lines: usize) -> Result<Vec<Placed>, ReadError> {
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
    /// If it cannot be read.
    fn first_prompt(&self) -> Result<Option<AgentMessage>, ReadError>;

    /// Returns what the active block shows in place of its compacted turns.
    ///
    /// # Errors
    /// If it cannot be read.
    fn earlier_messages(&self) -> Result<Vec<AgentMessage>, ReadError>;

    /// Returns how many bytes of messages were read so far.
    fn bytes_read(&self) -> u64 {
        0
    }
}

/// The active block before a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierBlock {
    /// Its sections.
    pub layout: Layout,
    /// Whether it also stands for the loops before.
    pub is_rollup: bool,
    /// What made its text.
    pub strategy: String,
    /// The configuration that shaped it.
    pub shaping: String,
}

/// One loop of a chain, as a strategy sees it.
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
    /// A loop of which nothing was compacted yet: the one that the agent is in, in the first round. For
    /// who wants to see what a strategy makes of it without a store.
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

    /// Whether this is the loop that the agent is in; the others are earlier ones of its chain.
    pub fn is_current(&self) -> bool {
        self.is_current
    }

    /// Returns the planned sections.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the active block now.
    pub fn before(&self) -> Option<&EarlierBlock> {
        self.before.as_ref()
    }

    /// Returns the number of the run that this is to become, counted over the chain from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the counter that budgets are measured with.
    pub fn counter(&self) -> &dyn TokenCounter {
        self.counter
    }

    /// Returns the flag that is set when nobody wants the text any more.
    pub fn cancel(&self) -> &CancelFlag {
        &self.cancel
    }

    /// Returns the session's id.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn session_id(&self) -> Result<SessionId, ReadError> {
        self.reader.session_id()
    }

    /// Returns the tokens of some turns.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn tokens(&self, turns: Turns) -> Result<u64, ReadError> {
        self.reader.tokens(turns)
    }

    /// Returns the messages of some turns; extensions are left out.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn messages(&self, turns: Turns) -> Result<Vec<Placed>, ReadError> {
        self.reader.messages(turns)
    }

    /// Returns the tool results of some turns that have a text of more than `max_lines` lines.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn long_results(&self, turns: Turns, max_lines: usize) -> Result<Vec<Placed>, ReadError> {
        self.reader.long_results(turns, max_lines)
    }

    /// Returns the loop's first prompt, which need not be among the planned turns: what a person asks, or a
    /// parent agent, not what the harness says in the user's name.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn first_prompt(&self) -> Result<Option<AgentMessage>, ReadError> {
        self.reader.first_prompt()
    }

    /// Returns what the active block now shows in place of its compacted turns.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn before_messages(&self) -> Result<Vec<AgentMessage>, ReadError> {
        self.reader.earlier_messages()
    }

    /// Returns how many bytes of messages were read through this slice.
    pub fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }
}

/// A message that a loop shows, and the turn of the original; `None` for one of a summary.
pub type Shown = (Option<u32>, AgentMessage);

/// The loops that a rollup stands for, oldest first.
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
    pub read: &'a dyn Fn(usize) -> Result<Vec<Shown>, ReadError>,
    /// The strategy of the block that a loop shows; `None` if it shows none.
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

    /// Whether the first of the loops shows the rollup that this one goes on from.
    pub fn extends(&self) -> bool {
        self.extends
    }

    /// Returns the token counter of the store.
    pub fn counter(&self) -> &dyn TokenCounter {
        self.counter
    }

    /// Returns the flag that is set when nobody wants the text any more.
    pub fn cancel(&self) -> &CancelFlag {
        self.cancel
    }

    /// Returns the number that the run would have; they count a chain's committed runs from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Returns the first prompt of the chain's root.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn task(&self) -> Result<Option<String>, ReadError> {
        (self.task)()
    }

    /// Returns what the context shows of a loop now.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn messages(&self, at: usize) -> Result<Vec<Shown>, ReadError> {
        (self.read)(at)
    }
}
