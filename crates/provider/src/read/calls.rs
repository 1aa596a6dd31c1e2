//! Readers of the parts of a call that the forms share.

use super::ReadResult;
use super::blocks::arguments;
use super::node::{JsonNode, NodeFields};
use loopstore_model::Json;
use loopstore_model::received::Received;

/// Reads the parts of one call or result, and notes missing or wrong ones.
#[derive(Default)]
pub(super) struct PartReader {
    pub(super) received: Received,
}

impl PartReader {
    /// Reads the id of a call; an empty text if there is none.
    pub(super) fn id(&mut self, fields: &mut NodeFields<'_>, key: &'static str) -> String {
        self.text("id", fields.take(key))
    }

    /// Reads the id of the call of a result; an empty text if there is none.
    pub(super) fn answered(&mut self, fields: &mut NodeFields<'_>, key: &'static str) -> String {
        self.text("tool_call_id", fields.take(key))
    }

    /// Reads the name of a tool; an empty text if there is none.
    pub(super) fn name(&mut self, fields: &mut NodeFields<'_>) -> String {
        self.text("name", fields.take("name"))
    }

    fn text(&mut self, what: &'static str, node: Option<JsonNode<'_>>) -> String {
        let Some(node) = node else {
            self.received.note(what, "missing");
            return String::new();
        };
        match node.text() {
            Ok("") => self.received.note(what, "empty"),
            Ok(text) => return text.to_owned(),
            Err(_) => self.received.note(what, node.type_word()),
        }
        node.number_text().unwrap_or_default()
    }

    /// Reads arguments that must be the text of JSON.
    pub(super) fn arguments(
        &mut self,
        node: Option<JsonNode<'_>>,
        key: &'static str,
    ) -> ReadResult<Json> {
        let Some(node) = node else {
            self.received.note(key, "missing");
            return Ok(Json::null());
        };
        match node.text() {
            Ok(text) => Ok(arguments(text)),
            Err(_) => {
                self.received.note(key, node.type_word());
                node.json()
            }
        }
    }

    /// Reads arguments that must be an object.
    pub(super) fn object(
        &mut self,
        node: Option<JsonNode<'_>>,
        key: &'static str,
    ) -> ReadResult<Json> {
        match node {
            Some(node) if node.is_object() => node.json(),
            Some(node) if node.is_text() => {
                self.received.note(key, node.type_word());
                node.text().map(arguments)
            }
            node => self.arguments(node, key),
        }
    }
}
