//! The messages that a step contains.

use loopstore_model::json::json_object;
use loopstore_model::{
    AgentMessage, AssistantMessage, Content, Extra, Int, Json, Message, Time, ToolCall,
    ToolResultMessage, Usage, UserMessage,
};

use crate::form::{Metrics, ObservationResult, Step, StepPart, StepSource};

/// The kind of an extension with a system prompt.
const SYSTEM: &str = "system";

/// The names of token counts in the `extra` of metrics, as providers name them.
pub const REASONING_TOKENS: &str = "reasoning_tokens";
/// Tokens written to the cache.
pub const CACHE_WRITE_TOKENS: &str = "cache_creation_input_tokens";
/// The provider's total.
pub const TOTAL_TOKENS: &str = "total_tokens";
/// The field of a result's `extra` that marks a failed call.
pub const IS_ERROR: &str = "is_error";

json_object! {
    /// An object without known fields.
    pub struct ExtraObject {}
}

/// Returns the message of a step, without its results: a prompt, an answer, or a system prompt.
pub fn message_of(step: &Step) -> AgentMessage {
    let timestamp = (step.timestamp.as_ref())
        .and_then(|text| Time::from_text(text.as_str()).millis())
        .map(Int::from);
    match step.source {
        StepSource::System => {
            let data = format!("{{\"content\":{}}}", step.message.as_str());
            AgentMessage::extension(SYSTEM, Json::parse(&data).unwrap_or_default())
        }
        StepSource::User => Message::User(UserMessage {
            content: content_of(&step.message),
            timestamp,
            author: None,
        })
        .into(),
        StepSource::Agent => Message::Assistant(AssistantMessage {
            content: answer_content(step),
            model: step.model_name.clone(),
            usage: step.metrics.as_ref().and_then(usage_of),
            timestamp,
            ..AssistantMessage::default()
        })
        .into(),
    }
}

fn answer_content(step: &Step) -> Vec<Content> {
    let thinking = step.reasoning_content.iter();
    let thinking = thinking.map(|text| Content::thinking(text.as_str(), None));
    let calls = step.tool_calls.iter().map(|call| {
        let mut extra = Extra::default();
        if let Some(more) = &call.extra {
            extra.insert("extra", more.clone());
        }
        Content::ToolCall(ToolCall {
            id: call.tool_call_id.clone(),
            name: call.function_name.clone(),
            arguments: call.arguments.clone(),
            extra,
        })
    });
    thinking
        .chain(content_of(&step.message))
        .chain(calls)
        .collect()
}

/// Returns a result of a step as the result of a tool call.
pub fn result_of(step: &Step, result: &ObservationResult) -> AgentMessage {
    let id = result.source_call_id.clone().unwrap_or_default();
    let call = step.tool_calls.iter().find(|call| call.tool_call_id == id);
    Message::ToolResult(ToolResultMessage {
        tool_name: call.map_or_else(String::new, |call| call.function_name.clone()),
        tool_call_id: id,
        content: result.content.as_ref().map(content_of).unwrap_or_default(),
        is_error: is_error(result),
        timestamp: None,
        author: None,
    })
    .into()
}

fn is_error(result: &ObservationResult) -> bool {
    let extra = result.extra.as_ref();
    let extra = extra.and_then(|extra| extra.read::<ExtraObject>().ok());
    extra.is_some_and(|extra| {
        let failed = extra.extra.get(IS_ERROR).map(Json::as_str);
        failed == Some("true")
    })
}

/// Returns the blocks of a text or a list of parts. An empty text has none. A part that is neither a text nor an image
/// with its bytes is kept unchanged.
pub fn content_of(message: &Json) -> Vec<Content> {
    if let Ok(text) = message.read::<String>() {
        return match text.is_empty() {
            true => Vec::new(),
            false => vec![Content::text(text)],
        };
    }
    match message.read::<Vec<Json>>() {
        Ok(parts) => parts.into_iter().map(block_of).collect(),
        Err(_) if message.is_null() => Vec::new(),
        Err(_) => vec![block_of(message.clone())],
    }
}

fn block_of(part: Json) -> Content {
    if let Ok(StepPart {
        r#type,
        text: None,
        source: Some(source),
    }) = part.read()
        && r#type == "image"
        && let Some(data) = source.path.strip_prefix("data:")
        && let Some((media_type, data)) = data.split_once(";base64,")
    {
        return Content::image(data, media_type);
    }
    part.read().unwrap_or(Content::Other(part))
}

/// Returns the usage of a call; `None` if the metrics have no number of tokens and no cost.
pub fn usage_of(metrics: &Metrics) -> Option<Usage> {
    let extra = metrics.extra.as_ref();
    let extra = extra.and_then(|extra| extra.read::<ExtraObject>().ok());
    let mut extra = extra.map(|read| read.extra).unwrap_or_default();
    let mut take = |key: &str| {
        let count = extra.get(key)?.read::<i64>().ok()?;
        extra.remove(key);
        Some(count)
    };
    let (reasoning, written) = (take(REASONING_TOKENS), take(CACHE_WRITE_TOKENS));
    let total = take(TOTAL_TOKENS);
    let cost = metrics.cost_usd.clone();
    let cost = cost.filter(|cost| cost.read::<f64>().is_ok());
    let counts = [
        metrics.prompt_tokens,
        metrics.completion_tokens,
        metrics.cached_tokens,
    ];
    if counts.iter().all(Option::is_none) && cost.is_none() {
        return None;
    }
    if let Some(cost) = cost {
        extra.insert("cost", cost);
    }
    // The form counts cached tokens as a part of the prompt.
    let beside = metrics.cached_tokens.unwrap_or(0).max(0);
    let beside = beside.saturating_add(written.unwrap_or(0).max(0));
    let prompt = metrics.prompt_tokens.unwrap_or(0);
    Some(Usage {
        input: prompt.saturating_sub(beside).max(0).into(),
        output: metrics.completion_tokens.unwrap_or(0).into(),
        reasoning: reasoning.map(Int::from),
        cache_read: metrics.cached_tokens.map(Int::from),
        cache_write: written.map(Int::from),
        total_tokens: total.map(Int::from),
        extra,
    })
}
