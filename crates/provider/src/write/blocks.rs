//! Blocks that the forms share: images and the arguments of calls.

use loopstore_model::{Image, Json, ToolCall};

/// Returns the media type of an image that `images::check` accepted: one that all providers read.
pub fn media_type(image: &Image) -> Option<&'static str> {
    let known = super::images::type_of(&image.mime_type);
    known.filter(|_| !image.data.is_empty())
}

/// Returns the data URL of an image; `None` if it cannot be sent.
pub fn data_url(image: &Image) -> Option<String> {
    Some(format!("data:{};base64,{}", media_type(image)?, image.data))
}

/// Returns the text before images of a tool result that are sent in a user message after it.
pub fn images_of(call: &str) -> String {
    format!("Images that tool call {call} gave:")
}

/// Returns the arguments as JSON text.
pub(super) fn arguments_text(call: &ToolCall) -> String {
    if call.arguments.is_null() {
        return "{}".to_owned();
    }
    // A source may have kept the arguments as the text that the model wrote.
    match call.arguments.read::<String>() {
        Ok(written) if Json::parse(&written).is_ok() => written,
        Ok(_) => wrapped(&call.arguments).as_str().to_owned(),
        Err(_) => call.arguments.as_str().to_owned(),
    }
}

/// Returns the arguments as an object.
pub fn arguments_object(call: &ToolCall) -> Json {
    let is_object = |json: &Json| json.as_str().starts_with('{');
    if is_object(&call.arguments) {
        return call.arguments.clone();
    }
    let written = call.arguments.read::<String>().ok();
    let read = written.and_then(|text| Json::parse(&text).ok());
    match read.filter(is_object) {
        Some(json) => json,
        None if call.arguments.is_null() => Json::parse("{}").unwrap_or_default(),
        None => wrapped(&call.arguments),
    }
}

/// Returns an object with `arguments` as its field, as text if they nest too deep.
fn wrapped(arguments: &Json) -> Json {
    let object_of = |text: &str| Json::parse(&format!("{{\"arguments\":{text}}}"));
    object_of(arguments.as_str())
        .or_else(|_| object_of(Json::string(arguments.as_str()).as_str()))
        .unwrap_or_default()
}
