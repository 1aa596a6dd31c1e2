//! Calls of tools that OpenAI defines and that the caller executes (computer, shell, patches) or approves (MCP), and
//! their results.
//!
//! They become ordinary calls and results, so that both are kept together, and each keeps its whole item, which must be
//! sent back.

use super::ReadResult;
use super::blocks::{arguments, result};
use super::node::{JsonNode, NodeFields};
use loopstore_model::{AgentMessage, Content, Extra, Json, Message, ToolCall};

const APPROVAL: &str = "mcp_approval_request";
const APPROVED: &str = "mcp_approval_response";
/// An item whose field `id` is the id of the call.
const LOCAL_SHELL: &str = "local_shell_call_output";

/// True if an item is such a call.
pub(super) fn is_hosted_call(kind: &str, fields: &NodeFields<'_>) -> bool {
    kind == APPROVAL || kind.ends_with("_call") && fields.has("call_id")
}

/// True if an item is the result of such a call.
pub(super) fn is_hosted_output(kind: &str, fields: &NodeFields<'_>) -> bool {
    let is_output = kind.ends_with("_call_output") || kind == "tool_search_output";
    kind == APPROVED || kind == LOCAL_SHELL || is_output && fields.has("call_id")
}

/// Reads such a call, whose arguments are in one of a few fields.
pub(super) fn hosted_call(
    node: &JsonNode<'_>,
    kind: &str,
    mut fields: NodeFields<'_>,
) -> ReadResult<Content> {
    let is_approval = kind == APPROVAL;
    let id = if is_approval { "id" } else { "call_id" };
    let id = fields.need(id)?.id()?;
    let name = match is_approval {
        true => APPROVAL,
        false => kind.trim_end_matches("_call"),
    };
    let given = ["action", "actions", "operation", "arguments", "input"];
    let given = given.into_iter().find_map(|key| fields.take(key));
    let arguments = match given {
        Some(given) if given.is_text() => arguments(given.text()?),
        Some(given) => given.json()?,
        None => Json::null(),
    };
    let mut extra = Extra::default();
    node.keep_whole_in(&mut extra)?;
    Ok(Content::ToolCall(ToolCall {
        id,
        name: name.to_owned(),
        arguments,
        extra,
    }))
}

/// Reads the result of such a call: its readable text, and the whole item.
pub(super) fn hosted_output(
    node: &JsonNode<'_>,
    kind: &str,
    mut fields: NodeFields<'_>,
) -> ReadResult<AgentMessage> {
    let is_approval = kind == APPROVED;
    let id = match kind {
        APPROVED => "approval_request_id",
        LOCAL_SHELL if !fields.has("call_id") => "id",
        _ => "call_id",
    };
    let id = fields.need(id)?.id()?;
    let text = if is_approval {
        let is_approved = fields.need("approve")?.flag()?;
        let reason = fields.text("reason")?.unwrap_or_default();
        let word = if is_approved { "approved" } else { "denied" };
        format!("{word} {reason}").trim_end().to_owned()
    } else {
        match fields.take("output") {
            Some(output) => readable(&output)?,
            None => String::new(),
        }
    };
    let status = fields.text("status")?;
    let mut content = vec![node.whole()?];
    if !text.is_empty() {
        content.insert(0, Content::text(text));
    }
    let is_error = status.is_some_and(|status| status == "failed");
    Ok(Message::ToolResult(result(id, content, is_error)).into())
}

/// Returns the text of an output: its own, or the output of each command.
fn readable(output: &JsonNode<'_>) -> ReadResult<String> {
    if output.is_text() {
        return output.text().map(str::to_owned);
    }
    let mut texts = Vec::new();
    if output.is_list() {
        for piece in output.list()? {
            let mut piece = piece.fields()?;
            for stream in ["stdout", "stderr"] {
                texts.extend(piece.text(stream)?.filter(|text| !text.is_empty()));
            }
        }
    }
    Ok(texts.join("\n"))
}
