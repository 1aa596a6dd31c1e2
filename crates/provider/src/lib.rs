//! Conversion of messages from and to the JSON of providers, one mapping for each form.
//!
//! [`read`] converts an answer of a provider, or a request, to messages; [`write()`] converts a context to the
//! messages of the next request. `read` is strict: if it cannot keep all of the JSON, it fails with a
//! [`ProviderError`] that contains the position. It accepts tool calls and results without an id or a name, since
//! some servers send them; the missing fields are completed when the messages are stored, and the result of the
//! append reports each.
//!
//! A new form is a variant of [`Form`] and one file each in `read` and `write`.
//!
//! # Losses
//!
//! Everything that `write` leaves out, moves, or adds so that the provider accepts the request is reported in
//! [`ProviderRequest::mended`]. The guide (`docs/guide.md`, *For agents*) has a table of the content that each form
//! cannot represent.
//!
//! State that only a provider can read (encrypted reasoning, redacted thinking, compactions) becomes
//! [`Content::Sealed`]. Items of hosted tools, and documents and images by URL, which no message can represent, are
//! kept whole as [`Content::Other`], of the type `providerItem` with their `form`. Both are sent back unchanged, in
//! their position, to the provider that made them; for another provider they are left out and reported. Anthropic
//! ignores everything before its newest compaction, so nothing before it is written.
//!
//! `read` rejects content that no message can represent without loss: audio, files, several choices, incomplete
//! answers; in chat completions and Responses images by URL or file id. Of an answer's envelope it keeps model, usage,
//! stop reason, time and id. Unknown fields of a message or block are kept in its extra field `source`.
//!
//! Anthropic can clear old tool results and thinking from the context of a call ([`context_management`]): a request
//! asks for it, and the answer reports how much was cleared
//! ([`AppliedEdits`](loopstore_model::AppliedEdits)).
//!
//! The crate has no client: it sends and stores nothing. The module [`faults`] reports faults for which any provider
//! may reject a list of messages.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod context_management;
mod conversation;
mod error;
pub mod faults;
mod kept;
mod own;
mod read;
#[doc(hidden)]
pub mod reasoning;
mod returned;
mod server_block;
mod write;

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use loopstore_model::compaction::UnknownWord;
use loopstore_model::{AgentMessage, Content, SealingProvider};

pub use conversation::{AsConversation, Conversation};
pub use error::ProviderError;
pub use own::{OwnFormError, read_own};
#[doc(hidden)]
pub use write::{
    CallItem, OPENING, arguments_object, call_item, data_url, images_of, kept_item, media_type,
    pairs,
};
pub use write::{Mending, MendingKind, NO_RESULT, ProviderRequest};

/// The form of a provider's JSON: one variant for each API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// `openai`: chat completions, which many servers implement.
    OpenAiChat,
    /// `responses`: the items of OpenAI's Responses API.
    OpenAiResponses,
    /// `anthropic`: messages.
    Anthropic,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::OpenAiChat, Self::OpenAiResponses, Self::Anthropic];

    /// Returns the name of the form on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai",
            Self::OpenAiResponses => "responses",
            Self::Anthropic => "anthropic",
        }
    }

    /// Returns the provider whose compactions the form can represent.
    ///
    /// ```
    /// use loopstore_model::SealingProvider;
    /// use loopstore_provider::Form;
    ///
    /// assert_eq!(Form::Anthropic.sealing_provider(), Some(SealingProvider::Anthropic));
    /// assert_eq!(Form::OpenAiChat.sealing_provider(), None);
    /// ```
    pub fn sealing_provider(self) -> Option<SealingProvider> {
        match self {
            Self::OpenAiChat => None,
            Self::OpenAiResponses => Some(SealingProvider::OpenAi),
            Self::Anthropic => Some(SealingProvider::Anthropic),
        }
    }

    /// Returns the provider of the form, as [`Sealed`](loopstore_model::Sealed) names it.
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => "openai",
            Self::Anthropic => "anthropic",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Form {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let form = Self::ALL.into_iter().find(|form| form.as_str() == text);
        form.ok_or_else(|| UnknownWord::new(text, "openai, responses, anthropic"))
    }
}

