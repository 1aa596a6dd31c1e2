//! The conversion of a context to the messages of a request.
//!
//! Faults for which a provider would reject the request are mended, and each mending is reported: `pairs` puts every
//! tool result directly after its call, `system` collects the system messages, the other modules write one form each.
//! Stored messages are not changed.

mod anthropic;
mod blocks;
mod images;
mod openai_chat;
#[doc(hidden)]
pub mod pairs;
mod programs;
mod responses;
mod sealed;
mod system;

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{Form, ProviderError};
use crate::context_management::ContextManagement;
use crate::{AsConversation, Conversation};
pub use anthropic::OPENING;
pub use blocks::{arguments_object, data_url, images_of, media_type};
use loopstore_model::{AgentMessage, Content};
pub use responses::{CallItem, call_item};
pub use sealed::original_item as kept_item;
use system::SystemMessage;

/// The most characters of the name of a tool in Anthropic's form.
const ANTHROPIC_NAME: usize = 128;

/// Returns the name of a tool in Anthropic's form.
pub(crate) fn anthropic_tool_name(name: &str) -> String {
    pairs::tool_name(name, ANTHROPIC_NAME)
}

/// The text of a tool result that was never recorded.
pub const NO_RESULT: &str = "[no result recorded]";

/// The kind of a change to the messages of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MendingKind {
    /// A call without a result got [`NO_RESULT`], because messages follow it or its loop has ended.
    ResultAdded,
    /// A result of a call was left out: a later result replaces it, or an equal one exists.
    ResultDropped,
    /// A result was written as text in a user message, for one of two reasons. Its call is not in the context, for
    /// instance because the call was compacted while it ran. Or the conversation continued with an earlier result of
    /// the call.
    ResultTold,
    /// A late result was moved directly after its call.
    ResultMoved,
    /// The id of a call was changed, because it was used before or the provider rejects its form.
    CallRenamed,
    /// The name of a tool was changed, because the provider rejects its form.
    ToolRenamed,
    /// An empty message was left out.
    EmptyDropped,
    /// A message was joined to the message before, which has the same role; or a message with thinking only was
    /// joined to the message after it, which continues its answer.
    Merged,
    /// Thinking that the provider does not accept was left out.
    ThinkingDropped,
    /// Reasoning that only the provider can read was left out on request.
    ReasoningDropped,
    /// Thinking was moved before a text of the same answer.
    ThinkingMoved,
    /// State or an item that only another provider ([`Mending::provider`]) accepts was left out.
    ForeignDropped,
    /// A program of the model was left out because its output is missing, or an output because its program is
    /// missing.
    PartedDropped,
    /// A compaction of the provider that is not active in this context was left out.
    CompactionDropped,
    /// The messages before a compaction of the provider, which replaces them, were left out.
    CompactedDropped,
    /// A block that the provider does not accept in this position, or an image that it cannot read, was left out.
    BlockDropped,
    /// An image of a tool result was moved to a user message after it.
    ImageMoved,
    /// The media type of an image was changed to the one of its bytes.
    ImageRetyped,
    /// An image that no provider reads, such as an error page that was saved as an image, was replaced by a text.
    ImageReplaced,
    /// A user message was added before an answer at the beginning.
    UserAdded,
    /// White space at the end of the last answer was left out.
    SpaceDropped,
    /// A system message was moved before all other messages.
    SystemMoved,
    /// A system message was left out: a newer one replaces it, it belongs to an imported transcript, or the policy
    /// excludes it.
    SystemDropped,
}

/// A change to the messages of a request, without which the provider would reject it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mending {
    /// The kind of the mending.
    pub kind: MendingKind,
    /// The index of the message of the context, from 0.
    pub message: usize,
    /// The recorded id of the call, if the mending concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The provider that produced the omitted item, if only that provider accepts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The type of that item: `reasoning`, `compaction`, `web_search_call`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
}

impl MendingKind {
    /// True if content was left out.
    #[doc(hidden)]
    pub fn leaves_out(self) -> bool {
        matches!(
            self,
            Self::ResultDropped
                | Self::EmptyDropped
                | Self::ThinkingDropped
                | Self::ReasoningDropped
                | Self::ForeignDropped
                | Self::PartedDropped
                | Self::CompactionDropped
                | Self::CompactedDropped
                | Self::BlockDropped
                | Self::SpaceDropped
                | Self::ImageReplaced
                | Self::SystemDropped
        )
    }
}

impl Mending {
    #[doc(hidden)]
    pub fn of(kind: MendingKind, message: usize) -> Self {
        Self {
            kind,
            message,
            tool_call_id: None,
            provider: None,
            item: None,
        }
    }

