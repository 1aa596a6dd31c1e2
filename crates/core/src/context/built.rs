//! The options of a build, and its result.

use super::{AsOf, ContextFault, SystemPrompt, SystemPrompts, open_calls};
use crate::compaction::{CompactionScope, OlderLoops};
use crate::model::{AgentMessage, LoopId, Role, SealingProvider, SessionId, ToolCall};
use crate::provider::context_management::ContextManagement;
use crate::provider::{AsConversation, Conversation};
use crate::store::StoreError;

/// The options of a build. A missing option has the value of the newest run that is live from the leaf, or the
/// default if there is no such run.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// The leaf; the session's current loop if `None`.
    pub leaf: Option<LoopId>,
    /// The moment; now if `None`. The moment determines the leaf.
    pub as_of: Option<AsOf>,
    /// The provider that the context is sent to. That provider's own compaction replaces the messages before it. If
    /// `None`, no compaction made by a provider is active.
    pub provider: Option<SealingProvider>,
    /// The most tokens of the messages; if they have more, the build fails.
    pub budget: Option<u64>,
    /// The most bytes of JSON of the messages; if they have more, the build fails.
    pub max_bytes: Option<u64>,
    /// The treatment of loops before the scope.
    pub older_loops: Option<OlderLoops>,
    /// The scope, for [`OlderLoops::Skip`].
    pub scope: Option<CompactionScope>,
    /// The system prompts that requests for a provider may begin with.
    pub system_prompts: SystemPrompts,
    /// The content that Anthropic clears from requests that are written for it from the context; nothing by default.
    pub context_management: ContextManagement,
    /// True to write a manifest: a row that lists the messages that the context was made of.
    pub record: bool,
    /// True to compare each message with its digest; a message that does not match is an error. The check is
    /// that of `verify`, for the shown messages. A build takes about half as long again, and several times
    /// as long where the processor has no instructions for SHA-256.
    pub check: bool,
}

/// The section that a part of a context comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartSection {
    /// The summary of everything up to its loop.
    Rollup,
    /// The turns kept word for word at the start.
    First,
    /// A summary.
    Compacted,
    /// The turns kept at the end, with long tool outputs cut.
    Recent,
    /// The turns after those that the block covers.
    Tail,
    /// The turns of a loop without an active block.
    Raw,
    /// The compaction of a provider, which replaces everything up to its loop.
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
    /// The first turn that the messages of the part show or replace.
    pub from_turn: u32,
    /// The last turn that the messages of the part show or replace.
    pub to_turn: u32,
    /// The number of messages.
    pub messages: u64,
    /// The sum of their token counts.
    pub tokens: u64,
}

impl Part {
    /// True if `next` is of the same section of the same loop.
    pub(super) fn goes_on_with(&self, next: &Self) -> bool {
        (&self.loop_id, self.section) == (&next.loop_id, next.section)
    }
}

/// The messages that the next model call sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The session.
    pub session: SessionId,
    /// The leaf.
    pub leaf: LoopId,
    /// The messages in order.
    pub messages: Vec<AgentMessage>,
    /// The sum of the messages' tokens.
    pub tokens: u64,
    /// The sum of the messages' bytes of JSON.
    pub bytes: u64,
    /// The origin of the messages: consecutive parts of the context.
    pub parts: Vec<Part>,
    /// The faults that make a provider reject the context.
    pub faults: Vec<ContextFault>,
    /// The provider that the context was built for, if any.
    pub provider: Option<SealingProvider>,
    /// The index of the message with that provider's compaction, which replaces all messages before it.
    pub compaction: Option<usize>,
    /// True if the loop of the leaf has not ended: calls of its last answer can still get their results.
    pub in_flight: bool,
    /// The system prompt that a request for a provider begins with.
    pub system: SystemPrompt,
    /// The content that Anthropic clears from requests that are written for it from the context.
    pub context_management: ContextManagement,
    /// The id of the manifest, if one was written.
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
            context_management: Some(&self.context_management),
        }
    }
}

impl Context {
    /// Returns the tool calls that wait for their results, in order. A call that can get no result any more,
    /// because a prompt or a later answer follows it or its loop has ended, is not open.
    pub fn open_calls(&self) -> Vec<&ToolCall> {
        open_calls(&self.messages, self.in_flight)
    }

    /// True if the model is to be called next: the last message is not an answer of the model, and no call is open.
    pub fn awaits_answer(&self) -> bool {
        let last = self.messages.iter().rev().find_map(AgentMessage::message);
        let is_input = last.is_some_and(|message| message.role() != Role::Assistant);
        is_input && self.open_calls().is_empty()
    }
}

/// An error of a build.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store failed, or the session or the leaf does not exist.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The context has too many tokens.
    #[error("the context has {tokens} tokens and {budget} fit; compact it first")]
    NeedsCompaction {
        /// The size of the context.
        tokens: u64,
        /// The size that fits.
        budget: u64,
    },
    /// The context has too many bytes.
    #[error("the context has {bytes} bytes and {budget} fit; compact it first")]
    NeedsFewerBytes {
        /// The size of the context.
        bytes: u64,
        /// The size that fits.
        budget: u64,
    },
    /// A loop does not exist.
    #[error("{0}")]
    Invalid(String),
}
