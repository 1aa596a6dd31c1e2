//! Readers that the forms share: images, arguments, usage, system messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ReadResult;
use super::node::{JsonNode, NodeFields};
use loopstore_model::{
    AgentMessage, Content, Extra, Image, Json, Message, Text, ToolResultMessage, Usage,
};

/// Reads content: a text, or a list of which `part` reads each element. Empty texts are left out, as no provider
/// accepts them.
pub(super) fn content(
    node: &JsonNode<'_>,
    part: impl Fn(&JsonNode<'_>) -> ReadResult<Content>,
) -> ReadResult<Vec<Content>> {
    let read = if node.is_text() {
        vec![Content::text(node.text()?)]
    } else if node.is_list() {
        node.list()?.iter().map(part).collect::<ReadResult<_>>()?
    } else {
        return Err(node.wrong_type("a text or a list"));
    };
    let is_not_empty =
        |block: &Content| !matches!(block, Content::Text(text) if text.text.is_empty());
    Ok(read.into_iter().filter(is_not_empty).collect())
}

/// Reads a text block whose text is in the field `key`.
pub(super) fn text(mut fields: NodeFields<'_>, key: &'static str) -> ReadResult<Content> {
    let text = fields.need(key)?.text()?.to_owned();
    let mut extra = Extra::default();
    fields.keep_rest(&mut extra)?;
    Ok(Content::Text(Text { text, extra }))
}

/// Reads a text with which the model refuses to answer.
pub(super) fn refusal(fields: NodeFields<'_>) -> ReadResult<Content> {
    text(fields, "refusal").map(as_refusal)
}

/// Marks a text as a refusal.
pub(super) fn as_refusal(mut block: Content) -> Content {
    if let Content::Text(text) = &mut block {
        text.extra.insert("form", Json::string("refusal"));
    }
    block
}

/// Reads an image from its base64 data.
pub(super) fn image(
    data: &JsonNode<'_>,
    media_type: &JsonNode<'_>,
    extra: Extra,
) -> ReadResult<Content> {
    image_of(data, data.text()?, media_type.text()?, extra)
}

/// Reads an image from a data URL. An image at another URL could change or disappear, and no message would show what
/// the model saw.
pub(super) fn data_image(url: &JsonNode<'_>, extra: Extra) -> ReadResult<Content> {
    let Some(rest) = url.text()?.strip_prefix("data:") else {
        return Err(url.unsupported("image by URL", url.text()?));
    };
    let parts = rest.split_once(";base64,");
    let (media_type, data) = parts.ok_or_else(|| url.invalid("a data URL without base64 data"))?;
    let media_type = media_type.split(';').next().unwrap_or_default();
    image_of(url, data, media_type, extra)
}

fn image_of(
    node: &JsonNode<'_>,
    data: &str,
    media_type: &str,
    extra: Extra,
) -> ReadResult<Content> {
    if !media_type.to_ascii_lowercase().starts_with("image/") {
        return Err(node.unsupported("image of the type", media_type));
    }
    if data.is_empty() || STANDARD.decode(data).is_err() {
        return Err(node.invalid("the image is not base64"));
    }
    Ok(Content::Image(Image {
        data: data.to_owned(),
        mime_type: media_type.to_owned(),
        extra,
    }))
}

/// Returns the arguments that the model wrote: JSON, or the text that it wrote instead of JSON.
pub(super) fn arguments(text: &str) -> Json {
    match Json::parse(text) {
        _ if text.is_empty() => Json::null(),
        Ok(json) if !json.is_null() && !json.as_str().starts_with('"') => json,
        _ => Json::string(text),
    }
}

/// Returns a system message. Its content, a text or a list of texts, is kept unchanged.
pub(super) fn system(
    role: &str,
    content: &JsonNode<'_>,
    part: impl Fn(&JsonNode<'_>) -> ReadResult<Content>,
) -> ReadResult<AgentMessage> {
    self::content(content, part)?;
    let mut message = AgentMessage::extension("system", content.json_in("content")?);
    if role != "system" {
        message.extra_mut().insert("form", Json::string(role));
    }
    Ok(message)
}

/// Returns the result of a call. The name of its tool is set later, from the call.
pub(super) fn result(
    tool_call_id: String,
    content: Vec<Content>,
    is_error: bool,
) -> ToolResultMessage {
    ToolResultMessage {
        tool_call_id,
        content,
        is_error,
        ..ToolResultMessage::default()
    }
}

/// Returns a message with its unknown fields.
pub(super) fn with_rest(message: Message, fields: &NodeFields<'_>) -> ReadResult<AgentMessage> {
    let mut message = AgentMessage::from(message);
    fields.keep_rest(message.extra_mut())?;
    Ok(message)
}

/// The names of the fields of usage in OpenAI's two APIs.
pub(super) struct UsageNames {
    pub(super) input: &'static str,
    pub(super) input_details: &'static str,
    pub(super) output: &'static str,
    pub(super) output_details: &'static str,
}

/// Reads the usage of OpenAI, whose input includes cached tokens; that of [`Usage`] does not.
pub(super) fn openai_usage(node: &JsonNode<'_>, names: &UsageNames) -> ReadResult<Usage> {
    let mut fields = node.fields()?;
    let input = fields.need(names.input)?.count()?;
    let output = fields.need(names.output)?.count()?;
    let mut extra = Extra::default();
    let mut detail = |name: &'static str, key: &'static str| -> ReadResult<Option<i64>> {
        let Some(node) = fields.take(name) else {
            return Ok(None);
        };
        let mut details = node.fields()?;
        let count = details.count(key)?;
        details.keep_rest_as(name, &mut extra)?;
        Ok(count)
    };
    let cached = detail(names.input_details, "cached_tokens")?;
    let reasoning = detail(names.output_details, "reasoning_tokens")?;
    let total = fields.count("total_tokens")?;
    Ok(Usage {
        input: input.saturating_sub(cached.unwrap_or(0)).max(0).into(),
        output: output.into(),
        reasoning: reasoning.map(Into::into),
        cache_read: cached.map(Into::into),
        cache_write: None,
        total_tokens: total.map(Into::into),
        extra: usage_extra(fields, extra)?,
    })
}

/// Keeps the other fields of usage. `cost` is put where reports expect it.
pub(super) fn usage_extra(mut fields: NodeFields<'_>, mut extra: Extra) -> ReadResult<Extra> {
    if let Some(cost) = fields.take("cost") {
        cost.number()?;
        extra.insert("cost", cost.json()?);
    }
    fields.keep_rest(&mut extra)?;
    Ok(extra)
}
