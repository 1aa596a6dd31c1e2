//! Messages in and contexts out, as JSON in one of four forms.

use loopstore::context::{ContextFault, Part};
use loopstore::provider::{self, Form, Mending, ProviderRequest};
use loopstore::{AgentMessage, Context};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use crate::errors::Failure;

/// The form of messages: loopstore's own, or a provider's.
#[derive(Clone, Copy)]
pub enum MessageForm {
    Own,
    Provider(Form),
}

impl MessageForm {
    pub fn named(name: &str) -> Result<Self, Failure> {
        if name == "loopstore" {
            return Ok(Self::Own);
        }
        let unknown = |_| {
            Failure::Input(format!(
                "unknown format `{name}`; known are loopstore, openai, responses, anthropic"
            ))
        };
        name.parse().map(Self::Provider).map_err(unknown)
    }
}

/// One message, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    More(Vec<serde_json::Value>),
    One(serde_json::Value),
}

/// Reads messages.
pub fn read(form: &str, json: &[u8]) -> Result<Vec<AgentMessage>, Failure> {
    match MessageForm::named(form)? {
        MessageForm::Provider(form) => {
            let text = std::str::from_utf8(json)
                .map_err(|error| Failure::Input(format!("the JSON is not UTF-8: {error}")))?;
            Ok(provider::read_str(form, text)?)
        }
        MessageForm::Own => own(json),
    }
}

fn own(json: &[u8]) -> Result<Vec<AgentMessage>, Failure> {
    let is_list = json.trim_ascii_start().first() == Some(&b'[');
    if !is_list {
        return Ok(vec![serde_json::from_slice(json).map_err(unread)?]);
    }
    if let Ok(messages) = serde_json::from_slice(json) {
        return Ok(messages);
    }
    // Once more, to say which one cannot be read.
    let list = match serde_json::from_slice(json).map_err(unread)? {
        OneOrMore::More(list) => list,
        OneOrMore::One(one) => vec![one],
    };
    let message = |(at, value): (usize, serde_json::Value)| {
        serde_json::from_value(value)
            .map_err(|error| Failure::Input(format!("message {at} is {}", not_own(&error))))
    };
    list.into_iter().enumerate().map(message).collect()
}

/// Says why JSON is no message.
fn unread(error: serde_json::Error) -> Failure {
    Failure::Input(match error.classify() {
        Category::Data => format!("the message is {}", not_own(&error)),
        Category::Syntax | Category::Eof | Category::Io => format!("this is not JSON: {error}"),
    })
}

fn not_own(error: &serde_json::Error) -> String {
    format!(
        "not in loopstore's own form: {error}; for messages of a provider name the format: openai, responses \
         or anthropic"
    )
}

/// What a context is in JSON.
#[derive(Serialize)]
struct ContextJson<'a> {
    session_id: &'a str,
    loop_id: &'a str,
    messages: &'a [AgentMessage],
    tokens: u64,
    bytes: u64,
    parts: &'a [Part],
    faults: &'a [ContextFault],
}

/// Writes a context.
pub fn write(form: &str, context: &Context) -> Result<Vec<u8>, Failure> {
    Ok(match MessageForm::named(form)? {
        MessageForm::Own => serde_json::to_vec(&ContextJson {
            session_id: context.session.as_str(),
            loop_id: context.leaf.as_str(),
            messages: &context.messages,
            tokens: context.tokens,
            bytes: context.bytes,
            parts: &context.parts,
            faults: &context.faults,
        })?,
        MessageForm::Provider(form) => {
            serde_json::to_vec(&ProviderRequest::of_context(form, context)?)?
        }
    })
}

/// Returns what was mended for a provider.
pub fn mended(form: &str, context: &Context) -> Result<Vec<Mending>, Failure> {
    Ok(match MessageForm::named(form)? {
        MessageForm::Own => Vec::new(),
        MessageForm::Provider(form) => ProviderRequest::of_context(form, context)?.mended,
    })
}
