//! Small readings of a record's fields, for the formats whose records are loose objects.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::fields::{Fields, list, reason, some};
use crate::model::{
    AgentMessage, Content, Extra, Int, Json, LoopId, Message, SessionId, Time, Usage,
};

/// Reads `key` as a `T`; `None` if it is absent, null or something else.
pub(super) fn read<T: DeserializeOwned>(fields: &Fields<'_>, key: &str) -> Option<T> {
    serde_json::from_str(some(fields.get(key))?.get()).ok()
}

/// Reads `key` as a text that is not empty.
pub(super) fn text(fields: &Fields<'_>, key: &str) -> Option<String> {
    read(fields, key).filter(|text: &String| !text.is_empty())
}

/// Reads `key` as an object; anything else has no fields.
pub(super) fn object<'a>(fields: &Fields<'a>, key: &str) -> Fields<'a> {
    let found = some(fields.get(key)).map(RawValue::get);
    found
        .and_then(|text| Fields::parse(text).ok())
        .unwrap_or_default()
}

/// Reads a whole value.
pub(super) fn json(raw: &RawValue) -> Result<Json, String> {
    Json::parse(raw.get()).map_err(reason)
}

/// Returns the object that `extra` is; one that would nest too deep is told as a text.
pub(super) fn object_of(extra: &Extra) -> Json {
    let field =
        |(key, value): (&str, &Json)| format!("{}:{}", Json::string(key).as_str(), value.as_str());
    let text = extra.iter().map(field).collect::<Vec<_>>().join(",");
    let text = format!("{{{text}}}");
    Json::parse(&text).unwrap_or_else(|_| Json::string(&text))
}

/// An object with more fields than this is kept as one value.
const MAX_FIELDS: usize = 500;

/// Returns the fields as they are, each as a value; one that nests too deep is told as a text.
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

/// Keeps what a record says besides in the message's extra field `source`.
pub(super) fn with_source(mut message: AgentMessage, source: Extra) -> AgentMessage {
    if !source.is_empty() {
        message.extra_mut().insert("source", object_of(&source));
    }
    message
}

/// Keeps a whole record as an extension of the kind `kind`.
pub(super) fn note(kind: &str, record: Json) -> AgentMessage {
    // The kind `system` stands for system prompts, `revised` for what came back changed.
    let kind = match kind {
        "" => "unknown".to_owned(),
        "system" | "revised" => format!("{kind}-record"),
        _ => kind.chars().take(100).collect(),
    };
    AgentMessage::extension(kind, record)
}

/// Reads a number of milliseconds since the epoch.
pub(super) fn millis(fields: &Fields<'_>, key: &str) -> Option<i64> {
    let wide: f64 = read(fields, key)?;
    Some(wide as i64)
}

/// Reads a number of seconds since the epoch, or a time as text.
pub(super) fn moment(fields: &Fields<'_>, key: &str) -> Option<Time> {
    match read::<f64>(fields, key) {
        Some(seconds) => Time::from_millis((seconds * 1000.0) as i64),
        None => text(fields, key).map(Time::from_text),
    }
}

/// Reads the token counts named in `places` (`input`, `output`, `reasoning`, `cache_read`,
/// `cache_write`, `total_tokens`); other fields stay with them.
pub(super) fn usage(mut fields: Fields<'_>, places: [&str; 6]) -> Option<Usage> {
    let [input, output, reasoning, cache_read, cache_write, total] = places.map(|key| {
        let count: Option<Int> = read(&fields, key);
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

/// Reads the tokens of a call as OpenAI's APIs tell them, chat or Responses.
pub(super) fn token_usage(mut fields: Fields<'_>) -> Option<Usage> {
    let [input, output] = match fields.get("prompt_tokens") {
        Some(_) => ["prompt_tokens", "completion_tokens"],
        None => ["input_tokens", "output_tokens"],
    };
    let within = |key: &str, detail: &str| object(&fields, &format!("{key}_details")).get(detail);
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

/// Puts the thinking of a chat message, which stands beside its content, before its other blocks.
pub(super) fn with_thinking(mut message: AgentMessage, fields: &Fields<'_>) -> AgentMessage {
    let Some(Message::Assistant(answer)) = message.message_mut() else {
        return message;
    };
    let blocks = some(fields.get("thinking_blocks")).and_then(list);
    let mut thinking: Vec<Content> = blocks.into_iter().flatten().filter_map(as_it_is).collect();
    if let (true, Some(text)) = (thinking.is_empty(), text(fields, "reasoning_content")) {
        thinking.push(Content::thinking(text, None));
    }
    answer.content.splice(..0, thinking);
    message
}

/// Takes a block as it stands.
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
