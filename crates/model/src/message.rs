//! Messages and their metadata.

use super::author::Author;
use super::content::{Content, ToolCall};
use super::json::{Extra, Int, Json, json_object};

json_object! {
    /// The turn of a message, as the source of the message counted it.
    ///
    /// The index only decides which consecutive messages form a turn group. Turn numbers in ranges and views are not
    /// this index, but positions of turn groups ([`crate::TurnMap`]).
    pub struct TurnId {
        /// The loop in the source.
        must loop_id: String = "loopId",
        /// The source's index of the turn.
        must turn_index: Int = "turnIndex",
    }
}

impl TurnId {
    /// Returns the id of the turn `turn_index` of the loop `loop_id`.
    pub fn new(loop_id: impl Into<String>, turn_index: u32) -> Self {
        Self {
            loop_id: loop_id.into(),
            turn_index: i64::from(turn_index).into(),
            extra: Extra::default(),
        }
    }
}

json_object! {
    /// Tokens that the provider reported for one call.
    pub struct Usage {
        /// Prompt tokens.
        list input: Int = "input",
        /// Completion tokens.
        list output: Int = "output",
        /// Completion tokens spent on reasoning.
        maybe reasoning: Int = "reasoning",
        /// Prompt tokens read from the provider's cache.
        maybe cache_read: Int = "cache_read",
        /// Prompt tokens written to the provider's cache.
        maybe cache_write: Int = "cache_write",
        /// The provider's own total.
        maybe total_tokens: Int = "total_tokens",
    }
}

impl Usage {
    /// Returns the tokens of a call without a cache: those of the prompt and those of the completion.
    pub fn new(input: i64, output: i64) -> Self {
        Self {
            input: input.into(),
            output: output.into(),
            reasoning: None,
            cache_read: None,
            cache_write: None,
            total_tokens: None,
            extra: Extra::default(),
        }
    }
}

/// A message with the role `user`: of a person, a parent agent, or the harness.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserMessage {
    /// The blocks.
    pub content: Vec<Content>,
    /// Milliseconds since the epoch.
    pub timestamp: Option<Int>,
    /// The author; a person if `None`.
    pub author: Option<Author>,
}

/// One answer of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssistantMessage {
    /// The blocks.
    pub content: Vec<Content>,
    /// The reason why the model stopped: `stop`, `length`, `toolUse`, `error`, `aborted` or another word.
    pub stop_reason: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The provider of the model.
    pub provider: Option<String>,
    /// Tokens as the provider reported them.
    pub usage: Option<Usage>,
    /// Milliseconds since the epoch.
    pub timestamp: Option<Int>,
    /// The text of the error, if the model returned an error in place of an answer.
    pub error_message: Option<String>,
    /// The author; an agent if `None`.
    pub author: Option<Author>,
}

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolResultMessage {
    /// The id of the call.
    pub tool_call_id: String,
    /// The name of the tool.
    pub tool_name: String,
    /// The blocks.
    pub content: Vec<Content>,
    /// True if the tool failed.
    pub is_error: bool,
    /// Milliseconds since the epoch.
    pub timestamp: Option<Int>,
    /// The author; if `None`, the harness, which ran the tool.
    pub author: Option<Author>,
}

/// A message that a model can see.
///
/// ```
/// use loopstore_model::{AgentMessage, Message, Role};
/// use serde_json::json;
///
/// let messages: [AgentMessage; 3] = [
///     Message::user("Will it rain?").into(),
///     Message::assistant("I look.").with_tool_call("c1", "forecast", json!({"days": 3})).into(),
///     Message::tool_result("c1", "Rain.").into(),
/// ];
/// assert_eq!(messages[1].role(), Role::Assistant);
/// ```
// Boxing the answer, by far the most common message, would cost every context an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// `"role":"user"`.
    User(UserMessage),
    /// `"role":"assistant"`.
    Assistant(AssistantMessage),
    /// `"role":"toolResult"`.
    ToolResult(ToolResultMessage),
}