    /// Returns the mending for a block that the form cannot represent.
    #[doc(hidden)]
    pub fn left_out(block: &Content, message: usize) -> Self {
        let kind = match block {
            Content::Thinking(_) => MendingKind::ThinkingDropped,
            _ => MendingKind::BlockDropped,
        };
        match sealed::owner(block) {
            Some((provider, item)) => Self {
                provider: Some(provider),
                item,
                ..Self::of(MendingKind::ForeignDropped, message)
            },
            None => Self::of(kind, message),
        }
    }

    #[doc(hidden)]
    pub fn of_call(kind: MendingKind, message: usize, id: &str) -> Self {
        Self {
            tool_call_id: Some(id.to_owned()),
            ..Self::of(kind, message)
        }
    }
}

#[derive(Clone, Debug)]
enum RequestItems {
    OpenAiChat(Vec<openai_chat::ChatMessage>),
    OpenAiResponses(Vec<responses::InputItem>),
    Anthropic(Vec<anthropic::AnthropicMessage>),
}

/// The messages of a request to a provider, and the mendings.
///
/// It serialises as `{"messages"}`, `{"instructions"?, "input"}` or `{"system"?, "context_management"?, "messages"}`,
/// to which the caller adds the model and its parameters.
///
/// # Examples
/// ```
/// use loopstore_model::Message;
/// use loopstore_provider::{Form, ProviderRequest};
///
/// let request = ProviderRequest::new(Form::OpenAiChat, &[Message::user("hello").into()]);
/// let body = serde_json::to_string(&request)?;
/// assert_eq!(body, r#"{"messages":[{"role":"user","content":"hello"}]}"#);
/// assert!(request.mended.is_empty());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProviderRequest {
    system: Vec<SystemMessage>,
    items: RequestItems,
    context_management: ContextManagement,
    /// The mendings, in the order of the messages.
    pub mended: Vec<Mending>,
}

impl ProviderRequest {
    /// Returns the request of messages. Extension messages of the kind `system` are its system prompt, other extensions
    /// are left out. Calls of the last answer need no result if only results follow it.
    pub fn new(form: Form, messages: &[AgentMessage]) -> Self {
        Self::of_messages(form, &[], messages, true)
    }

    /// Returns the request of messages after the system messages of `prompt`. The calls of the last answer need no
    /// result if it is `in_flight`.
    fn of_messages(
        form: Form,
        prompt: &[AgentMessage],
        messages: &[AgentMessage],
        in_flight: bool,
    ) -> Self {
        let mut mended = Vec::new();
        let naming = match form {
            Form::OpenAiChat => pairs::Naming {
                is_plain: |_| true,
                id: 40,
                name: 64,
            },
            Form::OpenAiResponses => pairs::Naming {
                is_plain: |_| true,
                id: 64,
                name: 64,
            },
            Form::Anthropic => pairs::Naming {
                is_plain: pairs::is_word,
                id: usize::MAX,
                name: ANTHROPIC_NAME,
            },
        };
        let mut system = system::take(prompt, &mut mended);
        mended.iter_mut().for_each(|mending| mending.message = 0);
        system.append(&mut system::take(messages, &mut mended));
        let (start, messages) = match form {
            Form::Anthropic => sealed::from_compaction(messages, &mut mended),
            _ => (0, Cow::Borrowed(messages)),
        };
        let mut mendings = Vec::new();
        let mut paired = pairs::pair(&messages, in_flight, &naming, &mut mendings);
        paired.iter_mut().for_each(|placed| placed.at += start);
        mendings
            .iter_mut()
            .for_each(|mending| mending.message += start);
        mended.append(&mut mendings);
        let items = match form {
            Form::OpenAiChat => {
                RequestItems::OpenAiChat(openai_chat::write(&system, &paired, &mut mended))
            }
            Form::OpenAiResponses => {
                programs::without_parted(&mut paired, &mut mended);
                RequestItems::OpenAiResponses(responses::write(&paired, &mut mended))
            }
            Form::Anthropic => RequestItems::Anthropic(anthropic::write(&paired, &mut mended)),
        };
        mended.sort_by_key(|mending| mending.message);
        Self {
            system,
            items,
            context_management: ContextManagement::default(),
            mended,
        }
    }

    /// Returns the request of a context. Of the provider's compactions, only the one at the beginning of the context
    /// is sent. The others were undone, or are not active in the context.
    ///
    /// # Errors
    /// If the context begins with the compaction of another provider.
    pub fn of_context(
        form: Form,
        context: &(impl AsConversation + ?Sized),
    ) -> Result<Self, ProviderError> {
        let context = context.as_conversation();
        refuse_another(form, &context)?;
        Ok(Self::in_context(form, context.messages, &context))
    }