/// Returns the messages of a provider's JSON: a whole answer, one message or item, a list of them, or a request as
/// [`write()`] returns it. The setting `context_management` of a request is not kept.
///
/// # Errors
/// If a value has the wrong type, if a value is missing, or if no message can represent a value.
///
/// # Examples
/// ```
/// use loopstore_provider::{self as provider, Form};
///
/// let answer = serde_json::json!({
///     "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
///     "content": [
///         {"type": "text", "text": "I look."},
///         {"type": "tool_use", "id": "c1", "name": "forecast", "input": {"days": 3}},
///     ],
///     "stop_reason": "tool_use",
///     "usage": {"input_tokens": 40, "output_tokens": 12},
/// });
/// let messages = provider::read(Form::Anthropic, &answer)?;
/// let call = messages[0].message().and_then(|answer| answer.tool_calls().next());
/// assert_eq!(call.map(|call| call.name.as_str()), Some("forecast"));
///
/// let audio = serde_json::json!({"role": "assistant", "content": [{"type": "audio"}]});
/// let error = provider::read(Form::Anthropic, &audio).unwrap_err();
/// assert_eq!(error.pointer(), "/content/0");
/// # Ok::<(), provider::ProviderError>(())
/// ```
pub fn read(form: Form, items: &Value) -> Result<Vec<AgentMessage>, ProviderError> {
    read::read(form, items, None)
}

/// Returns the messages of a provider's JSON, as [`read`] does, from its text. Sealed state, whole items and the
/// arguments of calls keep the order of their keys, and numbers that a [`Value`] would round.
///
/// # Errors
/// As [`read`]. Also if `text` is not one JSON value.
///
/// # Examples
/// ```
/// use loopstore_model::Content;
/// use loopstore_provider::{self as provider, Form};
///
/// let item = r#"{"type":"reasoning","summary":[],"id":"rs_1","encrypted_content":"gAAA="}"#;
/// let messages = provider::read_str(Form::OpenAiResponses, item)?;
/// let answer = messages[0].message().unwrap();
/// assert!(matches!(&answer.content()[0], Content::Sealed(sealed) if sealed.item.as_str() == item));
/// # Ok::<(), provider::ProviderError>(())
/// ```
pub fn read_str(form: Form, text: &str) -> Result<Vec<AgentMessage>, ProviderError> {
    let items: Value =
        serde_json::from_str(text).map_err(|source| ProviderError::Unreadable { form, source })?;
    read::read(form, &items, Some(text))
}

/// Reads one of the calls of a chat message from its text.
///
/// # Errors
/// If the call has a type that no message can represent.
#[doc(hidden)]
pub fn read_call(call: &str) -> Result<Content, ProviderError> {
    read::read_call(call)
}

/// Returns a context as the messages of a request: `{"messages"}` for chat completions, `{"instructions"?, "input"}`
/// for Responses, `{"system"?, "messages"}` for Anthropic.
///
/// Faults for which the provider would reject the request are mended: a missing result becomes [`NO_RESULT`], empty
/// messages are left out, consecutive messages of one role are joined if roles must alternate. [`ProviderRequest`] also
/// reports the mendings, and keeps the text of numbers, which a [`Value`] rounds.
///
/// # Errors
/// If the arguments of a call have a number that a [`Value`] cannot represent, or if the context begins with the
/// compaction of another provider.
///
/// # Examples
/// ```
/// use loopstore_model::Message;
/// use loopstore_provider::{self as provider, Conversation, Form};
///
/// let messages = [Message::user("Will it rain?").into()];
/// let mut request = provider::write(Form::OpenAiChat, &Conversation::of(&messages))?;
/// assert_eq!(request["messages"][0]["content"], "Will it rain?");
/// request["model"] = "gpt-5".into();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(form: Form, context: &(impl AsConversation + ?Sized)) -> Result<Value, ProviderError> {
    json(form, ProviderRequest::of_context(form, context)?)
}

#[doc(hidden)]
pub fn json(form: Form, request: ProviderRequest) -> Result<Value, ProviderError> {
    serde_json::to_value(request).map_err(|source| ProviderError::Unwritable { form, source })
}