impl Message {
    /// Returns a user message of one text block.
    ///
    /// ```
    /// use loopstore_model::Message;
    ///
    /// let message = Message::user("Will it rain?");
    /// assert_eq!(message.texts().collect::<Vec<_>>(), ["Will it rain?"]);
    /// ```
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(UserMessage {
            content: vec![Content::text(text)],
            ..UserMessage::default()
        })
    }

    /// Returns the role.
    pub fn role(&self) -> Role {
        match self {
            Self::User(_) => Role::User,
            Self::Assistant(_) => Role::Assistant,
            Self::ToolResult(_) => Role::ToolResult,
        }
    }

    /// Returns an answer of the model with one text block, or with none if the text is empty.
    ///
    /// ```
    /// use loopstore_model::Message;
    ///
    /// assert_eq!(Message::assistant("It will.").content().len(), 1);
    /// assert!(Message::assistant("").content().is_empty());
    /// ```
    pub fn assistant(text: impl Into<String>) -> Self {
        let text = text.into();
        let content = match text.is_empty() {
            true => Vec::new(),
            false => vec![Content::text(text)],
        };
        Self::Assistant(AssistantMessage {
            content,
            ..AssistantMessage::default()
        })
    }

    /// Returns the result of the tool call `id`.
    ///
    /// ```
    /// use loopstore_model::Message;
    ///
    /// let result = Message::tool_result("c1", "Rain.");
    /// assert!(matches!(result, Message::ToolResult(result) if result.tool_call_id == "c1"));
    /// ```
    pub fn tool_result(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::ToolResult(ToolResultMessage {
            tool_call_id: id.into(),
            content: vec![Content::text(text)],
            ..ToolResultMessage::default()
        })
    }

    /// Adds a tool call after the other blocks.
    ///
    /// ```
    /// use loopstore_model::Message;
    /// use serde_json::json;
    ///
    /// let answer = Message::assistant("").with_tool_call("c1", "forecast", json!({"days": 3}));
    /// let calls: Vec<_> = answer.tool_calls().map(|call| call.name.as_str()).collect();
    /// assert_eq!(calls, ["forecast"]);
    /// ```
    #[must_use]
    pub fn with_tool_call(
        self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<Json>,
    ) -> Self {
        self.with(Content::tool_call(id, name, arguments.into()))
    }

    /// Sets the tokens of an answer as its provider reported them. Other messages have none and stay as they are.
    ///
    /// ```
    /// use loopstore_model::{Message, Usage};
    ///
    /// let usage = Usage::new(1_200, 80);
    /// let answer = Message::assistant("It will.").with_usage(usage);
    /// assert!(matches!(answer, Message::Assistant(answer) if answer.usage.is_some()));
    /// ```
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        if let Self::Assistant(answer) = &mut self {
            answer.usage = Some(usage);
        }
        self
    }

    /// Adds thinking, with the provider's signature if there is one, after earlier thinking and before the other
    /// blocks.
    ///
    /// ```
    /// use loopstore_model::{Content, Message};
    ///
    /// let answer = Message::assistant("It will.").with_thinking("Clouds.", Some("c2ln"));
    /// assert!(matches!(answer.content()[0], Content::Thinking(_)));
    /// ```
    #[must_use]
    pub fn with_thinking(mut self, thinking: impl Into<String>, signature: Option<&str>) -> Self {
        let content = self.content_mut();
        let first_shown = content.iter().position(|block| !block.is_thinking());
        let block = Content::thinking(thinking, signature.map(str::to_owned));
        content.insert(first_shown.unwrap_or(content.len()), block);
        self
    }

    /// Adds an image from base64 data after the other blocks.
    ///
    /// ```
    /// use loopstore_model::Message;
    ///
    /// let prompt = Message::user("What is this?").with_image("aGVsbG8=", "image/png");
    /// assert_eq!(prompt.content().len(), 2);
    /// ```
    #[must_use]
    pub fn with_image(self, data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        self.with(Content::image(data, mime_type))
    }

    /// Marks a tool result as failed; any other message is unchanged.
    ///
    /// ```
    /// use loopstore_model::Message;
    ///
    /// let result = Message::tool_result("c1", "no such file").with_error();
    /// assert!(matches!(result, Message::ToolResult(result) if result.is_error));
    /// ```
    #[must_use]
    pub fn with_error(mut self) -> Self {
        if let Self::ToolResult(result) = &mut self {
            result.is_error = true;
        }
        self
    }

    fn with(mut self, block: Content) -> Self {
        self.content_mut().push(block);
        self
    }

    /// Returns the blocks.
    pub fn content(&self) -> &[Content] {
        match self {
            Self::User(m) => &m.content,
            Self::Assistant(m) => &m.content,
            Self::ToolResult(m) => &m.content,
        }
    }

    /// Returns the blocks for changes.
    pub fn content_mut(&mut self) -> &mut Vec<Content> {
        match self {
            Self::User(m) => &mut m.content,
            Self::Assistant(m) => &mut m.content,
            Self::ToolResult(m) => &mut m.content,
        }
    }

    /// Returns the time in milliseconds since 1970, if the source had one.
    pub fn timestamp(&self) -> Option<i64> {
        let timestamp = match self {
            Self::User(m) => &m.timestamp,
            Self::Assistant(m) => &m.timestamp,
            Self::ToolResult(m) => &m.timestamp,
        };
        timestamp.as_ref().map(Int::get)
    }

    /// Returns the tool calls in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content().iter().filter_map(|block| match block {
            Content::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the texts of the text blocks in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.content().iter().filter_map(|block| match block {
            Content::Text(text) => Some(text.text.as_str()),
            _ => None,
        })
    }
}

