//! Reads values that several formats have in common: texts, images, arguments, tokens, and fields that are kept.

use loopstore::model::{
    AgentMessage, Content, Extra, Int, Json, LoopId, Message, SessionId, Time, ToolCall, Usage,
    UserMessage,
};
use loopstore_provider::reasoning;
use serde_json::value::RawValue;

use super::decode::replace_lone;
use super::fields::{Fields, list, reason, some};

/// Returns a block of Anthropic's encrypted thinking, which only Anthropic can read.
pub(super) fn redacted_thinking(block: &Json) -> Option<Content> {
    #[derive(serde::Deserialize)]
    struct Block {
        r#type: String,
        data: String,
    }
    let read: Block = block.read().ok()?;
    let is_sealed = read.r#type == "redacted_thinking" && !read.data.is_empty();
    is_sealed.then(|| Content::sealed("anthropic", block.clone()))
}

/// Returns a block of encrypted thinking from its data alone, for formats that have their own form of it.
pub(super) fn redacted_thinking_of(data: &str) -> Option<Content> {
    let data = Json::string(data);
    let block = format!(r#"{{"type":"redacted_thinking","data":{}}}"#, data.as_str());
    redacted_thinking(&Json::parse(&block).ok()?)
}

/// True if an item of Responses has content that only OpenAI can read.
pub(super) fn is_encrypted(item: &Fields<'_>) -> bool {
    let text = item.text("encrypted_content");
    text.is_some_and(|text| !text.is_empty())
}

/// Parses a whole value.
pub(super) fn json(raw: &RawValue) -> Result<Json, String> {
    Json::parse(raw.get()).map_err(reason)
}

/// Returns `extra` as an object; as a text if it would nest too deep.
pub(super) fn object_of(extra: &Extra) -> Json {
    let field =
        |(key, value): (&str, &Json)| format!("{}:{}", Json::string(key).as_str(), value.as_str());
    let text = extra.iter().map(field).collect::<Vec<_>>().join(",");
    let text = format!("{{{text}}}");
    Json::parse(&text).unwrap_or_else(|_| Json::string(&text))
}

/// The maximum number of fields; an object with more is kept as one value.
const MAX_FIELDS: usize = 500;

/// Returns each field as a value; a value that nests too deep becomes a text.
pub(super) fn rest(fields: &Fields<'_>) -> Extra {
    let mut rest = Extra::default();
    if fields.iter().nth(MAX_FIELDS).is_some() {
        let whole = fields.to_text();
        let value = Json::parse(&whole).unwrap_or_else(|_| Json::string(&whole));
        rest.insert("fields", value);
        return rest;
    }
    for (key, value) in fields.iter() {
        let value = json(value).unwrap_or_else(|_| Json::string(value.get()));
        rest.insert(key, value);
    }
    rest
}

/// A number below this is a time in seconds: as seconds it would be in the year 5138, and as milliseconds it was in
/// 1973, before there were transcripts.
const UNITS: f64 = 1e11;

/// Returns a time since the epoch in milliseconds. The unit (seconds, milliseconds, microseconds or nanoseconds) is
/// derived from the magnitude.
pub(super) fn unix_millis(time: f64) -> Option<i64> {
    let size = time.abs();
    let millis = match size {
        _ if !size.is_finite() => return None,
        _ if size < UNITS => time * 1e3,
        _ if size < UNITS * 1e3 => time,
        _ if size < UNITS * 1e6 => time / 1e3,
        _ => time / 1e6,
    };
    Some(millis.round() as i64)
}

/// Reads a number of milliseconds since the epoch, or of a smaller unit.
pub(super) fn millis(fields: &Fields<'_>, key: &str) -> Option<i64> {
    let time: f64 = fields.read(key)?;
    match time.abs() < UNITS * 1e3 {
        true => Some(time as i64),
        false => unix_millis(time),
    }
}

/// Reads a time: a number of seconds since the epoch or of a smaller unit, or a text.
pub(super) fn time_of(fields: &Fields<'_>, key: &str) -> Option<Time> {
    match fields.read::<f64>(key) {
        Some(time) => unix_millis(time).and_then(Time::from_millis),
        None => fields.text(key).map(Time::from_text),
    }
}

/// Reads the token counts of the fields named in `places` (`input`, `output`, `reasoning`, `cache_read`, `cache_write`,
/// `total_tokens`); other fields are kept.
pub(super) fn usage(mut fields: Fields<'_>, places: [&str; 6]) -> Option<Usage> {
    let [input, output, reasoning, cache_read, cache_write, total] = places.map(|key| {
        let count: Option<Int> = fields.read(key);
        if count.is_some() {
            fields.take(key);
        }
        count
    });
    if [&input, &output, &total]
        .iter()
        .all(|count| count.is_none())
    {
        return None;
    }
    Some(Usage {
        input: input.unwrap_or_default(),
        output: output.unwrap_or_default(),
        reasoning,
        cache_read,
        cache_write,
        total_tokens: total,
        extra: extra_besides(&fields, &USAGE),
    })
}

/// The keys of a usage of loopstore's own.
const USAGE: [&str; 6] = [
    "input",
    "output",
    "reasoning",
    "cache_read",
    "cache_write",
    "total_tokens",
];

fn extra_besides(fields: &Fields<'_>, taken: &[&str]) -> Extra {
    let mut extra = rest(fields);
    for key in taken {
        extra.remove(key);
    }
    extra
}

/// Reads the token usage of OpenAI's APIs, chat or Responses.
pub(super) fn token_usage(mut fields: Fields<'_>) -> Option<Usage> {
    let [input, output] = match fields.get("prompt_tokens") {
        Some(_) => ["prompt_tokens", "completion_tokens"],
        None => ["input_tokens", "output_tokens"],
    };
    let within = |key: &str, detail: &str| fields.object(&format!("{key}_details")).get(detail);
    let cached = within(input, "cached_tokens");
    let reasoning = within(output, "reasoning_tokens");
    let written = fields.get("cache_creation_input_tokens");
    for (key, count) in [
        ("cached", cached),
        ("reasoned", reasoning),
        ("written", written),
    ] {
        if let Some(count) = some(count) {
            fields.set(key, count);
        }
    }
    fields.take("cache_creation_input_tokens");
    let places = [
        input,
        output,
        "reasoned",
        "cached",
        "written",
        "total_tokens",
    ];
    usage(fields, places)
}

/// Translates the reason why the model stopped.
pub(super) fn stop_reason(word: String) -> String {
    match word.as_str() {
        "tool_calls" | "function_call" => "toolUse".into(),
        "max_tokens" => "length".into(),
        _ => word,
    }
}

/// Prepends the thinking of a chat message, which is in a separate field, to its blocks.
pub(super) fn with_thinking(mut message: AgentMessage, fields: &Fields<'_>) -> AgentMessage {
    let Some(Message::Assistant(answer)) = message.message_mut() else {
        return message;
    };
    let blocks = some(fields.get("thinking_blocks")).and_then(list);
    let mut thinking: Vec<Content> = blocks.into_iter().flatten().filter_map(as_it_is).collect();
    if thinking.is_empty() && !answer.content.iter().any(reasoning::is_returned) {
        let texts = reasoning::TEXTS.map(|key| Some((key, fields.text(key)?)));
        let texts = texts
            .into_iter()
            .flatten()
            .filter(|(_, text)| !text.is_empty());
        thinking = reasoning::thinking(texts.collect(), None);
    } else if !thinking.is_empty() {
        // The blocks contain the same thinking, with signatures.
        answer
            .content
            .retain(|block| !reasoning::is_returned(block));
    }
    answer.content.splice(..0, thinking);
    message
}

/// Keeps a block unchanged.
pub(super) fn as_it_is(raw: &RawValue) -> Option<Content> {
    json(raw).ok()?.read().ok()
}

/// Adds the cost of a call, in the provider's currency.
pub(super) fn add_cost(usage: &mut Option<Usage>, cost: Option<&RawValue>) {
    let cost = some(cost).and_then(|cost| json(cost).ok());
    let is_number = |cost: &Json| cost.read::<f64>().is_ok();
    if let Some(cost) = cost.filter(is_number) {
        usage
            .get_or_insert_with(no_usage)
            .extra
            .insert("cost", cost);
    }
}

fn no_usage() -> Usage {
    Usage {
        input: 0.into(),
        output: 0.into(),
        reasoning: None,
        cache_read: None,
        cache_write: None,
        total_tokens: None,
        extra: Extra::default(),
    }
}

/// Reads an image from `data:…;base64,…`.
pub(super) fn data_image(url: &str) -> Option<Content> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    mime_type
        .starts_with("image/")
        .then(|| Content::image(data, mime_type))
}

