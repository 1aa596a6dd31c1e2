//! The prepared context of the next model call.

use std::sync::Arc;

use serde_json::Value;

use crate::compact::{CompactOutcome, CompactReport, ContextTokens};
use crate::context::Context;
use crate::edit::EditReport;
use crate::model::AgentMessage;
use crate::provider::{self, Form, ProviderError, ProviderRequest};

/// The context of the next model call, which fits the policy's window.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Prepared {
    /// The context. The handle keeps the context for the next call; if this value is dropped before that call, no
    /// copy is made.
    pub context: Arc<Context>,
    /// The attempts to compact it, in order; empty if none was needed.
    pub compactions: Vec<CompactReport>,
    /// The tool results that the policy cleared before these attempts; `None` if it cleared none.
    pub cleared: Option<EditReport>,
    /// The reason why the policy, although it fired, cleared no tool results.
    pub not_cleared: Option<String>,
    /// The size of the context with which the policy was evaluated, before any clearing and compaction, and the
    /// source of that size.
    pub asked_about: ContextTokens,
}

impl Prepared {
    pub(super) fn new(context: Arc<Context>, mut reports: Vec<CompactReport>) -> Self {
        // A later attempt finds nothing more to clear.
        let cleared = reports.iter().find_map(|report| report.cleared.clone());
        let not_cleared = reports
            .first_mut()
            .and_then(|report| report.not_cleared.take());
        let tried = |report: &CompactReport| report.outcome != CompactOutcome::NotNeeded;
        Self {
            context,
            cleared,
            not_cleared,
            asked_about: reports
                .first()
                .map_or_else(ContextTokens::default, |r| r.asked_about),
            compactions: reports.into_iter().filter(tried).collect(),
        }
    }

    /// Returns the messages in order.
    pub fn messages(&self) -> &[AgentMessage] {
        &self.context.messages
    }

    /// Returns the messages of a request to a provider, as [`provider::write`](crate::provider::write) does.
    ///
    /// # Errors
    /// As [`provider::write`](crate::provider::write).
    ///
    /// # Examples
    /// A context that was not prepared is written by [`provider::write`](crate::provider::write) itself.
    ///
    /// ```
    /// use loopstore::provider::{self, Form};
    /// use loopstore::*;
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?;
    /// chat.append([Message::user("Will it rain?")])?;
    /// let context = chat.context()?;
    /// let mut request = provider::write(Form::OpenAiChat, &context)?;
    /// assert_eq!(request["messages"][0]["content"], "Will it rain?");
    /// request["model"] = "gpt-5".into();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to(&self, form: Form) -> Result<Value, ProviderError> {
        provider::write(form, &self.context)
    }

    /// Returns the request of [`Prepared::to`] without the reasoning that only the form's provider can read. Use it
    /// if the provider reports that it cannot decrypt the reasoning any more; see
    /// [`ProviderRequest::without_reasoning`].
    ///
    /// # Errors
    /// As [`provider::write`](crate::provider::write).
    ///
    /// # Examples
    /// ```
    /// use loopstore::provider::{self, Form, MendingKind, ProviderRequest};
    /// use loopstore::{Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// chat.append([Message::user("Will it rain?")])?;
    /// let answer = serde_json::json!([
    ///     {"type": "reasoning", "id": "rs_1", "encrypted_content": "…", "summary": []},
    ///     {"type": "message", "role": "assistant", "content": "It will."},
    /// ]);
    /// chat.append(provider::read(Form::OpenAiResponses, &answer)?)?;
    /// let request = ProviderRequest::without_reasoning(Form::OpenAiResponses, &chat.context()?)?;
    /// assert_eq!(request.len(), 2);
    /// assert_eq!(request.mended[0].kind, MendingKind::ReasoningDropped);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_without_reasoning(&self, form: Form) -> Result<Value, ProviderError> {
        provider::json(
            form,
            ProviderRequest::without_reasoning(form, &self.context)?,
        )
    }

    /// True if the context was compacted for this call.
    pub fn was_compacted(&self) -> bool {
        let committed = |report: &CompactReport| report.outcome == CompactOutcome::Committed;
        self.compactions.iter().any(committed)
    }
}
