//! The nesting depth of the JSON of a message.

use rig_core::message::{
    AssistantContent, Image, Message, Native, Text, ToolResultContent, UserContent,
};
use serde_json::Value;

/// The largest depth of a message's own JSON. The stored form adds a few levels, and 128 can be read.
pub(crate) const MAX_DEPTH: usize = 100;

/// Returns the depth of the deepest JSON value of a message, without recursion.
pub(crate) fn of(message: &Message) -> usize {
    let mut deepest = Deepest(0);
    match message {
        Message::System { .. } => {}
        Message::User { content } => content.iter().for_each(|block| deepest.user(block)),
        Message::Assistant(turn) => turn
            .content
            .iter()
            .for_each(|block| deepest.assistant(block)),
    }
    deepest.0
}

struct Deepest(usize);

impl Deepest {
    fn values<'a>(&mut self, values: impl IntoIterator<Item = &'a Value>) {
        let mut open: Vec<(&Value, usize)> = values.into_iter().map(|value| (value, 1)).collect();
        while let Some((value, depth)) = open.pop() {
            self.0 = self.0.max(depth);
            match value {
                Value::Array(items) => open.extend(items.iter().map(|inner| (inner, depth + 1))),
                Value::Object(fields) => {
                    open.extend(fields.values().map(|inner| (inner, depth + 1)));
                }
                _ => {}
            }
        }
    }

    fn native(&mut self, native: Option<&Native>) {
        self.values(native.map(|native| &native.item));
    }

    fn text(&mut self, text: &Text) {
        self.native(text.native.as_ref());
    }

    fn image(&mut self, image: &Image) {
        self.native(image.native.as_ref());
    }

    fn user(&mut self, block: &UserContent) {
        match block {
            UserContent::Text(text) => self.text(text),
            UserContent::Image(image) => self.image(image),
            UserContent::Audio(_) => {}
            UserContent::Video(video) => self.values(&video.additional_params),
            UserContent::Document(document) => self.values(&document.additional_params),
            UserContent::ToolResult(result) => {
                for item in &result.content {
                    match item {
                        ToolResultContent::Text(text) => self.text(text),
                        ToolResultContent::Image(image) => self.image(image),
                        ToolResultContent::Json { value } => self.values([value]),
                    }
                }
            }
        }
    }

    fn assistant(&mut self, block: &AssistantContent) {
        match block {
            AssistantContent::Text(text) => self.text(text),
            AssistantContent::Reasoning(reasoning) => self.native(reasoning.native.as_ref()),
            AssistantContent::ToolCall(call) => {
                self.values(call.function.arguments.values());
                self.native(call.native.as_ref());
            }
            AssistantContent::Image(image) => self.image(image),
            AssistantContent::Opaque(opaque) => self.values([&opaque.item]),
            _ => {}
        }
    }
}