/// A message that a model can see, with its turn and unknown fields.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmMessage {
    /// The message itself.
    pub message: Message,
    /// The turn in the source; a message without one is a turn group of its own.
    pub turn_id: Option<TurnId>,
    /// Fields that loopstore does not interpret, `nodeId`, `parentId`, `tags` and
    /// `provenanceHint` among them.
    pub extra: Extra,
}

/// The field with the id of the response that a message is a part of.
const RESPONSE: &str = "responseId";

impl LlmMessage {
    /// Returns the id of the response that the message is a part of, as JSON.
    #[doc(hidden)]
    pub fn response(&self) -> Option<&str> {
        self.extra.get(RESPONSE).map(Json::as_str)
    }
}

/// A message that no model sees: progress, notes, system prompts, revisions.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtensionMessage {
    /// The kind of the extension.
    pub kind: String,
    /// The content of the extension.
    pub data: Json,
    /// Fields that loopstore does not know.
    pub extra: Extra,
}

/// One message of a loop.
// Extensions are rare; boxing the others would cost every context an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum AgentMessage {
    /// A message that a model can see.
    Llm(LlmMessage),
    /// A message that never enters a context.
    Extension(ExtensionMessage),
}

/// The role of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `user`.
    User,
    /// `assistant`.
    Assistant,
    /// `toolResult`.
    ToolResult,
    /// `extension`.
    Extension,
}

impl Role {
    /// Returns the role's name in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::ToolResult => "toolResult",
            Self::Extension => "extension",
        }
    }
}

impl From<Message> for AgentMessage {
    fn from(message: Message) -> Self {
        Self::Llm(LlmMessage {
            message,
            turn_id: None,
            extra: Extra::default(),
        })
    }
}

impl AgentMessage {
    /// Returns an extension message.
    pub fn extension(kind: impl Into<String>, data: Json) -> Self {
        Self::Extension(ExtensionMessage {
            kind: kind.into(),
            data,
            extra: Extra::default(),
        })
    }

    /// Marks the message as a part of the response `id`. Consecutive messages of one response are one model call, and
    /// so one turn.
    #[must_use]
    pub fn of_response(mut self, id: &str) -> Self {
        if let Self::Llm(message) = &mut self {
            message.extra.insert(RESPONSE, Json::string(id));
        }
        self
    }

    /// Sets the turn of the message; an extension is unchanged.
    #[must_use]
    pub fn in_turn(mut self, turn_id: TurnId) -> Self {
        if let Self::Llm(message) = &mut self {
            message.turn_id = Some(turn_id);
        }
        self
    }

    /// Returns the role.
    pub fn role(&self) -> Role {
        match self {
            Self::Llm(llm) => llm.message.role(),
            Self::Extension(_) => Role::Extension,
        }
    }

    /// Returns the author of the message; the harness for an extension.
    pub fn author(&self) -> Author {
        self.message().map_or(Author::Harness, Message::author)
    }

    /// Returns the message if a model can see it.
    pub fn message(&self) -> Option<&Message> {
        match self {
            Self::Llm(llm) => Some(&llm.message),
            Self::Extension(_) => None,
        }
    }

    /// Returns the message for changes, if a model can see it.
    pub fn message_mut(&mut self) -> Option<&mut Message> {
        match self {
            Self::Llm(llm) => Some(&mut llm.message),
            Self::Extension(_) => None,
        }
    }

    /// Returns the source's turn index, if the message has one.
    pub fn turn_index(&self) -> Option<i64> {
        match self {
            Self::Llm(llm) => llm.turn_id.as_ref().map(|id| id.turn_index.get()),
            Self::Extension(_) => None,
        }
    }

    /// Returns the fields that loopstore does not know.
    pub fn extra_mut(&mut self) -> &mut Extra {
        match self {
            Self::Llm(llm) => &mut llm.extra,
            Self::Extension(extension) => &mut extension.extra,
        }
    }
}
