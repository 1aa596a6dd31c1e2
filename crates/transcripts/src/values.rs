//! Readings of a record's values that several formats have in common: texts, images, arguments,
//! tokens, and what is kept besides.

use loopstore::model::{
    AgentMessage, Content, Extra, Int, Json, LoopId, Message, SessionId, Time, ToolCall, Usage,
    UserMessage,
};
use loopstore_provider::reasoning;
use serde_json::value::RawValue;

use super::decode::replace_lone;
use super::fields::{Fields, list, reason, some};

/// Returns a block of Anthropic's, if it is thinking that only they can read.
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

/// Returns such a block from its data alone, as those keep it who have a form of their own.
pub(super) fn redacted_thinking_of(data: &str) -> Option<Content> {
    let data = Json::string(data);
    let block = format!(r#"{{"type":"redacted_thinking","data":{}}}"#, data.as_str());
    redacted_thinking(&Json::parse(&block).ok()?)
}

/// True if an item of Responses holds what only OpenAI can read.
pub(super) fn is_encrypted(item: &Fields<'_>) -> bool {
    let text = item.text("encrypted_content");
    text.is_some_and(|text| !text.is_empty())
}

/// Reads a whole value.
pub(super) fn json(raw: &RawValue) -> Result<Json, String> {
    Json::parse(raw.get()).map_err(reason)
}

/// Returns the object that `extra` is; one that would nest too deep becomes a text.
pub(super) fn object_of(extra: &Extra) -> Json {
    let field =
        |(key, value): (&str, &Json)| format!("{}:{}", Json::string(key).as_str(), value.as_str());
    let text = extra.iter().map(field).collect::<Vec<_>>().join(",");
    let text = format!("{{{text}}}");
    Json::parse(&text).unwrap_or_else(|_| Json::string(&text))
}

/// An object with more fields than this is kept as one value.
const MAX_FIELDS: usize = 500;

/// Returns the fields as they are, each as a value; one that nests too deep becomes a text.
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

/// A time of this many units since the epoch, or more, is not in seconds: it would be in the year 5138. That
/// many milliseconds were in 1973, before there were transcripts.
const UNITS: f64 = 1e11;

/// Returns the milliseconds of a time since the epoch whose unit (seconds, milliseconds, microseconds or
/// nanoseconds) shows in its size.
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

/// Reads a number of milliseconds since the epoch, or of smaller units.
pub(super) fn millis(fields: &Fields<'_>, key: &str) -> Option<i64> {
    let time: f64 = fields.read(key)?;
    match time.abs() < UNITS * 1e3 {
        true => Some(time as i64),
        false => unix_millis(time),
    }
}

/// Reads a number of seconds since the epoch, or of smaller units, or a time as text.
pub(super) fn time_of(fields: &Fields<'_>, key: &str) -> Option<Time> {
    match fields.read::<f64>(key) {
        Some(time) => unix_millis(time).and_then(Time::from_millis),
        None => fields.text(key).map(Time::from_text),
    }
}

/// Reads the token counts named in `places` (`input`, `output`, `reasoning`, `cache_read`,
/// `cache_write`, `total_tokens`); other fields stay with them.
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

/// Reads the tokens of a call as OpenAI's APIs write them, chat or Responses.
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

/// Translates why the model stopped.
pub(super) fn stop_reason(word: String) -> String {
    match word.as_str() {
        "tool_calls" | "function_call" => "toolUse".into(),
        "max_tokens" => "length".into(),
        _ => word,
    }
}

/// Puts the thinking of a chat message, which is beside its content, before its other blocks.
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
        // The blocks say the same, with their signatures.
        answer
            .content
            .retain(|block| !reasoning::is_returned(block));
    }
    answer.content.splice(..0, thinking);
    message
}

/// Takes a block as it is.
pub(super) fn as_it_is(raw: &RawValue) -> Option<Content> {
    json(raw).ok()?.read().ok()
}

/// Notes what a call cost, in the provider's currency.
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

/// Reads `data:…;base64,…` as an image.
pub(super) fn data_image(url: &str) -> Option<Content> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    mime_type
        .starts_with("image/")
        .then(|| Content::image(data, mime_type))
}

/// Returns `text` as a session's id, if it can be one.
pub(super) fn session_id(text: Option<String>) -> Option<SessionId> {
    SessionId::new(text?).ok()
}

/// Returns `text` as a loop's id, if it can be one.
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

/// Reads a count of tokens.
pub(super) fn count(value: Option<&RawValue>) -> Option<Int> {
    serde_json::from_str(value?.get()).ok()
}

/// Returns the milliseconds of a time written as ISO-8601 text.
pub(super) fn millis_of(time: Option<&Time>) -> Option<Int> {
    time.and_then(Time::millis).map(Int::from)
}

/// A message in the user's name.
pub(super) fn user(content: Vec<Content>, timestamp: Option<Int>) -> AgentMessage {
    Message::User(UserMessage {
        content,
        timestamp,
        ..UserMessage::default()
    })
    .into()
}

/// Keeps what a message's record says besides.
pub(super) fn with_source(mut message: AgentMessage, source: Option<Json>) -> AgentMessage {
    if let Some(source) = source.filter(|source| !source.is_null()) {
        message.extra_mut().insert("source", source);
    }
    message
}

/// Keeps what a message's record says besides, unless that is nothing.
pub(super) fn with_extra_source(message: AgentMessage, source: Extra) -> AgentMessage {
    let source = (!source.is_empty()).then(|| object_of(&source));
    with_source(message, source)
}

/// What is left of a record: `outer` without `taken`, where `inner` is what is left of the value
/// of that field. `None` if nothing is.
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

/// Reads a call's arguments: the object that a text holds, else the text itself.
pub(super) fn arguments(call: &mut ToolCall, value: Option<&RawValue>) -> Result<(), String> {
    let Some(value) = value else { return Ok(()) };
    let Ok(text) = serde_json::from_str::<String>(value.get()) else {
        call.arguments = json(value)?;
        return Ok(());
    };
    // A text within the record, which may spell what no text holds as the record may.
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

/// A call without arguments so far.
pub(super) fn call(id: String, name: String) -> ToolCall {
    ToolCall {
        id,
        name,
        arguments: Json::null(),
        extra: Extra::default(),
    }
}

/// Reads the image that a `data:` URL holds.
pub(super) fn data_url(url: &str) -> Option<Content> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Content::image(data, mime_type))
}

/// Takes a block as it is.
pub(super) fn other(raw: &RawValue) -> Result<Content, String> {
    json(raw)?.read().map_err(reason)
}

/// Reads a content: a text, or a list of blocks that `block` reads. An empty text is no block.
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

/// True if a text that a tool of Codex gave back reports a failure.
pub fn says_failed(plain_text: &str) -> bool {
    if let Ok(fields) = Fields::parse(plain_text) {
        return exit_code_failed(&fields);
    }
    // The lines before the output are Codex's own.
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
