//! The input of a request: messages and their context.

use std::sync::Arc;

use loopstore_model::{AgentMessage, SealingProvider};

use crate::context_management::ContextManagement;

/// The messages of a request, with the facts about their context.
#[derive(Clone, Copy, Debug)]
pub struct Conversation<'a> {
    /// The system and developer messages before all others, extensions of the kind `system`.
    pub system: &'a [AgentMessage],
    /// True if other system messages were left out.
    pub is_system_partial: bool,
    /// The messages in order.
    pub messages: &'a [AgentMessage],
    /// The provider that the messages were chosen for, if they were chosen for one.
    pub provider: Option<SealingProvider>,
    /// The index of the message with the compaction of that provider that replaces all messages before it.
    pub compaction: Option<usize>,
    /// True if calls of the last answer can still get their results.
    pub in_flight: bool,
    /// The content that Anthropic clears before the model reads a request in its form; `None` for none.
    pub context_management: Option<&'a ContextManagement>,
}

impl<'a> Conversation<'a> {
    /// Returns a conversation of messages without system messages of their own, whose last answer may still wait for
    /// results.
    pub fn of(messages: &'a [AgentMessage]) -> Self {
        Self {
            system: &[],
            is_system_partial: false,
            messages,
            provider: None,
            compaction: None,
            in_flight: true,
            context_management: None,
        }
    }
}

/// A source of a request, such as a context of a store.
pub trait AsConversation {
    /// Returns the conversation.
    fn as_conversation(&self) -> Conversation<'_>;
}

impl AsConversation for Conversation<'_> {
    fn as_conversation(&self) -> Conversation<'_> {
        *self
    }
}

impl<T: AsConversation + ?Sized> AsConversation for &T {
    fn as_conversation(&self) -> Conversation<'_> {
        (**self).as_conversation()
    }
}

impl<T: AsConversation + ?Sized> AsConversation for Arc<T> {
    fn as_conversation(&self) -> Conversation<'_> {
        (**self).as_conversation()
    }
}
