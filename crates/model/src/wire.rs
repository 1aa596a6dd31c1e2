//! The JSON of a message: one object for all roles, with unknown fields kept unchanged.

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::author::Author;
use super::content::Content;
use super::json::{Extra, Int, Json, json_object};
use super::message::{
    AgentMessage, AssistantMessage, ExtensionMessage, LlmMessage, Message, ToolResultMessage,
    TurnId, Usage, UserMessage,
};

json_object! {
    /// All fields that a message of any role may have.
    pub struct WireMessage {
        must role: String = "role",
        maybe content: Vec<Content> = "content",
        maybe stop_reason: String = "stopReason",
        maybe model: String = "model",
        maybe provider: String = "provider",
        maybe usage: Usage = "usage",
        maybe tool_call_id: String = "toolCallId",
        maybe tool_name: String = "toolName",
        maybe is_error: bool = "isError",
        maybe timestamp: Int = "timestamp",
        maybe error_message: String = "error_message",
        maybe author: Json = "author",
        maybe turn_id: TurnId = "turnId",
        maybe kind: String = "kind",
        maybe data: Json = "data",
    }
}

impl WireMessage {
    fn into_message(mut self) -> Result<AgentMessage, String> {
        let author = self.take_author();
        let message = match self.role.as_str() {
            "user" => Message::User(UserMessage {
                content: self
                    .content
                    .take()
                    .ok_or("a user message without content")?,
                timestamp: self.timestamp.take(),
                author,
            }),
            "assistant" => Message::Assistant(AssistantMessage {
                content: self
                    .content
                    .take()
                    .ok_or("an assistant message without content")?,
                stop_reason: self.stop_reason.take(),
                model: self.model.take(),
                provider: self.provider.take(),
                usage: self.usage.take(),
                timestamp: self.timestamp.take(),
                error_message: self.error_message.take(),
                author,
            }),
            "toolResult" => Message::ToolResult(ToolResultMessage {
                tool_call_id: self
                    .tool_call_id
                    .take()
                    .ok_or("a tool result without toolCallId")?,
                tool_name: self.tool_name.take().unwrap_or_default(),
                content: self.content.take().ok_or("a tool result without content")?,
                is_error: self.is_error.take().unwrap_or(false),
                timestamp: self.timestamp.take(),
                author,
            }),
            "extension" => {
                let kind = self
                    .kind
                    .take()
                    .ok_or("an extension message without kind")?;
                let data = self.data.take().unwrap_or_default();
                // The field is always written: a kept `null` would be written twice.
                self.extra.remove("data");
                let extra = self.leftover();
                return Ok(AgentMessage::Extension(ExtensionMessage {
                    kind,
                    data,
                    extra,
                }));
            }
            other => return Err(format!("unknown role `{}`", other.escape_debug())),
        };
        let turn_id = self.turn_id.take();
        Ok(AgentMessage::Llm(LlmMessage {
            message,
            turn_id,
            extra: self.leftover(),
        }))
    }

    /// Takes the author out of the fields; an unknown value is left as an unknown field.
    fn take_author(&mut self) -> Option<Author> {
        if self.role == "extension" {
            return None;
        }
        let name: String = self.author.as_ref()?.read().ok()?;
        let author = Author::from_name(&name)?;
        self.author = None;
        Some(author)
    }

    /// Returns the unknown fields together with known ones that this role has no place for.
    fn leftover(self) -> Extra {
        if self.is_spent() {
            return self.extra;
        }
        let mut extra = self.extra.clone();
        let rest = Self {
            role: String::new(),
            extra: Extra::default(),
            ..self
        };
        if let Ok(json) = Json::of(&rest)
            && let Ok(fields) = json.read::<UnknownFields>()
        {
            for (key, value) in fields.extra.iter().filter(|(key, _)| *key != "role") {
                extra.insert(key, value.clone());
            }
        }
        extra
    }

    /// True if every known field was used.
    fn is_spent(&self) -> bool {
        let texts = [
            &self.stop_reason,
            &self.model,
            &self.provider,
            &self.tool_call_id,
            &self.tool_name,
            &self.error_message,
            &self.kind,
        ];
        texts.iter().all(|text| text.is_none())
            && self.content.is_none()
            && self.usage.is_none()
            && self.is_error.is_none()
            && self.timestamp.is_none()
            && self.author.is_none()
            && self.turn_id.is_none()
            && self.data.is_none()
    }
}

json_object! {
    /// An object without known fields.
    pub struct UnknownFields {}
}

/// The serialised form of a message.
struct WireRef<'a>(&'a AgentMessage);

impl Serialize for WireRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", self.0.role().as_str())?;
        let extra = match self.0 {
            AgentMessage::Extension(extension) => {
                map.serialize_entry("kind", &extension.kind)?;
                map.serialize_entry("data", &extension.data)?;
                &extension.extra
            }
            AgentMessage::Llm(llm) => {
                write_message(&mut map, &llm.message)?;
                write_if(&mut map, "turnId", llm.turn_id.as_ref())?;
                &llm.extra
            }
        };
        for (key, value) in extra.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

fn write_if<M: SerializeMap, T: Serialize>(
    map: &mut M,
    key: &'static str,
    value: Option<&T>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(key, value),
        None => Ok(()),
    }
}

fn write_author<M: SerializeMap>(map: &mut M, author: Option<Author>) -> Result<(), M::Error> {
    write_if(map, "author", author.map(Author::as_str).as_ref())
}

fn write_message<M: SerializeMap>(map: &mut M, message: &Message) -> Result<(), M::Error> {
    match message {
        Message::User(m) => {
            map.serialize_entry("content", &m.content)?;
            write_if(map, "timestamp", m.timestamp.as_ref())?;
            write_author(map, m.author)
        }
        Message::Assistant(m) => {
            map.serialize_entry("content", &m.content)?;
            write_if(map, "stopReason", m.stop_reason.as_ref())?;
            write_if(map, "model", m.model.as_ref())?;
            write_if(map, "provider", m.provider.as_ref())?;
            write_if(map, "usage", m.usage.as_ref())?;
            write_if(map, "timestamp", m.timestamp.as_ref())?;
            write_if(map, "error_message", m.error_message.as_ref())?;
            write_author(map, m.author)
        }
        Message::ToolResult(m) => {
            map.serialize_entry("toolCallId", &m.tool_call_id)?;
            map.serialize_entry("toolName", &m.tool_name)?;
            map.serialize_entry("content", &m.content)?;
            map.serialize_entry("isError", &m.is_error)?;
            write_if(map, "timestamp", m.timestamp.as_ref())?;
            write_author(map, m.author)
        }
    }
}

impl Serialize for AgentMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WireRef(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for AgentMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WireMessage::deserialize(deserializer)?
            .into_message()
            .map_err(D::Error::custom)
    }
}
