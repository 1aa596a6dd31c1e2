//! A context as the messages of a provider's request.
//!
//! What a provider would refuse is mended, and each mending is reported: `pairs` puts every tool
//! result right behind its call, `openai` and `anthropic` write the provider's own form. Nothing
//! stored is altered. `check` knows nothing of that: it looks at the JSON of a request, whoever
//! wrote it.
//!
//! A new provider is one file here, one in `check`, and its lines in [`provider_messages`] and
//! [`provider_faults`].

mod anthropic;
mod blocks;
mod check;
mod openai;
mod pairs;

use std::str::FromStr;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::compaction::UnknownWord;
use crate::model::AgentMessage;

pub use check::{ProviderFault, ProviderFaultKind, provider_faults};

/// What stands in place of a tool result that was never recorded.
pub const NO_RESULT: &str = "[no result recorded]";

/// Whose form is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Chat completions.
    OpenAi,
    /// Messages.
    Anthropic,
}

impl FromStr for Provider {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "openai" => Ok(Self::OpenAi),
            "anthropic" => Ok(Self::Anthropic),
            _ => Err(UnknownWord::new(text, "openai, anthropic")),
        }
    }
}

/// What was done to make a list of messages acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MendingKind {
    /// A call without a result got [`NO_RESULT`].
    ResultAdded,
    /// A result without its call was left out.
    ResultDropped,
    /// A late result was put right behind its call.
    ResultMoved,
    /// A call's id, used before or of a form that the provider refuses, was changed.
    CallRenamed,
    /// A tool's name, of a form that the provider refuses, was changed.
    ToolRenamed,
    /// A message that says nothing was left out.
    EmptyDropped,
    /// A message was joined to the one before, which has the same role; one of thinking alone, to
    /// the one after, which goes on with its answer.
    Merged,
    /// Thinking that the provider cannot take back was left out.
    ThinkingDropped,
    /// Thinking was put before a text of the same answer.
    ThinkingMoved,
    /// A block of a kind that the provider does not know there, or an image that it cannot read,
    /// was left out.
    BlockDropped,
    /// An image of a tool result was put into a user message after it.
    ImageMoved,
    /// A user message was put before an answer that would have come first.
    UserAdded,
    /// White space at the end of an answer that comes last was left out.
    SpaceDropped,
}

/// One mending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mending {
    /// What was done.
    pub kind: MendingKind,
    /// To which message of the context, counted from 0.
    pub message: usize,
    /// The call that it is about, by its recorded id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Mending {
    fn of(kind: MendingKind, message: usize) -> Self {
        Self {
            kind,
            message,
            tool_call_id: None,
        }
    }

    fn of_call(kind: MendingKind, message: usize, id: &str) -> Self {
        Self {
            tool_call_id: Some(id.to_owned()),
            ..Self::of(kind, message)
        }
    }
}

#[derive(Clone, Debug)]
enum Form {
    OpenAi(Vec<openai::Message>),
    Anthropic(Vec<anthropic::Message>),
}

impl Serialize for Form {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::OpenAi(messages) => messages.serialize(serializer),
            Self::Anthropic(messages) => messages.serialize(serializer),
        }
    }
}

/// The messages of a request. As JSON: `{"messages":[…]}`, what a request body takes.
#[derive(Clone, Debug)]
pub struct ProviderMessages {
    form: Form,
    /// What was done to the context, in the order of its messages.
    pub mended: Vec<Mending>,
}

impl ProviderMessages {
    /// Returns how many messages the request has.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::OpenAi(messages) => messages.len(),
            Form::Anthropic(messages) => messages.len(),
        }
    }

    /// Whether the request has no message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the JSON with one more key, `mended`.
    pub fn with_mended(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Told<'a> {
            messages: &'a Form,
            mended: &'a [Mending],
        }
        Told {
            messages: &self.form,
            mended: &self.mended,
        }
    }
}

impl Serialize for ProviderMessages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("messages", &self.form)?;
        map.end()
    }
}

/// Writes messages in the form of a provider. The system prompt is no message and not among them.
///
/// # Examples
/// ```
/// use loopstore::export::provider::{Provider, provider_messages};
/// use loopstore::Message;
///
/// let request = provider_messages(&[Message::user("hello").into()], Provider::OpenAi);
/// let body = serde_json::to_string(&request)?;
/// assert_eq!(body, r#"{"messages":[{"role":"user","content":"hello"}]}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn provider_messages(messages: &[AgentMessage], provider: Provider) -> ProviderMessages {
    let mut mended = Vec::new();
    let naming = match provider {
        Provider::OpenAi => pairs::Naming {
            is_plain: |_| true,
            id: 40,
            name: 64,
        },
        Provider::Anthropic => pairs::Naming {
            is_plain: pairs::is_word,
            id: usize::MAX,
            name: 128,
        },
    };
    let paired = pairs::pair(messages, &naming, &mut mended);
    let form = match provider {
        Provider::OpenAi => Form::OpenAi(openai::write(&paired, &mut mended)),
        Provider::Anthropic => Form::Anthropic(anthropic::write(&paired, &mut mended)),
    };
    mended.sort_by_key(|mending| mending.message);
    ProviderMessages { form, mended }
}
