//! What is asked of a build, and what it gives.

use super::{AsOf, ContextFault, SystemPrompt, SystemPrompts, open_calls};
use crate::compaction::{CompactionScope, OlderLoops};
use crate::model::{AgentMessage, LoopId, Role, SealingProvider, SessionId, ToolCall};
use crate::provider::{AsConversation, Conversation};
use crate::store::StoreError;

/// What to build. Options that are not given come from the newest run that is live from the leaf,
/// else from the defaults.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// The leaf; the session's current loop if not given.
    pub leaf: Option<LoopId>,
    /// The moment; now if not given. It names the leaf itself.
    pub as_of: Option<AsOf>,
    /// The provider that the context goes to: its own compaction stands for what is before it. For `None`
    /// no such compaction counts.
    pub provider: Option<SealingProvider>,
    /// Tokens that the messages may have; more is an error.
    pub budget: Option<u64>,
    /// Bytes of JSON that the messages may have; more is an error.
    pub max_bytes: Option<u64>,
    /// What becomes of loops before the scope.
    pub older_loops: Option<OlderLoops>,
    /// The scope, for [`OlderLoops::Skip`].
    pub scope: Option<CompactionScope>,
    /// The system prompts that requests for a provider may begin with.
    pub system_prompts: SystemPrompts,
    /// Whether to leave a manifest: a row that says which messages the context was made of.
    pub record: bool,
    /// Whether to compare each message with its digest; one that does not fit is an error. It is `verify`
    /// for what is shown, and makes a build about half slower, several times where the processor has
    /// no instructions for SHA-256.
    pub check: bool,
}

/// Where a part of a context comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartSection {
    /// The summary of everything up to its loop.
    Rollup,
    /// Kept word for word from the start.
    First,
    /// A summary.
    Compacted,
    /// Kept at the end, long tool outputs cut.
    Recent,
    /// After what the block covers.
    Tail,
    /// No block is active.
    Raw,
    /// The compaction that a provider made in the place of everything up to its loop.
    Sealed,
}

impl PartSection {
    /// Returns the word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rollup => "rollup",
            Self::First => "first",
            Self::Compacted => "compacted",
            Self::Recent => "recent",
            Self::Tail => "tail",
            Self::Raw => "raw",
            Self::Sealed => "sealed",
        }
    }
}

/// Consecutive messages of a context from one section of one loop.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Part {
    /// The loop.
    pub loop_id: LoopId,
    /// The section.
    pub section: PartSection,
    /// The first turn that it stands for.
    pub from_turn: u32,
    /// The last one.
    pub to_turn: u32,
    /// Messages.
    pub messages: u64,
    /// Sum of their counts.
    pub tokens: u64,
}

impl Part {
    /// Whether these messages of the same section come right after.
    pub(super) fn goes_on_with(&self, next: &Self) -> bool {
        (&self.loop_id, self.section) == (&next.loop_id, next.section)
    }
}

/// What the next model call sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    /// The leaf.
    pub leaf: LoopId,
    /// The messages in order.
    pub messages: Vec<AgentMessage>,
    /// Sum of the messages' counts.
    pub tokens: u64,
    /// Sum of the messages' JSON.
    pub bytes: u64,
    /// Where they come from.
    pub parts: Vec<Part>,
    /// What a provider would object to.
    pub faults: Vec<ContextFault>,
    /// The provider that it was built for, if for one.
    pub provider: Option<SealingProvider>,
    /// The message with the compaction of that provider which stands for all before, if one does.
    pub compaction: Option<usize>,
    /// True if the loop of the leaf has not ended: calls of its last answer can still get their results.
    pub in_flight: bool,
    /// The system prompt that a request for a provider begins with.
    pub system: SystemPrompt,
    /// The id of the manifest, if one was left.
    pub manifest: Option<String>,
}

impl AsConversation for Context {
    fn as_conversation(&self) -> Conversation<'_> {
        Conversation {
            system: &self.system.messages,
            is_system_partial: self.system.is_partial,
            messages: &self.messages,
            provider: self.provider,
            compaction: self.compaction,
            in_flight: self.in_flight,
        }
    }
}

impl Context {
    /// Returns the tool calls that wait for their results, in order. A call that can get no result any more,
    /// because a prompt or a later answer follows it or its loop has ended, is not open.
    pub fn open_calls(&self) -> Vec<&ToolCall> {
        open_calls(&self.messages, self.in_flight)
    }

    /// Whether the model is to be called: the last message is not its own, and no call is open.
    pub fn awaits_answer(&self) -> bool {
        let last = self.messages.iter().rev().find_map(AgentMessage::message);
        let is_input = last.is_some_and(|message| message.role() != Role::Assistant);
        is_input && self.open_calls().is_empty()
    }
}

/// Why a context was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store failed, or what was asked for is not there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The context does not fit.
    #[error("the context has {tokens} tokens and {budget} fit; compact it first")]
    NeedsCompaction {
        /// What it has.
        tokens: u64,
        /// What fits.
        budget: u64,
    },
    /// The context does not fit, for its bytes.
    #[error("the context has {bytes} bytes and {budget} fit; compact it first")]
    NeedsFewerBytes {
        /// What it has.
        bytes: u64,
        /// What fits.
        budget: u64,
    },
    /// A loop that is not there.
    #[error("{0}")]
    Invalid(String),
}
