//! The faults for which a provider would reject the messages of a request, read from their JSON.
//!
//! The check depends on no writer: it reads the request as it would be sent. The rules are those that the
//! providers document or enforce with an error.
#![allow(dead_code)]

mod anthropic;
mod openai_chat;
mod responses;

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use loopstore::provider::Form;
use serde_json::Value;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderFaultKind {
    /// Not the form of a message: another type, a missing field, or a block in the wrong place.
    Form,
    /// The order of roles is invalid.
    RoleOrder,
    /// A message or a block without content.
    EmptyContent,
    /// A result whose call is not before it.
    ResultWithoutCall,
    /// A call whose result does not follow directly.
    CallWithoutResult,
    /// A result that does not follow its call directly, or is not first in its message.
    LateResult,
    /// A call id that an earlier call has too.
    DuplicateCallId,
    /// A call id that is too long or has invalid characters.
    CallId,
    /// A tool name that is too long or has invalid characters.
    ToolName,
    /// Arguments that are not JSON of the required form.
    Arguments,
    /// An image of an unsupported type, of another type than its bytes, or that is not base64.
    Image,
    /// Thinking without a signature, as the end of an answer, or not first in the last answer.
    Thinking,
    /// White space at the end of the last answer.
    TrailingSpace,
}

/// A reason for which a provider would refuse a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderFault {
    /// The kind of the fault.
    pub kind: ProviderFaultKind,
    /// The index of the message in the request.
    pub message: usize,
    /// The fault in words.
    pub detail: String,
}

impl std::fmt::Display for ProviderFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "message {}: {}", self.message, self.detail)
    }
}

/// Returns the faults for which a provider would reject a request: its list of messages, or an object that has
/// it as `messages` or `input`. An empty list has no fault, since the prompt may be added later.
///
/// Calls of the last answer may be open: an agent runs them before it calls the model.
///
/// Only messages are checked, not rules that depend on the rest of a request (thinking, tools) or on its size.
pub fn provider_faults(request: &Value, form: Form) -> Vec<ProviderFault> {
    let mut found = FoundFaults::default();
    let messages = request.get("messages").or(request.get("input"));
    match messages.unwrap_or(request).as_array() {
        None => found.add(ProviderFaultKind::Form, "the messages are not a list"),
        Some(messages) => match form {
            Form::OpenAiChat => openai_chat::check(messages, &mut found),
            Form::OpenAiResponses => responses::check(messages, &mut found),
            Form::Anthropic => anthropic::check(messages, &mut found),
            _ => panic!("no rules for {form}"),
        },
    }
    found.faults.sort_by_key(|fault| fault.message);
    found.faults
}

/// The faults so far, and the state after the messages before.
#[derive(Default)]
struct FoundFaults<'a> {
    faults: Vec<ProviderFault>,
    /// The index of the current message.
    at: usize,
    /// The ids of all calls.
    ids: HashSet<&'a str>,
    /// The ids of the calls that wait for their result, in order.
    open: Vec<&'a str>,
}

impl<'a> FoundFaults<'a> {
    fn add(&mut self, kind: ProviderFaultKind, detail: impl Into<String>) {
        self.faults.push(ProviderFault {
            kind,
            message: self.at,
            detail: detail.into(),
        });
    }

    fn form(&mut self, detail: impl Into<String>) {
        self.add(ProviderFaultKind::Form, detail);
    }

    /// Records a call.
    fn call(&mut self, id: &'a str) {
        if !self.ids.insert(id) {
            let detail = format!("an earlier call has the id `{id}` too");
            self.add(ProviderFaultKind::DuplicateCallId, detail);
        }
        self.open.push(id);
    }

    /// Records a result.
    fn result(&mut self, id: &str) {
        match self.open.iter().position(|open| *open == id) {
            Some(place) => {
                self.open.remove(place);
            }
            None if self.ids.contains(id) => {
                let detail = format!("the result of call `{id}` is not right behind it");
                self.add(ProviderFaultKind::LateResult, detail);
            }
            None => {
                let detail = format!("the result of call `{id}` has no call before it");
                self.add(ProviderFaultKind::ResultWithoutCall, detail);
            }
        }
    }

    /// Reports the calls that should have their result by now.
    fn close_calls(&mut self) {
        for id in std::mem::take(&mut self.open) {
            let detail = format!("call `{id}` has no result before this");
            self.add(ProviderFaultKind::CallWithoutResult, detail);
        }
    }

    fn name(&mut self, name: &str, most: usize) {
        if !is_word(name) || name.len() > most {
            let detail =
                format!("the tool name `{name}` is not 1 to {most} of a-z, A-Z, 0-9, _, -");
            self.add(ProviderFaultKind::ToolName, detail);
        }
    }

    fn id(&mut self, id: &str, most: usize) {
        let length = id.chars().count();
        if length == 0 || length > most {
            let detail =
                format!("the call id `{id}` has {length} characters, 1 to {most} are allowed");
            self.add(ProviderFaultKind::CallId, detail);
        }
    }

    fn arguments(&mut self, id: &str, arguments: &str) {
        if serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_err() {
            let detail = format!("the arguments of call `{id}` are not text of JSON");
            self.add(ProviderFaultKind::Arguments, detail);
        }
    }

    fn image_url(&mut self, url: &str) {
        let inline = url
            .strip_prefix("data:")
            .and_then(|rest| rest.split_once(";base64,"));
        match inline {
            Some((media_type, data)) => self.image(media_type, data),
            None if url.starts_with("https://") || url.starts_with("http://") => {}
            None => self.add(ProviderFaultKind::Image, "an image has no address"),
        }
    }

    fn image(&mut self, media_type: &str, data: &str) {
        if !["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&media_type) {
            let detail = format!("images of type `{media_type}` are not read");
            return self.add(ProviderFaultKind::Image, detail);
        }
        let starts: [(&str, &[u8]); 4] = [
            ("image/png", b"\x89PNG"),
            ("image/jpeg", b"\xff\xd8\xff"),
            ("image/gif", b"GIF8"),
            ("image/webp", b"RIFF"),
        ];
        match STANDARD.decode(data) {
            Err(_) => self.add(ProviderFaultKind::Image, "an image is not base64"),
            Ok(bytes)
                if !starts
                    .iter()
                    .any(|(of, start)| *of == media_type && bytes.starts_with(start)) =>
            {
                self.add(ProviderFaultKind::Image, "an image is not of its type");
            }
            Ok(_) => {}
        }
    }
}

/// Returns true if a text consists of at least one ASCII letter, digit, `_` or `-`.
fn is_word(text: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Returns a text field; empty if it is missing.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
