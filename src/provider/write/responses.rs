//! OpenAI's Responses.

use std::collections::HashSet;

use serde::Serialize;

use super::blocks::{arguments_text, data_url};
use super::pairs::IndexedMessage;
use super::sealed::own;
use super::{Mending, MendingKind};
use crate::model::{Content, Json, Message, ToolCall, ToolResultMessage};
use crate::provider::Form;

/// An item of the request's input.
///
/// Items have no ids: one with an id would stand for what the provider stored under it, and would
/// have to come with the reasoning that is stored there.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum InputItem {
    Message {
        role: &'static str,
        content: InputContent,
    },
    Call(CallItem),
    Output(OutputItem),
    /// What came from the provider, as it came.
    Own(Json),
}

/// Content: plain text if that is all there is.
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
    InputImage { image_url: String },
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub(super) enum CallItem {
    #[serde(rename = "function_call")]
    Function {
        call_id: String,
        name: String,
        arguments: String,
    },
    #[serde(rename = "custom_tool_call")]
    Custom {
        call_id: String,
        name: String,
        input: String,
    },
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
            },
            Content::ToolCall(call) => {
                let item = call_of(call);
                if matches!(item, CallItem::Custom { .. }) {
                    self.custom.insert(&call.id);
                }
                InputItem::Call(item)
            }
            _ => match own(block, Form::OpenAiResponses) {
                Some(item) => InputItem::Own(item),
                None => return self.left_out(at, block),
            },
        };
        self.out.push(item);
    }

    fn result(&mut self, at: usize, result: &ToolResultMessage) {
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
                Content::Image(image) => data_url(image),
                _ => None,
            };
            match image {
                Some(image_url) => parts.push(InputPart::InputImage { image_url }),
                None => self.left_out(at, block),
            }
        }
        parts
    }

    fn left_out(&mut self, at: usize, block: &Content) {
        self.mended.push(Mending::left_out(block, at));
    }
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

fn call_of(call: &ToolCall) -> CallItem {
    let (call_id, name) = (call.id.clone(), call.name.clone());
    let form = call.extra.get("form");
    match form.is_some_and(|form| form.as_str() == "\"custom\"") {
        true => CallItem::Custom {
            call_id,
            name,
            input: input_of(call),
        },
        false => CallItem::Function {
            call_id,
            name,
            arguments: arguments_text(call),
        },
    }
}

/// Returns what a custom tool was given. Importers keep an input that is JSON as such, and its text
/// beside it.
fn input_of(call: &ToolCall) -> String {
    let written = call.extra.get("argumentsText");
    let written = written.and_then(|text| text.read().ok());
    let written = written.or_else(|| call.arguments.read().ok());
    written.unwrap_or_else(|| call.arguments.as_str().to_owned())
}
