//! The tool uses of a conversation, and those that a report refers to.

use std::collections::{HashMap, HashSet};

use super::{BlockPlace, EditedRequest, ResolvedEdits, ResolvedToolUse, UnresolvedEdit, reported};
use crate::Form;
use crate::faults::Pairing;
use crate::kept::hosted_item;
use crate::server_block::ServerBlock;
use crate::write::{anthropic_tool_name, kept_item};
use loopstore_model::{AgentMessage, ClearedToolUses, Content, Message, ToolCall};

/// A tool use of a conversation.
struct ToolUse {
    id: String,
    /// The name of the tool.
    name: String,
    call: BlockPlace,
    result: Vec<BlockPlace>,
}

/// Adds the tool uses of an edit.
pub(super) fn resolve(
    edit: &ClearedToolUses,
    request: &EditedRequest<'_>,
    resolved: &mut ResolvedEdits,
) {
    let named = edit.tool_call_ids.as_deref();
    let count = reported(&edit.count).max(named.map_or(0, |ids| ids.len() as u64));
    let uses = tool_uses(request);
    let taken: HashSet<BlockPlace> = resolved.tool_uses.iter().map(|found| found.call).collect();
    let is_left = |found: &&ToolUse| !taken.contains(&found.call);
    let picked: Vec<&ToolUse> = match named {
        Some(ids) => of_ids(uses.iter().filter(is_left), ids),
        None => oldest(&uses, count, request, is_left),
    };
    let missing = count.saturating_sub(picked.len() as u64);
    let setting = request.setting.and_then(|all| all.clear_tool_uses.as_ref());
    for found in picked {
        if request.is_cleared(&found.result) {
            resolved.repeated_tool_uses += 1;
            continue;
        }
        let inputs = setting.map(|setting| &setting.clear_tool_inputs);
        resolved.tool_uses.push(ResolvedToolUse {
            tool_call_id: found.id.clone(),
            call: found.call,
            is_input_cleared: inputs.is_some_and(|inputs| inputs.includes(&found.name)),
            result: found.result.clone(),
        });
    }
    if missing > 0 {
        let missing = UnresolvedEdit::ToolUses(missing);
        resolved.unresolved.push(missing);
    }
}

/// Returns the tool uses with these ids: for an id that several calls have, the oldest.
fn of_ids<'a>(uses: impl Iterator<Item = &'a ToolUse>, ids: &[String]) -> Vec<&'a ToolUse> {
    let mut by_id: HashMap<&str, Vec<&ToolUse>> = HashMap::new();
    for found in uses {
        by_id.entry(&found.id).or_default().push(found);
    }
    let mut next = |id: &String| {
        let with_id = by_id.get_mut(id.as_str())?;
        (!with_id.is_empty()).then(|| with_id.remove(0))
    };
    ids.iter().filter_map(&mut next).collect()
}

/// Returns the `count` oldest tool uses that the setting does not keep.
fn oldest<'a>(
    uses: &'a [ToolUse],
    count: u64,
    request: &EditedRequest<'_>,
    is_left: impl Fn(&&ToolUse) -> bool,
) -> Vec<&'a ToolUse> {
    let setting = request.setting.and_then(|all| all.clear_tool_uses.as_ref());
    // Of excluded tools too: if the provider keeps `keep` others, it clears no more than these.
    let kept = setting.map_or(0, |setting| setting.kept());
    let is_excluded = |found: &&ToolUse| {
        setting.is_some_and(|setting| {
            let mut excluded = setting.exclude_tools.iter();
            excluded.any(|name| *name == found.name || *name == anthropic_tool_name(&found.name))
        })
    };
    let is_counted =
        |found: &&ToolUse| request.counts_cleared || !request.is_cleared(&found.result);
    uses[..uses.len().saturating_sub(kept)]
        .iter()
        .filter(|found| !is_excluded(found) && is_counted(found) && is_left(found))
        .take(usize::try_from(count).unwrap_or(usize::MAX))
        .collect()
}

/// Returns the tool uses of a request in order.
fn tool_uses(request: &EditedRequest<'_>) -> Vec<ToolUse> {
    let conversation = &request.conversation;
    let pairing = Pairing::of(conversation.messages);
    let server_results = server_results(request);
    let mut uses = Vec::new();
    for (at, message) in request.messages() {
        let Some(Message::Assistant(answer)) = message.message() else {
            continue;
        };
        let is_call = |block: &&Content| matches!(block, Content::ToolCall(_));
        for (block, content) in request.blocks(at) {
            let call = BlockPlace { message: at, block };
            match content {
                Content::ToolCall(tool) => {
                    let nth = answer.content[..block].iter().filter(is_call).count();
                    let result = pairing.newest_result((at, nth));
                    uses.extend(own_use(tool, call, result, conversation.messages));
                }
                Content::Other(_) => {
                    uses.extend(server_use(content, call, &server_results));
                }
                _ => {}
            }
        }
    }
    uses
}

/// Returns a tool use of the caller, with the message of its result; `None` for the call of another provider's tool.
fn own_use(
    tool: &ToolCall,
    call: BlockPlace,
    result: Option<usize>,
    messages: &[AgentMessage],
) -> Option<ToolUse> {
    if result.is_none() && hosted_item(tool).is_some() {
        return None;
    }
    let blocks = |message: usize| {
        let content = messages.get(message).and_then(AgentMessage::message);
        let count = content.map_or(0, |message| message.content().len());
        (0..count).map(move |block| BlockPlace { message, block })
    };
    Some(ToolUse {
        id: tool.id.clone(),
        name: tool.name.clone(),
        call,
        result: result.into_iter().flat_map(blocks).collect(),
    })
}

/// Returns the use of a tool that the provider ran itself, if it has a result.
fn server_use(
    block: &Content,
    call: BlockPlace,
    results: &HashMap<String, BlockPlace>,
) -> Option<ToolUse> {
    match server_block(block)? {
        ServerBlock::Use(id, name) => {
            let result = results.get(&id).filter(|result| **result > call)?;
            Some(ToolUse {
                result: vec![*result],
                id,
                name,
                call,
            })
        }
        ServerBlock::Result(_) => None,
    }
}

/// Returns the results of tools that the provider ran itself, by the ids of their calls.
fn server_results(request: &EditedRequest<'_>) -> HashMap<String, BlockPlace> {
    let mut results = HashMap::new();
    for (message, _) in request.messages() {
        for (block, content) in request.blocks(message) {
            if let Some(ServerBlock::Result(id)) = server_block(content) {
                results.insert(id, BlockPlace { message, block });
            }
        }
    }
    results
}

fn server_block(block: &Content) -> Option<ServerBlock> {
    match block {
        Content::Other(_) => ServerBlock::of(&kept_item(block, Form::Anthropic)?),
        _ => None,
    }
}
