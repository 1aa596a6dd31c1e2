//! References to turns, and the options of a new loop.

use crate::model::{ContinuationKind, LoopId};

/// A turn of a loop, by position from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRef {
    /// The loop.
    pub loop_id: LoopId,
    /// The turn.
    pub turn: u32,
    /// The last message of the turn to include, by its sequence in the loop; the whole turn if `None`.
    pub seq: Option<u32>,
}

impl TurnRef {
    /// Refers to turn `turn` of loop `loop_id`.
    pub fn new(loop_id: impl Into<String>, turn: u32) -> Self {
        Self {
            loop_id: LoopId::of(loop_id),
            turn,
            seq: None,
        }
    }

    /// Refers to turn `turn` of loop `loop_id` up to its message `seq`, counted in the loop.
    pub fn within(loop_id: impl Into<String>, turn: u32, seq: u32) -> Self {
        Self {
            seq: Some(seq),
            ..Self::new(loop_id, turn)
        }
    }
}

/// The options of a new loop, for [`SessionHandle::begin_loop`](crate::SessionHandle::begin_loop).
///
/// ```
/// use loopstore::{LoopId, LoopSpec, Message, Store};
///
/// let chat = Store::in_memory()?.session("weather")?;
/// chat.append([Message::user("Will it rain?"), Message::assistant("No.")])?;
/// let id = LoopId::new("clean-slate")?;
/// // A start that sees nothing of what was before.
/// chat.begin_loop(LoopSpec::fresh().id(id))?;
/// chat.append([Message::user("What is the capital of France?")])?;
/// assert_eq!(chat.context()?.messages.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct LoopSpec {
    pub(super) id: Option<LoopId>,
    pub(super) is_fresh: bool,
    pub(super) kind: Option<ContinuationKind>,
    pub(super) agent: Option<String>,
}

impl LoopSpec {
    /// Returns a loop that continues the handle's line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a loop without a parent: its context begins empty.
    pub fn fresh() -> Self {
        Self {
            is_fresh: true,
            ..Self::default()
        }
    }

    /// Sets the id of the loop; the default is the next free `loop-N`.
    pub fn id(mut self, id: LoopId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the relation of the loop to its parent.
    pub fn kind(mut self, kind: ContinuationKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Sets the agent that runs.
    pub fn agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }
}
