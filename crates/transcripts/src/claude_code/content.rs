//! Translates the JSON of records to messages.
//!
//! Nothing is copied or normalised on the way: a value is read where it is in the record, and becomes a [`Json`] only
//! where it is kept.

use std::borrow::Cow;
use std::fmt;

use loopstore::model::{Content, Extra, Image, Int, Json, Text, Thinking, ToolCall, Usage};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::values::redacted_thinking;

/// The maximum number of fields; an object with more is kept as one value.
const MAX_FIELDS: usize = 500;

/// The fields of an object in order, and after them the fields that were added.
#[derive(Clone, Debug, Default)]
pub(super) struct ExtendedFields<'a> {
    read: Vec<(Cow<'a, str>, &'a RawValue)>,
    added: Vec<(&'static str, Json)>,
}

impl<'a> ExtendedFields<'a> {
    /// Reads an object; any other value is read as an object without fields.
    pub(super) fn of(value: &'a RawValue) -> Self {
        Self::parse(value.get())
    }

    /// Reads the text of an object; any other text is read as an object without fields.
    pub(super) fn parse(text: &'a str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the value of a field that was read; the last one if the key is repeated.
    pub(super) fn get(&self, key: &str) -> Option<&'a RawValue> {
        let mut newest = self.read.iter().rev();
        let (_, value) = newest.find(|(name, _)| name == key)?;
        Some(value)
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        read(self.get(key)?)
    }

    pub(super) fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.get() == "true")
    }

    /// Removes and returns a field that was read.
    pub(super) fn remove(&mut self, key: &str) -> Option<&'a RawValue> {
        let value = self.get(key)?;
        self.read.retain(|(name, _)| name != key);
        Some(value)
    }

    /// Appends a field from elsewhere in the record to the fields that were read.
    pub(super) fn push(&mut self, key: &'static str, value: &'a RawValue) {
        self.read.push((key.into(), value));
    }

    /// Adds a field.
    pub(super) fn add(&mut self, key: &'static str, value: Json) {
        self.added.push((key, value));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.added.is_empty()
    }

    /// Returns the object.
    pub(super) fn to_json(&self) -> Json {
        let read = self.read.iter().map(|(key, value)| (&**key, value.get()));
        let added = self.added.iter().map(|(key, value)| (*key, value.as_str()));
        let mut text = String::from("{");
        for (key, value) in read.chain(added) {
            if text.len() > 1 {
                text.push(',');
            }
            // A string always serialises.
            text.push_str(&serde_json::to_string(key).unwrap_or_default());
            text.push(':');
            text.push_str(value);
        }
        text.push('}');
        Json::parse(&text).unwrap_or_default()
    }

    fn into_extra(self) -> Extra {
        let mut extra = Extra::default();
        for (key, value) in self.read {
            extra.insert(key, kept(value));
        }
        extra
    }
}

impl<'de> Deserialize<'de> for ExtendedFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = ExtendedFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<ExtendedFields<'de>, A::Error> {
                let mut fields = ExtendedFields::default();
                while let Some((Key(key), value)) = map.next_entry()? {
                    fields.read.push((key, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Reads a value; `None` if it has another shape.
pub(super) fn read<T: DeserializeOwned>(value: &RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

/// Reads a list; `None` if the value is not a list. A string is not parsed at all: the error would contain all of it.
pub(super) fn list(value: &RawValue) -> Option<Vec<&RawValue>> {
    let text = value.get();
    text.starts_with('[')
        .then(|| serde_json::from_str(text).ok())
        .flatten()
}

/// Returns a value as it is stored.
pub(super) fn kept(value: &RawValue) -> Json {
    Json::parse(value.get()).unwrap_or_default()
}

/// Reads a message's content: a string, or a list of blocks.
pub(super) fn contents(value: Option<&RawValue>) -> Vec<Content> {
    let Some(value) = value.filter(|value| value.get() != "null") else {
        return Vec::new();
    };
    match list(value) {
        Some(items) => items.into_iter().map(content).collect(),
        None => vec![content(value)],
    }
}

/// Reads one block; an unknown block is kept unchanged.
pub(super) fn content(value: &RawValue) -> Content {
    if let Some(text) = read::<String>(value) {
        return Content::text(text);
    }
    let fields = ExtendedFields::of(value);
    let known = if fields.read.len() > MAX_FIELDS {
        None
    } else {
        known(fields)
    };
    known.unwrap_or_else(|| {
        let json = kept(value);
        let read = redacted_thinking(&json).or_else(|| json.read().ok());
        read.unwrap_or(Content::Other(json))
    })
}

fn known(mut fields: ExtendedFields<'_>) -> Option<Content> {
    let kind: String = read(fields.remove("type")?)?;
    let content = match kind.as_str() {
        "text" => {
            let text = read(fields.remove("text")?)?;
            Content::Text(Text {
                text,
                extra: fields.into_extra(),
            })
        }
        "thinking" => {
            let thinking = read(fields.remove("thinking")?)?;
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
            let id = read(fields.remove("id")?)?;
            let name = read(fields.remove("name")?)?;
            let arguments = fields.remove("input").map(kept).unwrap_or_default();
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

fn image(mut fields: ExtendedFields<'_>) -> Option<Content> {
    let source = ExtendedFields::of(fields.remove("source")?);
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

/// Reads the token usage of a call.
pub(super) fn usage(value: &RawValue) -> Option<Usage> {
    let mut fields = ExtendedFields::of(value);
    if fields.is_empty() || fields.read.len() > MAX_FIELDS {
        return None;
    }
    let mut count = |key: &str| -> Option<Int> {
        let count = read(fields.get(key)?)?;
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

/// Translates the reason why the model stopped.
pub(super) fn stop_reason(word: String) -> String {
    match word.as_str() {
        "end_turn" => "stop".into(),
        "max_tokens" => "length".into(),
        "tool_use" => "toolUse".into(),
        _ => word,
    }
}
