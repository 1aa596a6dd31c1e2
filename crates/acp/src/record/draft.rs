//! An answer of the model that is not complete.

use std::collections::HashMap;

use loopstore::model::{AgentMessage, AssistantMessage, Content, Extra, Json, Message, ToolCall};
use serde_json::json;

use super::call::ToolState;
use super::{DETAILS, PLAN_TOOL};

/// A part of an answer.
enum DraftPart {
    Text(String),
    Thinking(String),
    Block(Content),
    Call(String),
}

/// The kind of a chunk of text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    Text,
    Thinking,
}

/// An answer that is not complete.
#[derive(Default)]
pub(crate) struct AnswerDraft {
    parts: Vec<DraftPart>,
    /// The id of the message that the last text belongs to.
    message_id: Option<String>,
    /// The results of plans, which have no tool.
    plan_results: Vec<AgentMessage>,
}

impl AnswerDraft {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True if the answer calls a tool.
    pub fn has_calls(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, DraftPart::Call(_)))
    }

    /// True if the answer has this call.
    pub fn has_call(&self, id: &str) -> bool {
        let is_it = |part: &DraftPart| matches!(part, DraftPart::Call(call) if call == id);
        self.parts.iter().any(is_it)
    }

    /// Adds a piece of text.
    pub fn add_text(&mut self, kind: ChunkKind, text: &str, message_id: Option<String>) {
        let is_same = self.message_id == message_id;
        self.message_id = message_id;
        match (self.parts.last_mut(), kind) {
            (Some(DraftPart::Text(last)), ChunkKind::Text)
            | (Some(DraftPart::Thinking(last)), ChunkKind::Thinking)
                if is_same =>
            {
                last.push_str(text);
            }
            (_, ChunkKind::Text) => self.parts.push(DraftPart::Text(text.to_owned())),
            (_, ChunkKind::Thinking) => self.parts.push(DraftPart::Thinking(text.to_owned())),
        }
    }

    pub fn add_block(&mut self, block: Content) {
        self.parts.push(DraftPart::Block(block));
    }

    pub fn add_call(&mut self, id: &str) {
        self.parts.push(DraftPart::Call(id.to_owned()));
    }

    /// Adds a plan as a call of a tool: agents whose tool the protocol shows as a plan send no other update for it.
    pub fn add_plan(&mut self, id: String, entries: Json) {
        let arguments = Json::parse(&format!("{{\"entries\":{}}}", entries.as_str()));
        let mut extra = Extra::default();
        extra.insert(DETAILS, json!({"sessionUpdate": "plan"}).into());
        self.parts
            .push(DraftPart::Block(Content::ToolCall(ToolCall {
                id: id.clone(),
                name: PLAN_TOOL.to_owned(),
                arguments: arguments.unwrap_or(entries),
                extra,
            })));
        let mut result = Message::tool_result(id, "Plan updated");
        if let Message::ToolResult(result) = &mut result {
            PLAN_TOOL.clone_into(&mut result.tool_name);
        }
        self.plan_results.push(result.into());
    }

    /// Returns the answer, and the results that follow it at once.
    pub fn finish(
        self,
        calls: &HashMap<String, ToolState>,
        model: Option<&str>,
        stop_reason: Option<&str>,
    ) -> (AgentMessage, Vec<AgentMessage>) {
        let content = self.parts.into_iter().filter_map(|part| match part {
            DraftPart::Text(text) => Some(Content::text(text)),
            DraftPart::Thinking(text) => Some(Content::thinking(text, None)),
            DraftPart::Block(block) => Some(block),
            DraftPart::Call(id) => calls.get(&id).map(ToolState::block),
        });
        let answer = Message::Assistant(AssistantMessage {
            content: content.collect(),
            model: model.map(str::to_owned),
            stop_reason: stop_reason.map(str::to_owned),
            ..AssistantMessage::default()
        });
        (answer.into(), self.plan_results)
    }
}
