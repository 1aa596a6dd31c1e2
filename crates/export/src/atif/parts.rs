//! Messages as the parts of steps.

use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Extra, Image, Json, LlmMessage, Message, Time,
    ToolResultMessage, Usage,
};
use loopstore_atif::form::{
    IMAGE_TYPES, MediaSource, Metrics, ObservationResult, Step, StepCall, StepPart, StepSource,
};
use loopstore_atif::messages::{
    CACHE_WRITE_TOKENS, ExtraObject, IS_ERROR, REASONING_TOKENS, TOTAL_TOKENS,
};
use loopstore_model::tokens::reported_tokens;

use crate::omissions::{OmissionCounts, OmissionKind};

/// The kind of an extension with a system prompt.
const SYSTEM: &str = "system";

/// Returns the step of a prompt, an answer or a system prompt; `None` for a result and for a record that no model sees.
pub(super) fn step_of(message: &AgentMessage, omitted: &mut OmissionCounts) -> Option<Step> {
    let llm = match message {
        AgentMessage::Extension(extension) => {
            let is_prompt = extension.kind == SYSTEM;
            return is_prompt.then(|| Step::new(StepSource::System, system_text(&extension.data)));
        }
        AgentMessage::Llm(llm) => llm,
    };
    let mut step = match &llm.message {
        Message::User(user) => Step::new(StepSource::User, content(&user.content, omitted)),
        Message::Assistant(answer) => answer_step(answer, omitted),
        Message::ToolResult(_) => return None,
    };
    note_fields(llm, omitted);
    step.timestamp = llm.message.timestamp().and_then(time_text);
    Some(step)
}

/// Returns the text or the parts of a system prompt.
fn system_text(data: &Json) -> Json {
    if data.as_str().starts_with('"') {
        return data.clone();
    }
    let content = data.read::<ExtraObject>().ok();
    let content = content.and_then(|mut fields| fields.extra.remove("content"));
    match content {
        Some(content) if content.as_str().starts_with('"') => content,
        content => {
            let parts = content.and_then(|parts| parts.read::<Vec<StepPart>>().ok());
            let texts = parts.into_iter().flatten().filter_map(|part| part.text);
            Json::string(&texts.collect::<Vec<_>>().join("\n\n"))
        }
    }
}

fn answer_step(answer: &AssistantMessage, omitted: &mut OmissionCounts) -> Step {
    let mut step = Step::new(StepSource::Agent, content(&answer.content, omitted));
    let mut thinking: Vec<String> = Vec::new();
    for block in &answer.content {
        match block {
            Content::Thinking(block) => thinking.push(block.thinking.clone()),
            Content::Sealed(sealed) => thinking.extend(sealed.readable()),
            Content::ToolCall(call) => {
                let is_object = call.arguments.as_str().starts_with('{');
                let empty = || Json::from(serde_json::json!({}));
                // The text of the value, whose numbers may be out of range for a `Value`.
                let raw = format!("{{\"arguments\":{}}}", call.arguments.as_str());
                if !is_object {
                    omitted.add(OmissionKind::Arguments);
                }
                step.tool_calls.push(StepCall {
                    tool_call_id: call.id.clone(),
                    function_name: call.name.clone(),
                    arguments: match is_object {
                        true => call.arguments.clone(),
                        false => empty(),
                    },
                    extra: if is_object {
                        None
                    } else {
                        Json::parse(&raw).ok()
                    },
                });
            }
            Content::Text(_) | Content::Image(_) | Content::Other(_) => {}
        }
    }
    let thinking = thinking.join("\n\n");
    step.reasoning_content = (!thinking.is_empty()).then_some(thinking);
    step.model_name.clone_from(&answer.model);
    step.metrics = answer.usage.as_ref().map(metrics);
    step
}

/// Returns a result; `has_call` is true if its call is in the same step.
pub(super) fn result_of(
    llm: &LlmMessage,
    result: &ToolResultMessage,
    has_call: bool,
    omitted: &mut OmissionCounts,
) -> ObservationResult {
    note_fields(llm, omitted);
    let mut extra = Extra::default();
    if result.is_error {
        extra.insert(IS_ERROR, Json::from(serde_json::json!(true)));
    }
    if !has_call {
        omitted.add(OmissionKind::SeparateResult);
        extra.insert("tool_call_id", Json::string(&result.tool_call_id));
        extra.insert("function_name", Json::string(&result.tool_name));
    }
    ObservationResult {
        source_call_id: has_call.then(|| result.tool_call_id.clone()),
        content: Some(content(&result.content, omitted)),
        subagent_trajectory_ref: Vec::new(),
        extra: object(extra),
    }
}

