//! From a report to the tool uses and the thinking that it refers to.
//!
//! The documentation of the provider says that the oldest tool uses are cleared first, that the newest `keep` stay, and
//! that uses of excluded tools stay. It does not define a turn with thinking; `thinking.rs` tries both meanings.

#[cfg(test)]
mod tests;
mod thinking;
mod tool_uses;

use std::collections::HashSet;

use super::ContextManagement;
use crate::Conversation;
use loopstore_model::{AgentMessage, AppliedEdit, AppliedEdits, Content};

/// The position of a block in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockPlace {
    /// The index of the message, from 0.
    pub message: usize,
    /// The index of the block in the message, from 0.
    pub block: usize,
}

/// A request whose answer reported edits.
#[derive(Clone, Debug)]
pub struct EditedRequest<'a> {
    /// The conversation of the request, as it was given to the writer.
    pub conversation: Conversation<'a>,
    /// The setting of the request; `None` if it is not known. Then no tool is taken to be excluded, and any number of
    /// tool uses and turns may have been cleared.
    pub setting: Option<&'a ContextManagement>,
    /// The blocks of the conversation that are known to be cleared: those of tool results, server tool results and
    /// thinking. They may be in the conversation in full or as a marker.
    pub cleared: HashSet<BlockPlace>,
    /// True if the report counts the tool uses and turns of `cleared` again. Anthropic does: it has no memory of
    /// earlier requests, and reports all that it cleared from this one.
    pub counts_cleared: bool,
    /// True if the request contained the thinking of `cleared`, and false if that was left out, as a request leaves it
    /// out that is written from the cleared conversation. `None` if it is not known: then the reported number decides.
    pub sends_cleared_thinking: Option<bool>,
}

impl<'a> EditedRequest<'a> {
    /// Returns the request of a conversation of which nothing was cleared before.
    pub fn new(conversation: Conversation<'a>, setting: Option<&'a ContextManagement>) -> Self {
        Self {
            conversation,
            setting,
            cleared: HashSet::new(),
            counts_cleared: true,
            sends_cleared_thinking: Some(true),
        }
    }

    /// Returns the messages that are sent, with their indices: those from the active compaction on.
    fn messages(&self) -> impl Iterator<Item = (usize, &'a AgentMessage)> {
        let messages = self.conversation.messages.iter().enumerate();
        messages.skip(self.conversation.compaction.unwrap_or(0))
    }

    /// Returns the blocks of a message that are sent, with their indices.
    fn blocks(&self, at: usize) -> impl Iterator<Item = (usize, &'a Content)> {
        let message = self.conversation.messages.get(at);
        let content = message.and_then(AgentMessage::message);
        let blocks = content.map_or(&[][..], |message| message.content());
        let compaction = self.conversation.compaction == Some(at);
        let from = message.filter(|_| compaction);
        let from = from.and_then(AgentMessage::last_compaction);
        blocks.iter().enumerate().skip(from.map_or(0, |(at, _)| at))
    }

    /// True if any of these blocks is known to be cleared.
    fn is_cleared(&self, blocks: &[BlockPlace]) -> bool {
        blocks.iter().any(|place| self.cleared.contains(place))
    }
}

/// A tool use whose result was cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedToolUse {
    /// The id of the call.
    pub tool_call_id: String,
    /// The call.
    pub call: BlockPlace,
    /// True if the arguments of the call were cleared too.
    pub is_input_cleared: bool,
    /// The blocks of the result: of the message that a request contains for the call, or of a tool that the provider
    /// ran itself. Empty if the result has no block.
    pub result: Vec<BlockPlace>,
}

/// A turn of the model whose thinking was cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedThinking {
    /// The blocks of thinking, which the provider leaves out without a marker.
    pub blocks: Vec<BlockPlace>,
}

/// A part of a report that has no counterpart in the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnresolvedEdit {
    /// The number of tool uses that were not found.
    ToolUses(u64),
    /// The number of turns with thinking that were not found.
    Thinking(u64),
    /// An edit of this type, which is not known.
    Other(String),
}

/// The content that a report refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedEdits {
    /// The tool uses that were cleared and were not cleared before, in the order of the conversation.
    pub tool_uses: Vec<ResolvedToolUse>,
    /// The turns whose thinking was cleared and was not cleared before, in the order of the conversation.
    pub thinking: Vec<ResolvedThinking>,
    /// The number of reported tool uses that were cleared before.
    pub repeated_tool_uses: u64,
    /// The number of reported turns whose thinking was cleared before.
    pub repeated_thinking: u64,
    /// The parts of the report without a counterpart.
    pub unresolved: Vec<UnresolvedEdit>,
}

/// Returns the tool uses and thinking of a request that a report refers to.
///
/// Of the tool uses that are not excluded the oldest are taken, as many as were reported, and none of the newest that
/// the setting keeps. If the report names calls, these are taken instead. A server tool without a result is no tool
/// use, since it is not sent. The numbers of tool uses found, repeated and unresolved add up to the reported number,
/// and those of thinking turns too.
///
/// ```
/// use loopstore_model::{AgentMessage, AppliedEdit, AppliedEdits, ClearedToolUses, Message};
/// use loopstore_provider::Conversation;
/// use loopstore_provider::context_management::{EditedRequest, resolve};
/// use serde_json::json;
///
/// let messages: [AgentMessage; 5] = [
///     Message::user("Will it rain?").into(),
///     Message::assistant("").with_tool_call("c1", "forecast", json!({"days": 1})).into(),
///     Message::tool_result("c1", "Rain.").into(),
///     Message::assistant("").with_tool_call("c2", "forecast", json!({"days": 2})).into(),
///     Message::tool_result("c2", "Sun.").into(),
/// ];
/// let request = EditedRequest::new(Conversation::of(&messages), None);
/// let cleared = vec![AppliedEdit::ClearedToolUses(ClearedToolUses::new(1))];
/// let resolved = resolve(&AppliedEdits::new("provider:anthropic", cleared), &request);
/// assert_eq!(resolved.tool_uses[0].tool_call_id, "c1");
/// assert_eq!(resolved.tool_uses[0].result[0].message, 2);
/// ```
pub fn resolve(report: &AppliedEdits, request: &EditedRequest<'_>) -> ResolvedEdits {
    let mut resolved = ResolvedEdits::default();
    for edit in &report.edits {
        match edit {
            AppliedEdit::ClearedToolUses(edit) => {
                tool_uses::resolve(edit, request, &mut resolved);
            }
            AppliedEdit::ClearedThinking(edit) => {
                thinking::resolve(edit, request, &mut resolved);
            }
            AppliedEdit::Other(edit) => {
                let name = edit.type_name().unwrap_or_default();
                resolved.unresolved.push(UnresolvedEdit::Other(name));
            }
        }
    }
    resolved.tool_uses.sort_by_key(|found| found.call);
    resolved
}

/// Returns a reported number.
fn reported(count: &loopstore_model::Int) -> u64 {
    count.get().try_into().unwrap_or(0)
}