/// Returns `text` as a session id, if it is valid.
pub(super) fn session_id(text: Option<String>) -> Option<SessionId> {
    SessionId::new(text?).ok()
}

/// Returns `text` as a loop id, if it is valid.
pub(super) fn loop_id(text: impl Into<String>) -> Option<LoopId> {
    LoopId::new(text).ok()
}

/// Returns a string that is not empty.
pub(super) fn text_of(value: Option<&RawValue>) -> Option<String> {
    let text: String = serde_json::from_str(value?.get()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// Reads an object.
pub(super) fn object_in(value: Option<&RawValue>) -> Option<Fields<'_>> {
    Fields::parse(value?.get()).ok()
}

/// Reads a number of tokens.
pub(super) fn count(value: Option<&RawValue>) -> Option<Int> {
    serde_json::from_str(value?.get()).ok()
}

/// Returns a time in milliseconds from ISO-8601 text.
pub(super) fn millis_of(time: Option<&Time>) -> Option<Int> {
    time.and_then(Time::millis).map(Int::from)
}

/// Returns a message of the user.
pub(super) fn user(content: Vec<Content>, timestamp: Option<Int>) -> AgentMessage {
    Message::User(UserMessage {
        content,
        timestamp,
        ..UserMessage::default()
    })
    .into()
}

/// Adds the other fields of a record to its message.
pub(super) fn with_source(mut message: AgentMessage, source: Option<Json>) -> AgentMessage {
    if let Some(source) = source.filter(|source| !source.is_null()) {
        message.extra_mut().insert("source", source);
    }
    message
}

/// Adds the other fields of a record to its message, unless there are none.
pub(super) fn with_extra_source(message: AgentMessage, source: Extra) -> AgentMessage {
    let source = (!source.is_empty()).then(|| object_of(&source));
    with_source(message, source)
}

/// Returns the rest of a record: `outer` without `taken`, with `inner` as the rest of the value of `taken`. `None` if
/// nothing is left.
pub(super) fn rest_within(outer: &Fields<'_>, taken: &str, inner: &Fields<'_>) -> Option<Json> {
    let field =
        |(key, value): (&str, &RawValue)| format!("{}:{}", Json::string(key).as_str(), value.get());
    let fields = outer.iter().filter(|(key, _)| *key != taken);
    let mut fields: Vec<String> = fields.map(field).collect();
    if !inner.is_empty() {
        let key = Json::string(taken);
        fields.push(format!("{}:{}", key.as_str(), inner.to_text()));
    }
    match fields.is_empty() {
        true => None,
        false => Json::parse(&format!("{{{}}}", fields.join(","))).ok(),
    }
}

/// Reads the arguments of a call: the object that a text contains, else the text itself.
pub(super) fn arguments(call: &mut ToolCall, value: Option<&RawValue>) -> Result<(), String> {
    let Some(value) = value else { return Ok(()) };
    let Ok(text) = serde_json::from_str::<String>(value.get()) else {
        call.arguments = json(value)?;
        return Ok(());
    };
    // The text may contain escapes that are valid in the record but not in a text.
    let (mended, _) = replace_lone(&text);
    call.arguments = match Json::parse(&mended) {
        Ok(object) if object.as_str().starts_with('{') => object,
        _ => Json::string(&text),
    };
    if call.arguments.as_str() != text {
        call.extra.insert("argumentsText", Json::string(&text));
    }
    Ok(())
}

/// Returns a call without arguments.
pub(super) fn call(id: String, name: String) -> ToolCall {
    ToolCall {
        id,
        name,
        arguments: Json::null(),
        extra: Extra::default(),
    }
}

/// Reads the image of a `data:` URL.
pub(super) fn data_url(url: &str) -> Option<Content> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Content::image(data, mime_type))
}