    /// Returns the request of a context without the reasoning that only the form's provider can read. Use it if the
    /// provider reports that it cannot decrypt or verify the reasoning any more. Stored messages are not changed.
    ///
    /// # Errors
    /// As [`ProviderRequest::of_context`].
    ///
    /// # Examples
    /// ```
    /// use loopstore_model::Message;
    /// use loopstore_provider::{self as provider, Conversation, Form, MendingKind, ProviderRequest};
    ///
    /// let answer = serde_json::json!([
    ///     {"type": "reasoning", "id": "rs_1", "encrypted_content": "…", "summary": []},
    ///     {"type": "message", "role": "assistant", "content": "It will."},
    /// ]);
    /// let mut messages = vec![Message::user("Will it rain?").into()];
    /// messages.extend(provider::read(Form::OpenAiResponses, &answer)?);
    /// let context = Conversation::of(&messages);
    /// let request = ProviderRequest::without_reasoning(Form::OpenAiResponses, &context)?;
    /// assert_eq!(request.len(), 2);
    /// assert_eq!(request.mended[0].kind, MendingKind::ReasoningDropped);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without_reasoning(
        form: Form,
        context: &(impl AsConversation + ?Sized),
    ) -> Result<Self, ProviderError> {
        let context = context.as_conversation();
        refuse_another(form, &context)?;
        let mut mended = Vec::new();
        let messages = match form.sealing_provider() {
            Some(provider) => sealed::without_reasoning(context.messages, provider, &mut mended),
            None => Cow::Borrowed(context.messages),
        };
        let mut request = Self::in_context(form, &messages, &context);
        request.mended.append(&mut mended);
        request.mended.sort_by_key(|mending| mending.message);
        Ok(request)
    }

    /// Returns the request of a context's messages after its system prompt.
    fn in_context(form: Form, messages: &[AgentMessage], context: &Conversation<'_>) -> Self {
        let prompt = context.system;
        let (compaction, in_flight) = (context.compaction, context.in_flight);
        let mut request = Self::with_compaction(form, prompt, messages, compaction, in_flight);
        if context.is_system_partial {
            let dropped = Mending::of(MendingKind::SystemDropped, 0);
            request.mended.insert(0, dropped);
        }
        if let Some(setting) = context.context_management {
            request.context_management = setting.clone();
        }
        request
    }

    /// Returns the request of messages. `compaction` is the index of the message with the active compaction of the
    /// provider.
    #[doc(hidden)]
    pub fn with_compaction(
        form: Form,
        prompt: &[AgentMessage],
        messages: &[AgentMessage],
        compaction: Option<usize>,
        in_flight: bool,
    ) -> Self {
        let mut mended = Vec::new();
        let provider = form.sealing_provider();
        let messages = sealed::without_inactive(messages, compaction, provider, &mut mended);
        let mut request = Self::of_messages(form, prompt, &messages, in_flight);
        request.mended.append(&mut mended);
        request.mended.sort_by_key(|mending| mending.message);
        request
    }

    /// Sets the content that Anthropic clears before the model reads the request. The setting of a request in another
    /// form is not written, as the other providers have none. The caller sends the header `anthropic-beta` with the
    /// value [`BETA`](crate::context_management::BETA).
    #[must_use]
    pub fn with_context_management(mut self, setting: ContextManagement) -> Self {
        self.context_management = setting;
        self
    }

    /// Returns the number of messages or items of the request.
    pub fn len(&self) -> usize {
        match &self.items {
            RequestItems::OpenAiChat(messages) => messages.len(),
            RequestItems::OpenAiResponses(items) => items.len(),
            RequestItems::Anthropic(messages) => messages.len(),
        }
    }

    /// True if the request has no message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the JSON with the additional field `mended`.
    pub fn with_mended(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct WithMended<'a> {
            #[serde(flatten)]
            request: &'a ProviderRequest,
            mended: &'a [Mending],
        }
        WithMended {
            request: self,
            mended: &self.mended,
        }
    }
}

/// Rejects a context that begins with the compaction of another provider.
fn refuse_another(form: Form, context: &Conversation<'_>) -> Result<(), ProviderError> {
    match (context.provider, context.compaction) {
        (Some(built_for), Some(_)) if form.sealing_provider() != Some(built_for) => {
            let built_for = built_for.as_str();
            Err(ProviderError::BuiltForAnother { form, built_for })
        }
        _ => Ok(()),
    }
}

impl Serialize for ProviderRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.items {
            RequestItems::OpenAiChat(messages) => map.serialize_entry("messages", messages)?,
            RequestItems::OpenAiResponses(items) => {
                if !self.system.is_empty() {
                    map.serialize_entry("instructions", &system::joined(&self.system))?;
                }
                map.serialize_entry("input", items)?;
            }
            RequestItems::Anthropic(messages) => {
                if !self.system.is_empty() {
                    map.serialize_entry("system", &anthropic::system(&self.system))?;
                }
                if !self.context_management.is_empty() {
                    map.serialize_entry("context_management", &self.context_management)?;
                }
                map.serialize_entry("messages", messages)?;
            }
        }
        map.end()
    }
}
