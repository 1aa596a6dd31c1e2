//! From the records' JSON to messages.

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::{Content, Extra, Image, Int, Json, Text, Thinking, ToolCall, Usage};

/// An object with more fields than this is kept as one value.
const MAX_FIELDS: usize = 500;

/// The fields of an object in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, Json)>);

impl Fields {
    /// Reads an object; anything else has no fields.
    pub(super) fn of(json: &Json) -> Self {
        json.read().unwrap_or_default()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        self.0
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.get(key)?.read().ok()
    }

    pub(super) fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.as_str() == "true")
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Json> {
        let value = self.get(key).cloned();
        self.0.retain(|(name, _)| name != key);
        value
    }

    pub(super) fn push(&mut self, key: &str, value: Json) {
        self.0.push((key.to_owned(), value));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn to_json(&self) -> Json {
        Json::of(self).unwrap_or_default()
    }

    fn into_extra(self) -> Extra {
        let mut extra = Extra::default();
        for (key, value) in self.0 {
            extra.insert(key, value);
        }
        extra
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Fields;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Reads a message's content: a string, or a list of blocks.
pub(super) fn contents(json: Option<&Json>) -> Vec<Content> {
    let Some(json) = json.filter(|json| !json.is_null()) else {
        return Vec::new();
    };
    match json.read::<Vec<Json>>() {
        Ok(items) => items.into_iter().map(content).collect(),
        Err(_) => vec![content(json.clone())],
    }
}

/// Reads one block; what is not known stays as it is.
pub(super) fn content(json: Json) -> Content {
    if let Ok(text) = json.read::<String>() {
        return Content::text(text);
    }
    let fields = Fields::of(&json);
    let known = if fields.0.len() > MAX_FIELDS {
        None
    } else {
        known(fields)
    };
    known.unwrap_or_else(|| json.read().unwrap_or(Content::Other(json)))
}

fn known(mut fields: Fields) -> Option<Content> {
    let kind: String = fields.remove("type")?.read().ok()?;
    let content = match kind.as_str() {
        "text" => {
            let text = fields.remove("text")?.read().ok()?;
            Content::Text(Text {
                text,
                extra: fields.into_extra(),
            })
        }
        "thinking" => {
            let thinking = fields.remove("thinking")?.read().ok()?;
            let signature = fields.text("signature");
            if signature.is_some() {
                fields.remove("signature");
            }
            Content::Thinking(Thinking {
                thinking,
                signature,
                extra: fields.into_extra(),
            })
        }
        "image" => image(fields)?,
        "tool_use" => {
            let id = fields.remove("id")?.read().ok()?;
            let name = fields.remove("name")?.read().ok()?;
            let arguments = fields.remove("input").unwrap_or_default();
            Content::ToolCall(ToolCall {
                id,
                name,
                arguments,
                extra: fields.into_extra(),
            })
        }
        _ => return None,
    };
    Some(content)
}

fn image(mut fields: Fields) -> Option<Content> {
    let source = Fields::of(&fields.remove("source")?);
    if source.text("type").as_deref() != Some("base64") {
        return None;
    }
    let (data, mime_type) = (source.text("data")?, source.text("media_type")?);
    Some(Content::Image(Image {
        data,
        mime_type,
        extra: fields.into_extra(),
    }))
}

/// Reads the tokens of a call.
pub(super) fn usage(json: &Json) -> Option<Usage> {
    let mut fields = Fields::of(json);
    if fields.is_empty() || fields.0.len() > MAX_FIELDS {
        return None;
    }
    let mut count = |key: &str| -> Option<Int> {
        let count = fields.get(key)?.read().ok()?;
        fields.remove(key);
        Some(count)
    };
    Some(Usage {
        input: count("input_tokens").unwrap_or_default(),
        output: count("output_tokens").unwrap_or_default(),
        reasoning: None,
        cache_read: count("cache_read_input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        total_tokens: None,
        extra: fields.into_extra(),
    })
}

/// Translates why the model stopped.
pub(super) fn stop_reason(word: String) -> String {
    match word.as_str() {
        "end_turn" => "stop".into(),
        "max_tokens" => "length".into(),
        "tool_use" => "toolUse".into(),
        _ => word,
    }
}
