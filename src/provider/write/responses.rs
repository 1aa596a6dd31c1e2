//! OpenAI's Responses.

use serde::Serialize;

use super::blocks::{arguments_text, data_url};
use super::pairs::IndexedMessage;
use super::{Mending, MendingKind};
use crate::model::{Content, Message, ToolCall, ToolResultMessage};

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
    Call(FunctionCall),
    Output(CallOutput),
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
#[serde(tag = "type", rename = "function_call")]
pub(super) struct FunctionCall {
    call_id: String,
    name: String,
    arguments: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename = "function_call_output")]
pub(super) struct CallOutput {
    call_id: String,
    output: InputContent,
}

/// Writes the items.
pub(super) fn write(messages: &[IndexedMessage], mended: &mut Vec<Mending>) -> Vec<InputItem> {
    let mut writer = ResponsesWriter {
        mended,
        out: Vec::with_capacity(messages.len()),
    };
    for placed in messages {
        writer.add(placed);
    }
    writer.out
}

struct ResponsesWriter<'a> {
    mended: &'a mut Vec<Mending>,
    out: Vec<InputItem>,
}

impl ResponsesWriter<'_> {
    fn add(&mut self, placed: &IndexedMessage) {
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

    fn answer(&mut self, at: usize, block: &Content) {
        let item = match block {
            Content::Text(text) if text.text.is_empty() => return,
            Content::Text(text) => InputItem::Message {
                role: "assistant",
                content: InputContent::Text(text.text.clone()),
            },
            Content::ToolCall(call) => InputItem::Call(call_of(call)),
            _ => return self.left_out(at, block),
        };
        self.out.push(item);
    }

    fn result(&mut self, at: usize, result: &ToolResultMessage) {
        let parts = self.parts(at, &result.content);
        self.out.push(InputItem::Output(CallOutput {
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

fn call_of(call: &ToolCall) -> FunctionCall {
    FunctionCall {
        call_id: call.id.clone(),
        name: call.name.clone(),
        arguments: arguments_text(call),
    }
}