/// Keeps a block unchanged.
pub(super) fn other(raw: &RawValue) -> Result<Content, String> {
    json(raw)?.read().map_err(reason)
}

/// Reads content: a text, or a list of blocks that `block` reads. An empty text becomes no block.
pub(super) fn contents(
    value: Option<&RawValue>,
    block: impl Fn(&RawValue) -> Result<Content, String>,
) -> Result<Vec<Content>, String> {
    let Some(value) = value.filter(|value| value.get() != "null") else {
        return Ok(Vec::new());
    };
    if let Ok(text) = serde_json::from_str::<String>(value.get()) {
        return Ok(match text.is_empty() {
            true => Vec::new(),
            false => vec![Content::text(text)],
        });
    }
    match list(value) {
        Some(blocks) => blocks.into_iter().map(block).collect(),
        None => Ok(vec![block(value)?]),
    }
}

/// True if the output of a Codex tool reports a failure.
pub fn reports_failure(plain_text: &str) -> bool {
    if let Ok(fields) = Fields::parse(plain_text) {
        return exit_code_failed(&fields);
    }
    // Codex writes the lines before the output itself.
    let own = plain_text
        .lines()
        .take_while(|line| *line != "Output:")
        .take(8);
    own.filter_map(|line| {
        line.strip_prefix("Process exited with code ")
            .or_else(|| line.strip_prefix("Exit code: "))
    })
    .any(|code| code.trim() != "0")
}

/// True if the metadata of a result has an exit code other than 0.
pub(super) fn exit_code_failed(fields: &Fields<'_>) -> bool {
    let metadata = fields.child("metadata");
    let code = metadata.as_ref().and_then(|m| m.get("exit_code"));
    code.is_some_and(|code| !matches!(code.get(), "0" | "null"))
}
