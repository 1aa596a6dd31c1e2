//! The blocks that a message is made of.

use std::fmt;

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
        /// The text of the thinking.
        must thinking: String = "thinking",
        /// The provider's signature, which ties the block to the tool calls after it.
        maybe signature: String = "signature",
    }
}

json_object! {
    /// A call of a tool.
    pub struct ToolCall {
        /// The id of the call; its result has the same id.
        must id: String = "id",
        /// The name of the tool.
        must name: String = "name",
        /// The arguments of the call.
        list arguments: Json = "arguments",
    }
}

json_object! {
    /// State that only its provider can read, and that is sent back to the provider unchanged: encrypted reasoning, a
    /// compaction, redacted thinking.
    ///
    /// `Display` writes its kind, provider and size.
    ///
    /// ```
    /// use loopstore_model::{Json, Sealed};
    ///
    /// let item = r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAAAA"}"#;
    /// let block = Sealed::new("openai", Json::parse(item)?);
    /// assert_eq!(block.kind().as_deref(), Some("reasoning"));
    /// assert_eq!(block.to_string(), "sealed reasoning of openai, 62 bytes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Sealed {
        /// The provider: `openai`, `anthropic`, or another.
        must provider: String = "provider",
        /// The provider's item or block, whole.
        must item: Json = "item",
    }
}

impl Sealed {
    /// Returns a block with an item of a provider.
    pub fn new(provider: impl Into<String>, item: Json) -> Self {
        Self {
            provider: provider.into(),
            item,
            extra: Extra::default(),
        }
    }

    /// Returns the `type` of the item: `reasoning`, `compaction`, `redacted_thinking`.
    pub fn kind(&self) -> Option<String> {
        self.item.type_name()
    }

    /// Returns the readable part of a `reasoning` item: its summary and content; `None` if there is none.
    pub fn readable(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Part {
            text: String,
        }
        #[derive(Deserialize)]
        struct Reasoning {
            r#type: String,
            #[serde(default)]
            summary: Option<Vec<Part>>,
            #[serde(default)]
            content: Option<Vec<Part>>,
        }
        let item: Reasoning = self.item.read().ok()?;
        let parts = item.summary.into_iter().chain(item.content).flatten();
        let texts: Vec<String> = parts.map(|part| part.text).collect();
        (item.r#type == "reasoning" && !texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// True if the item is thinking.
    fn is_thinking(&self) -> bool {
        matches!(
            self.kind().as_deref(),
            Some("reasoning" | "redacted_thinking")
        )
    }
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        f.write_str("sealed ")?;
        write_word(f, kind.as_deref().unwrap_or("state"))?;
        f.write_str(" of ")?;
        write_word(f, &self.provider)?;
        f.write_str(", ")?;
        let digits = self.item.as_str().len().to_string();
        for (at, digit) in digits.char_indices() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        f.write_str(" bytes")
    }
}

/// Writes a foreign word so that it is safe within a line of text, Markdown or HTML.
fn write_word(f: &mut fmt::Formatter<'_>, word: &str) -> fmt::Result {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut shown = word.chars().take(40);
    shown.try_for_each(|c| write!(f, "{}", if is_plain(c) { c } else { '\u{fffd}' }))
}

/// One block of a message. A block of an unknown type is kept unchanged.
///
/// ```
/// use loopstore_model::{Content, Json};
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
    /// `"type":"sealed"`.
    Sealed(Sealed),
    /// Any other type: the whole block.
    Other(Json),
}

impl Content {
    /// Returns a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text {
            text: text.into(),
            extra: Extra::default(),
        })
    }

    /// Returns a thinking block.
    pub fn thinking(thinking: impl Into<String>, signature: Option<String>) -> Self {
        Self::Thinking(Thinking {
            thinking: thinking.into(),
            signature,
            extra: Extra::default(),
        })
    }

    /// Returns an image block from base64 data.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image(Image {
            data: data.into(),
            mime_type: mime_type.into(),
            extra: Extra::default(),
        })
    }

    /// Returns a tool call block.
    pub fn tool_call(id: impl Into<String>, name: impl Into<String>, arguments: Json) -> Self {
        Self::ToolCall(ToolCall {
            id: id.into(),
            name: name.into(),
            arguments,
            extra: Extra::default(),
        })
    }

    /// Returns a block of state that only its provider can read.
    pub fn sealed(provider: impl Into<String>, item: Json) -> Self {
        Self::Sealed(Sealed::new(provider, item))
    }
}

