//! OpenAI's Responses.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::blocks::{arguments_text, data_url};
use super::pairs::IndexedMessage;
use super::sealed::original_item;
use super::{Mending, MendingKind};
use crate::Form;
use crate::kept::KeptItem;
use crate::returned::ReturnedFields;
use loopstore_model::{Content, Image, Json, Message, ToolCall, ToolResultMessage};

/// An item of the request's input.
///
/// Items have no ids: an item with an id refers to the one that the provider stored under it, and must be sent together
/// with the reasoning that is stored there.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum InputItem {
    Message {
        role: &'static str,
        content: InputContent,
        /// The phase of the answer in the provider's words, which says whether the model continues.
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<Json>,
    },
    Call(CallItem),
    Output(OutputItem),
    /// An item of the provider, unchanged.
    Own(Json),
}

/// The content of a message: a plain text, or a list of parts.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum InputContent {
    Text(String),
    List(Vec<InputPart>),
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum InputPart {
    InputText { text: String },
    InputImage { image_url: String, detail: Json },
}

#[doc(hidden)]
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub enum CallItem {
    #[serde(rename = "function_call")]
    Function {
        call_id: String,
        name: String,
        arguments: String,
        #[serde(flatten)]
        back: ReturnedFields,
    },
    #[serde(rename = "custom_tool_call")]
    Custom {
        call_id: String,
        name: String,
        input: String,
        #[serde(flatten)]
        back: ReturnedFields,
    },
}

impl CallItem {
    /// True if the input of the tool is a text instead of JSON.
    pub fn is_custom(&self) -> bool {
        matches!(self, Self::Custom { .. })
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct OutputItem {
    r#type: &'static str,
    call_id: String,
    output: InputContent,
}

/// Writes the items.
pub(super) fn write<'a>(
    messages: &'a [IndexedMessage],
    mended: &'a mut Vec<Mending>,
) -> Vec<InputItem> {
    let mut writer = ResponsesWriter {
        mended,
        out: Vec::with_capacity(messages.len()),
        custom: HashSet::new(),
        hosted: hosted(messages),
    };
    for placed in messages {
        writer.add(placed);
    }
    writer.out
}

struct ResponsesWriter<'a> {
    mended: &'a mut Vec<Mending>,
    out: Vec<InputItem>,
    /// The calls of custom tools.
    custom: HashSet<&'a str>,
    /// The calls whose items of call and result are sent back.
    hosted: HashSet<&'a str>,
}

/// Returns the calls with both items kept: the provider rejects one without the other.
fn hosted(messages: &[IndexedMessage]) -> HashSet<&str> {
    let mut calls = HashSet::new();
    let mut hosted = HashSet::new();
    for placed in messages {
        match &placed.message {
            Message::Assistant(answer) => {
                let made = answer.content.iter().filter_map(|block| match block {
                    Content::ToolCall(call) => Some(call),
                    _ => None,
                });
                let kept = made.filter(|call| kept_item(call).is_some());
                calls.extend(kept.map(|call| call.id.as_str()));
            }
            Message::ToolResult(result) => {
                let id = result.tool_call_id.as_str();
                if calls.contains(id) && output_item(result).is_some() {
                    hosted.insert(id);
                }
            }
            Message::User(_) => {}
        }
    }
    hosted
}

/// Returns the item that a call was read from, if its id is still that of the call.
fn kept_item(call: &ToolCall) -> Option<Json> {
    let kept = KeptItem::of_call(call).filter(|kept| kept.form() == Some(Form::OpenAiResponses))?;
    names(&kept.item, &call.id).then_some(kept.item)
}

/// Returns the item that a result was read from, if its id is still that of the call.
fn output_item(result: &ToolResultMessage) -> Option<Json> {
    let items = result.content.iter().filter_map(|block| match block {
        Content::Other(_) => original_item(block, Form::OpenAiResponses),
        _ => None,
    });
    let mut named = items.filter(|item| names(item, &result.tool_call_id));
    named.next()
}

/// True if an item belongs to a call.
fn names(item: &Json, call: &str) -> bool {
    #[derive(Deserialize)]
    struct Named {
        call_id: Option<String>,
        approval_request_id: Option<String>,
        id: Option<String>,
    }
    let named = item.read::<Named>().ok();
    let id = named.and_then(|item| item.call_id.or(item.approval_request_id).or(item.id));
    id.is_some_and(|id| id == call)
}

