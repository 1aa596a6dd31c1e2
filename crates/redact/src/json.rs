//! Redacts JSON string by string without parsing it into a tree, so that numbers, order and unknown fields are
//! unchanged.

use serde::Deserialize;

use super::Redactor;

/// Fields with ids of sessions and loops, which must not change, or the rows could not be found any more.
const IDS: [&str; 8] = [
    "session_id",
    "loop_id",
    "parent_loop_id",
    "parent_session_id",
    "child_loop_id",
    "child_session_id",
    "previous_session_id",
    "loopstore_current_loop",
];

/// Fields with content of an agent or its tools, in which no field name has a special meaning.
const CONTENT: [&str; 9] = [
    "arguments",
    "args",
    "content",
    "data",
    "message",
    "messages",
    "metadata",
    "result",
    "input",
];

/// Names of fields whose values look random and are no secrets.
const NO_NAMES: [&str; 3] = ["idempotency_key", "idempotencyKey", "cacheKey"];

/// A level of the JSON at the current position.
struct JsonPath<'a> {
    /// The first byte of the open object or array.
    start: usize,
    is_object: bool,
    /// The key of the current value: its own in an object, that of the array in an array.
    key: Option<String>,
    /// True if the next string is a key.
    wants_key: bool,
    text: &'a str,
}

impl Redactor {
    /// Redacts every string of a JSON text, keys included; `None` if nothing was found. With `keep_ids`, fields with
    /// ids of sessions and loops are unchanged.
    ///
    /// Signatures and the bytes of images are skipped: they are random, and invalid if they are changed.
    pub(super) fn in_json(&mut self, text: &str, keep_ids: bool) -> Option<String> {
        let bytes = text.as_bytes();
        let mut open: Vec<JsonPath<'_>> = Vec::new();
        let mut out: Option<String> = None;
        let (mut at, mut copied) = (0, 0);
        while at < bytes.len() {
            match bytes[at] {
                b'"' => {
                    let end = string_end(bytes, at);
                    let quoted = &text[at..end];
                    if let Some(new) = self.in_string(quoted, &mut open, keep_ids) {
                        let out = out.get_or_insert_with(String::new);
                        out.push_str(&text[copied..at]);
                        out.push_str(&new);
                        copied = end;
                    }
                    at = end;
                    continue;
                }
                start @ (b'{' | b'[') => {
                    let is_object = start == b'{';
                    let key = open.last().and_then(|place| place.key.clone());
                    open.push(JsonPath {
                        start: at,
                        is_object,
                        key: key.filter(|_| !is_object),
                        wants_key: is_object,
                        text,
                    });
                }
                b'}' | b']' => {
                    open.pop();
                }
                b',' => {
                    if let Some(place) = open.last_mut() {
                        place.wants_key = place.is_object;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        out.map(|mut out| {
            out.push_str(&text[copied..]);
            out
        })
    }

    fn in_string(
        &mut self,
        quoted: &str,
        open: &mut [JsonPath<'_>],
        keep_ids: bool,
    ) -> Option<String> {
        let plain: String = serde_json::from_str(quoted).ok()?;
        let place = open.last_mut();
        if let Some(place) = place
            && place.wants_key
        {
            place.wants_key = false;
            let new = self.text(&plain);
            place.key = Some(plain);
            return quote(&new?);
        }
        let key = open.last().and_then(|place| place.key.as_deref());
        if key.is_some_and(|key| stays(key, &plain, open, keep_ids)) {
            return None;
        }
        let name = key.filter(|key| !NO_NAMES.contains(key)).map(str::to_owned);
        quote(&self.named(name.as_deref(), &plain)?)
    }
}

fn quote(text: &str) -> Option<String> {
    serde_json::to_string(text).ok()
}

/// Returns the index after the closing quote of the string at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// True if the value of a field is not changed.
fn stays(key: &str, value: &str, open: &[JsonPath<'_>], keep_ids: bool) -> bool {
    match key {
        "signature" => true,
        "data" | "encrypted_content" => open.last().is_some_and(is_binary),
        "url" => value.starts_with("data:image/"),
        _ if keep_ids && IDS.contains(&key) => {
            let (_, above) = open.split_last().unzip();
            let mut keys = above
                .into_iter()
                .flatten()
                .filter_map(|one| one.key.as_deref());
            !keys.any(|key| CONTENT.contains(&key))
        }
        _ => false,
    }
}

/// True if an object is an image, or state that only a provider can read.
fn is_binary(place: &JsonPath<'_>) -> bool {
    #[derive(Deserialize)]
    struct Tag {
        r#type: Option<String>,
    }
    let rest = &place.text[place.start..];
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Tag>();
    let tag = values
        .next()
        .and_then(Result::ok)
        .and_then(|tag| tag.r#type);
    matches!(
        tag.as_deref(),
        Some("image" | "base64" | "redacted_thinking" | "reasoning" | "compaction")
    )
}
