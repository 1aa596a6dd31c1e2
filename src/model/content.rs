//! The blocks that a message is made of.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::fast_parse;
use super::json::{Extra, Json, json_object};

json_object! {
    /// A text block.
    pub struct Text {
        /// The text.
        must text: String = "text",
    }
}

json_object! {
    /// An image block.
    pub struct Image {
        /// The image as base64.
        list data: String = "data",
        /// The media type, such as `image/png`.
        list mime_type: String = "mimeType",
    }
}

json_object! {
    /// A thinking block.
    pub struct Thinking {
        /// What the model thought.
        must thinking: String = "thinking",
        /// The provider's signature, which ties the block to the tool calls after it.
        maybe signature: String = "signature",
    }
}

json_object! {
    /// A call of a tool.
    pub struct ToolCall {
        /// Names the call; its result carries the same id.
        must id: String = "id",
        /// The tool.
        must name: String = "name",
        /// What the tool is called with.
        list arguments: Json = "arguments",
    }
}

/// One block of a message. A block of a type unknown to this version is kept as it is.
///
/// ```
/// use loopstore::{Content, Json};
///
/// let block = Content::tool_call("c1", "forecast", Json::parse(r#"{"days": 3}"#)?);
/// assert!(matches!(block, Content::ToolCall(call) if call.name == "forecast"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// `"type":"text"`.
    Text(Text),
    /// `"type":"image"`.
    Image(Image),
    /// `"type":"thinking"`.
    Thinking(Thinking),
    /// `"type":"toolCall"`.
    ToolCall(ToolCall),
    /// Any other type: the whole block.
    Other(Json),
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text {
            text: text.into(),
            extra: Extra::default(),
        })
    }

    /// A thinking block.
    pub fn thinking(thinking: impl Into<String>, signature: Option<String>) -> Self {
        Self::Thinking(Thinking {
            thinking: thinking.into(),
            signature,
            extra: Extra::default(),
        })
    }

    /// An image block from base64 data.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image(Image {
            data: data.into(),
            mime_type: mime_type.into(),
            extra: Extra::default(),
        })
    }

    /// A tool call block.
    pub fn tool_call(id: impl Into<String>, name: impl Into<String>, arguments: Json) -> Self {
        Self::ToolCall(ToolCall {
            id: id.into(),
            name: name.into(),
            arguments,
            extra: Extra::default(),
        })
    }
}

impl Content {
    /// Whether this is thinking that its provider takes back: signed, or sealed so that only the
    /// provider can read it (`redacted_thinking`).
    pub(crate) fn is_signed_thinking(&self) -> bool {
        match self {
            Self::Thinking(thinking) => thinking.signature.as_ref().is_some_and(|s| !s.is_empty()),
            Self::Other(json) => is_redacted_thinking(json),
            _ => false,
        }
    }

    /// Whether this is thinking of any kind.
    pub(crate) fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking(_)) || self.is_signed_thinking()
    }
}

fn is_redacted_thinking(json: &Json) -> bool {
    #[derive(Deserialize)]
    struct Tag {
        r#type: String,
        data: String,
    }
    json.read::<Tag>()
        .is_ok_and(|tag| tag.r#type == "redacted_thinking" && !tag.data.is_empty())
}

/// Writes `inner`, whose form is an object, with a `type` field before its own.
struct Tagged<'a, T>(&'static str, &'a T);

impl<T: Serialize> Serialize for Tagged<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a, T> {
            r#type: &'static str,
            #[serde(flatten)]
            inner: &'a T,
        }
        Form {
            r#type: self.0,
            inner: self.1,
        }
        .serialize(serializer)
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(block) => Tagged("text", block).serialize(serializer),
            Self::Image(block) => Tagged("image", block).serialize(serializer),
            Self::Thinking(block) => Tagged("thinking", block).serialize(serializer),
            Self::ToolCall(block) => Tagged("toolCall", block).serialize(serializer),
            Self::Other(block) => block.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json::deserialize(deserializer).map(Self::from_json)
    }
}

impl Content {
    /// Reads a block; one of a known type with other fields than it should have is kept as it is.
    fn from_json(raw: Json) -> Self {
        if let Some(content) = fast_parse::block(raw.as_str()) {
            return content;
        }
        #[derive(Deserialize)]
        struct Tag {
            r#type: Option<String>,
        }
        let tag = raw.read::<Tag>().ok().and_then(|tag| tag.r#type);
        let content = match tag.as_deref() {
            Some("text") => raw.read().map(Self::Text),
            Some("image") => raw.read().map(Self::Image),
            Some("thinking") => raw.read().map(Self::Thinking),
            Some("toolCall") => raw.read().map(Self::ToolCall),
            _ => return Self::Other(raw),
        };
        let Ok(mut content) = content else {
            return Self::Other(raw);
        };
        if let Some(extra) = content.extra_mut() {
            extra.remove("type");
        }
        content
    }

    fn extra_mut(&mut self) -> Option<&mut Extra> {
        match self {
            Self::Text(block) => Some(&mut block.extra),
            Self::Image(block) => Some(&mut block.extra),
            Self::Thinking(block) => Some(&mut block.extra),
            Self::ToolCall(block) => Some(&mut block.extra),
            Self::Other(_) => None,
        }
    }
}