fn object(extra: Extra) -> Option<Json> {
    match extra.is_empty() {
        true => None,
        false => Json::of(&ExtraObject { extra }).ok(),
    }
}

/// Counts a message with fields that a step does not have.
fn note_fields(llm: &LlmMessage, omitted: &mut OmissionCounts) {
    let has_author = match &llm.message {
        Message::User(user) => user.author.is_some(),
        Message::Assistant(answer) => {
            let words = [&answer.stop_reason, &answer.provider, &answer.error_message];
            answer.author.is_some() || words.iter().any(|word| word.is_some())
        }
        Message::ToolResult(result) => result.author.is_some() || result.timestamp.is_some(),
    };
    if has_author || llm.turn_id.is_some() || !llm.extra.is_empty() {
        omitted.add(OmissionKind::MessageFields);
    }
}

/// Returns the texts and images of a message: a text if there is only one, else a list of parts.
pub(super) fn content(blocks: &[Content], omitted: &mut OmissionCounts) -> Json {
    let mut parts: Vec<StepPart> = Vec::new();
    for block in blocks {
        let fields = match block {
            Content::Text(text) => {
                parts.push(text_part(text.text.clone()));
                &text.extra
            }
            Content::Image(image) => {
                parts.push(image_part(image, omitted));
                &image.extra
            }
            Content::Thinking(thinking) => {
                if thinking.signature.is_some() {
                    omitted.add(OmissionKind::ThinkingSignature);
                }
                &thinking.extra
            }
            Content::ToolCall(call) => &call.extra,
            Content::Sealed(sealed) => {
                omitted.add(OmissionKind::SealedItem);
                &sealed.extra
            }
            Content::Other(_) => {
                omitted.add(OmissionKind::UnknownBlock);
                continue;
            }
        };
        if !fields.is_empty() {
            omitted.add(OmissionKind::BlockFields);
        }
    }
    match &*parts {
        [] => Json::string(""),
        [part] if part.text.is_some() => Json::string(part.text.as_deref().unwrap_or_default()),
        parts => Json::of(parts).unwrap_or_default(),
    }
}

fn text_part(text: String) -> StepPart {
    StepPart {
        r#type: "text".into(),
        text: Some(text),
        source: None,
    }
}

/// Returns an image, or a text in its place if the form cannot represent it.
fn image_part(image: &Image, omitted: &mut OmissionCounts) -> StepPart {
    if image.data.is_empty() || !IMAGE_TYPES.contains(&&*image.mime_type) {
        omitted.add(OmissionKind::Image);
        return text_part(format!("[image: {}]", image.mime_type));
    }
    StepPart {
        r#type: "image".into(),
        text: None,
        source: Some(MediaSource {
            media_type: image.mime_type.clone(),
            path: format!("data:{};base64,{}", image.mime_type, image.data),
        }),
    }
}

/// Returns the tokens of a call. The form counts cached tokens as a part of the prompt.
fn metrics(usage: &Usage) -> Metrics {
    let output = usage.output.get();
    let reported = reported_tokens(usage).and_then(|all| i64::try_from(all).ok());
    let input = usage.input.get();
    let mut extra = usage.extra.clone();
    for (key, count) in [
        (REASONING_TOKENS, &usage.reasoning),
        (CACHE_WRITE_TOKENS, &usage.cache_write),
        (TOTAL_TOKENS, &usage.total_tokens),
    ] {
        if let Some(count) = count {
            extra.insert(key, Json::from(serde_json::json!(count.get())));
        }
    }
    let cost = extra.get("cost").cloned();
    let is_finite = |cost: &Json| cost.read::<f64>().is_ok_and(f64::is_finite);
    let cost = cost.filter(is_finite);
    if cost.is_some() {
        extra.remove("cost");
    }
    Metrics {
        prompt_tokens: Some(reported.map_or(input, |all| all.saturating_sub(output))),
        completion_tokens: Some(output),
        cached_tokens: usage.cache_read.as_ref().map(|count| count.get()),
        cost_usd: cost,
        extra: object(extra),
    }
}

/// Returns a time in the form that readers of the format accept; `None` if its year is not from 1 to 9999.
pub(super) fn time_text(millis: i64) -> Option<String> {
    let time = Time::from_millis(millis)?.sortable()?;
    (!time.starts_with("0000")).then_some(time)
}
