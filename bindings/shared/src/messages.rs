//! Messages in and contexts out, as JSON in one of four forms.

use loopstore::context::{ContextFault, Part};
use loopstore::provider::{self, Form, Mending, ProviderRequest};
use loopstore::{AgentMessage, Context, SessionHandle};
use serde::Serialize;

use crate::errors::CallError;

/// The form of messages: loopstore's own, or a provider's.
#[derive(Clone, Copy)]
pub enum MessageForm {
    Own,
    Provider(Form),
}

impl MessageForm {
    pub fn named(name: &str) -> Result<Self, CallError> {
        if name == "loopstore" {
            return Ok(Self::Own);
        }
        let unknown = |_| {
            CallError::Input(format!(
                "unknown format `{name}`; known are loopstore, openai, responses, anthropic"
            ))
        };
        name.parse().map(Self::Provider).map_err(unknown)
    }
}

/// Reads messages.
pub fn read(form: &str, json: &[u8]) -> Result<Vec<AgentMessage>, CallError> {
    let form = MessageForm::named(form)?;
    let text = std::str::from_utf8(json)
        .map_err(|error| CallError::Input(format!("the JSON is not UTF-8: {error}")))?;
    match form {
        MessageForm::Provider(form) => Ok(provider::read_str(form, text)?),
        MessageForm::Own => {
            provider::read_own(text).map_err(|error| CallError::Input(error.to_string()))
        }
    }
}

/// A context in JSON.
#[derive(Serialize)]
struct ContextDocument<'a> {
    session_id: &'a str,
    loop_id: &'a str,
    messages: &'a [AgentMessage],
    tokens: u64,
    bytes: u64,
    parts: &'a [Part],
    faults: &'a [ContextFault],
    #[serde(skip_serializing_if = "<[AgentMessage]>::is_empty")]
    system: &'a [AgentMessage],
}

/// Writes a context.
pub fn write(form: &str, context: &Context) -> Result<Vec<u8>, CallError> {
    Ok(match MessageForm::named(form)? {
        MessageForm::Own => serde_json::to_vec(&ContextDocument {
            session_id: context.session.as_str(),
            loop_id: context.leaf.as_str(),
            messages: &context.messages,
            tokens: context.tokens,
            bytes: context.bytes,
            parts: &context.parts,
            faults: &context.faults,
            system: &context.system.messages,
        })?,
        MessageForm::Provider(form) => {
            serde_json::to_vec(&ProviderRequest::of_context(form, context)?)?
        }
    })
}

/// Returns the open calls as JSON: `id`, `name` and `arguments` of each.
pub fn open_calls(session: &SessionHandle) -> Result<Vec<u8>, CallError> {
    Ok(serde_json::to_vec(&session.open_calls()?)?)
}

/// Returns the changes that were made for a provider.
pub fn mended(form: &str, context: &Context) -> Result<Vec<Mending>, CallError> {
    Ok(match MessageForm::named(form)? {
        MessageForm::Own => Vec::new(),
        MessageForm::Provider(form) => ProviderRequest::of_context(form, context)?.mended,
    })
}