impl<'a> ResponsesWriter<'a> {
    fn add(&mut self, placed: &'a IndexedMessage) {
        let at = placed.at;
        let written = self.out.len();
        match &placed.message {
            Message::ToolResult(result) => self.result(at, result),
            Message::User(message) => {
                let parts = self.parts(at, &message.content);
                if !parts.is_empty() {
                    let content = parts_of(parts);
                    self.out.push(InputItem::Message {
                        role: "user",
                        content,
                        phase: None,
                    });
                }
            }
            // Each text is an item of its own, so that texts and calls keep their order.
            Message::Assistant(message) => {
                for block in &message.content {
                    self.answer(at, block);
                }
            }
        }
        if self.out.len() == written {
            self.mended.push(Mending::of(MendingKind::EmptyDropped, at));
        }
    }

    fn answer(&mut self, at: usize, block: &'a Content) {
        let item = match block {
            Content::Text(text) if text.text.is_empty() => return,
            Content::Text(text) => InputItem::Message {
                role: "assistant",
                content: InputContent::Text(text.text.clone()),
                phase: text.extra.get("phase").cloned(),
            },
            Content::ToolCall(call) if self.hosted.contains(&*call.id) => match kept_item(call) {
                Some(item) => InputItem::Own(item),
                None => InputItem::Call(call_item(call)),
            },
            Content::ToolCall(call) => {
                let item = call_item(call);
                if item.is_custom() {
                    self.custom.insert(&call.id);
                }
                InputItem::Call(item)
            }
            _ => match original_item(block, Form::OpenAiResponses) {
                Some(item) => InputItem::Own(item),
                None => return self.left_out(at, block),
            },
        };
        self.out.push(item);
    }

    fn result(&mut self, at: usize, result: &ToolResultMessage) {
        if self.hosted.contains(&*result.tool_call_id)
            && let Some(item) = output_item(result)
        {
            return self.out.push(InputItem::Own(item));
        }
        let parts = self.parts(at, &result.content);
        let is_custom = self.custom.contains(&*result.tool_call_id);
        self.out.push(InputItem::Output(OutputItem {
            r#type: match is_custom {
                true => "custom_tool_call_output",
                false => "function_call_output",
            },
            call_id: result.tool_call_id.clone(),
            output: parts_of(parts),
        }));
    }

    fn parts(&mut self, at: usize, content: &[Content]) -> Vec<InputPart> {
        let mut parts = Vec::with_capacity(content.len());
        for block in content {
            let image = match block {
                Content::Text(text) if text.text.is_empty() => continue,
                Content::Text(text) => {
                    let text = text.text.clone();
                    parts.push(InputPart::InputText { text });
                    continue;
                }
                Content::Image(image) => data_url(image).map(|url| (url, detail(image))),
                _ => None,
            };
            match image {
                Some((image_url, detail)) => {
                    parts.push(InputPart::InputImage { image_url, detail });
                }
                None => self.left_out(at, block),
            }
        }
        parts
    }

    fn left_out(&mut self, at: usize, block: &Content) {
        self.mended.push(Mending::left_out(block, at));
    }
}

/// Returns the `detail` of an image.
fn detail(image: &Image) -> Json {
    let detail = image.extra.get("detail");
    detail.cloned().unwrap_or_else(|| Json::string("auto"))
}

fn parts_of(mut parts: Vec<InputPart>) -> InputContent {
    match (parts.len(), parts.pop()) {
        (_, None) => InputContent::Text(String::new()),
        (1, Some(InputPart::InputText { text })) => InputContent::Text(text),
        (_, Some(last)) => {
            parts.push(last);
            InputContent::List(parts)
        }
    }
}

/// Returns a call as its item.
pub fn call_item(call: &ToolCall) -> CallItem {
    let (call_id, name) = (call.id.clone(), call.name.clone());
    let mut back = ReturnedFields::of(&call.extra, &["namespace", "caller"]);
    // Another provider has a field of this name too.
    if let Some(caller) = back.remove("caller")
        && matches!(caller.type_name().as_deref(), Some("direct" | "program"))
    {
        back.push("caller", caller);
    }
    let form = call.extra.get("form");
    match form.is_some_and(|form| form.as_str() == "\"custom\"") {
        true => CallItem::Custom {
            call_id,
            name,
            input: input_of(call),
            back,
        },
        false => CallItem::Function {
            call_id,
            name,
            arguments: arguments_text(call),
            back,
        },
    }
}

/// Returns the input of a custom tool. If the input is JSON, importers keep it as JSON, and its text in an extra field.
fn input_of(call: &ToolCall) -> String {
    let written = call.extra.get("argumentsText");
    let written = written.and_then(|text| text.read().ok());
    let written = written.or_else(|| call.arguments.read().ok());
    written.unwrap_or_else(|| call.arguments.as_str().to_owned())
}
