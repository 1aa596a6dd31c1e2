//! What providers take and give, and the messages of this library: one mapping for each form.
//!
//! [`read`] turns what a provider answered, or what a program is about to send, into messages;
//! [`write()`] turns a context into what the next request holds. `read` is strict: what it cannot
//! keep it refuses with a [`ProviderError`] that names the place, and never guesses. Tool calls and results are
//! read as servers really write them, also without an id or a name: what is missing is completed when they are
//! stored, and the append says so.
//!
//! A new form is a variant of [`Form`] and one file each in `read` and `write`.
//!
//! # What is not kept
//!
//! What `write` leaves out, moves, or adds so that the provider accepts the request is reported in
//! [`ProviderRequest::mended`]. The guide (`docs/guide.md`, *For agents*) has the table of what each
//! form cannot hold.
//!
//! State that only a provider can read (encrypted reasoning, redacted thinking, compactions) becomes
//! [`Content::Sealed`](crate::Content). Items of hosted tools, documents and images by URL, which no
//! message has a place for, are kept whole as [`Content::Other`](crate::Content), of the type
//! `providerItem` with their `form`. Both go back as they came, in their place, to the provider that
//! made them; for another they are left out and reported. Anthropic reads nothing before its newest
//! compaction, so nothing before it is written.
//!
//! `read` refuses what no message can hold without loss: audio, files, several choices, answers that
//! are not finished; in chat completions and Responses images by URL or file id. Of an answer's
//! envelope it takes model, usage, stop reason, time and id. A field of a message or block that
//! loopstore does not know stays with it, in the extra field `source`.

mod error;
mod kept;
mod own;
mod read;
pub(crate) mod reasoning;
mod returned;
pub(crate) mod write;

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::compaction::UnknownWord;
use crate::context::Context;
use crate::model::{AgentMessage, Content, SealingProvider};

pub use error::ProviderError;
pub use own::{OwnFormError, read_own};
pub use write::{Mending, MendingKind, NO_RESULT, ProviderRequest};

/// The form in which a provider takes and gives messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// `openai`: chat completions, which many servers speak.
    OpenAiChat,
    /// `responses`: the items of OpenAI's Responses API.
    OpenAiResponses,
    /// `anthropic`: messages.
    Anthropic,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::OpenAiChat, Self::OpenAiResponses, Self::Anthropic];

    /// Returns the word for it on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai",
            Self::OpenAiResponses => "responses",
            Self::Anthropic => "anthropic",
        }
    }

    /// Returns the provider whose own compactions the form has a place for.
    ///
    /// ```
    /// use loopstore::SealingProvider;
    /// use loopstore::provider::Form;
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

    /// Returns the provider whose form it is, as [`Sealed`](crate::Sealed) names it.
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

/// Reads messages from the JSON of a provider: a whole answer, one message or item, a list of
/// them, or a request as [`write()`] makes it.
///
/// # Errors
/// If something has another type than it must, is missing, or cannot be kept as a message. Nothing
/// is read then.
///
/// # Examples
/// ```
/// use loopstore::provider::{self, Form};
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

/// Reads messages from the text of such JSON, as [`read`] does. Sealed state, items that are kept whole
/// and the arguments of calls keep their text: the order of keys, and numbers that a [`Value`] rounds.
///
/// # Errors
/// As those of [`read`]; also if `text` is not one JSON value.
///
/// # Examples
/// ```
/// use loopstore::Content;
/// use loopstore::provider::{self, Form};
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
/// If it is of a type that no message can hold.
pub fn read_call(call: &str) -> Result<Content, ProviderError> {
    read::read_call(call)
}

/// Writes a context as what a request holds: `{"messages"}` for chat completions,
/// `{"instructions"?, "input"}` for Responses, `{"system"?, "messages"}` for Anthropic.
///
/// What the provider would refuse is mended: a missing result becomes [`NO_RESULT`], empty messages
/// go, neighbours of one role merge where roles must alternate. [`ProviderRequest`] also says what
/// was mended, and keeps the text of numbers, which a [`Value`] rounds.
///
/// # Errors
/// If the arguments of a call hold a number that a [`Value`] cannot, or if the context begins with the
/// compaction of another provider.
///
/// # Examples
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
pub fn write(form: Form, context: &Context) -> Result<Value, ProviderError> {
    json(form, ProviderRequest::of_context(form, context)?)
}

pub(crate) fn json(form: Form, request: ProviderRequest) -> Result<Value, ProviderError> {
    serde_json::to_value(request).map_err(|source| ProviderError::Unwritable { form, source })
}