impl Content {
    /// True for thinking that its provider accepts back: signed, or sealed.
    #[doc(hidden)]
    pub fn is_signed_thinking(&self) -> bool {
        match self {
            Self::Thinking(thinking) => thinking.signature.as_ref().is_some_and(|s| !s.is_empty()),
            Self::Sealed(sealed) => sealed.is_thinking(),
            _ => false,
        }
    }

    /// True for thinking of any kind.
    #[doc(hidden)]
    pub fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking(_)) || self.is_signed_thinking()
    }
}

/// Serialises a value, which must be an object, with the field `type` first.
pub(super) struct Tagged<'a, T>(pub(super) &'static str, pub(super) &'a T);

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
            Self::Sealed(block) => Tagged("sealed", block).serialize(serializer),
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
    /// Reads a block. A block of a known type with wrong fields is kept unchanged.
    fn from_json(raw: Json) -> Self {
        if let Some(content) = fast_parse::block(raw.as_str()) {
            return content;
        }
        let content = match raw.type_name().as_deref() {
            Some("text") => raw.read().map(Self::Text),
            Some("image") => raw.read().map(Self::Image),
            Some("thinking") => raw.read().map(Self::Thinking),
            Some("toolCall") => raw.read().map(Self::ToolCall),
            Some("sealed") => raw.read().map(Self::Sealed),
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

    pub(super) fn extra_mut(&mut self) -> Option<&mut Extra> {
        match self {
            Self::Text(block) => Some(&mut block.extra),
            Self::Image(block) => Some(&mut block.extra),
            Self::Thinking(block) => Some(&mut block.extra),
            Self::ToolCall(block) => Some(&mut block.extra),
            Self::Sealed(block) => Some(&mut block.extra),
            Self::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Content {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn sealed_state_is_read_and_written_as_it_came() {
        let item = r#"{"encrypted_content":"gAAA=","n":1.50,"type":"reasoning"}"#;
        let text = format!(r#"{{"type":"sealed","provider":"openai","item":{item},"x":1}}"#);
        let block = read(&text);
        let Content::Sealed(sealed) = &block else {
            panic!("{block:?}");
        };
        assert_eq!(sealed.item.as_str(), item);
        assert_eq!(serde_json::to_string(&block).unwrap(), text);
        assert!(block.is_signed_thinking());
        // A provider of later days is kept too.
        let other = text.replace("openai", "someone");
        assert_eq!(serde_json::to_string(&read(&other)).unwrap(), other);
        for broken in [
            r#"{"type":"sealed","provider":"openai"}"#,
            r#"{"type":"sealed","provider":1,"item":{}}"#,
        ] {
            assert!(matches!(read(broken), Content::Other(_)), "{broken}");
        }
    }

    #[test]
    fn what_sealed_state_is_stands_in_its_own_type() {
        let of = |item: &str| Sealed::new("anthropic", Json::parse(item).unwrap());
        let compaction = of(r#"{"type":"compaction","content":"so far"}"#);
        assert!(!Content::Sealed(compaction).is_thinking());
        let redacted = of(r#"{"type":"redacted_thinking","data":"x"}"#);
        assert!(Content::Sealed(redacted).is_signed_thinking());
        let long = of(&format!(
            r#"{{"type":"a*b\n","data":"{}"}}"#,
            "x".repeat(1_000)
        ));
        let label = "sealed a\u{fffd}b\u{fffd} of anthropic, 1,026 bytes";
        assert_eq!(long.to_string(), label);
        let state = "sealed state of anthropic, 2 bytes";
        assert_eq!(of("[]").to_string(), state);
    }

    #[test]
    fn only_what_the_provider_lets_be_read_is_readable() {
        let of = |item: &str| Sealed::new("openai", Json::parse(item).unwrap()).readable();
        let reasoning = r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"a"}],
            "content":null,"encrypted_content":"secret"}"#;
        assert_eq!(of(reasoning).as_deref(), Some("a"));
        assert_eq!(of(r#"{"type":"reasoning","encrypted_content":"s"}"#), None);
        assert_eq!(
            of(r#"{"type":"compaction","content":[{"text":"a"}]}"#),
            None
        );
    }
}
