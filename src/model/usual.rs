//! Reading messages that have nothing unusual: nearly all.
//!
//! The interchange form keeps what it does not know, so its reader takes each block as text first and
//! looks at it three times. What stands here reads in one pass and gives up at the first field that
//! is unknown, `null`, written twice, or of another type; the caller then reads the careful way, and
//! both give the same message.

use serde::{Deserialize, Deserializer};

use super::json::{Extra, Json};
use super::message::{
    AgentMessage, AssistantMessage, Content, LlmMessage, Message, ToolResultMessage, TurnId, Usage,
    UserMessage,
};

/// Returns the message, if it is a usual one.
pub(crate) fn message(json: &str) -> Option<AgentMessage> {
    serde_json::from_str::<Line<'_>>(json).ok()?.into_message()
}

/// Returns the block, if it is a usual one.
pub(super) fn block(json: &str) -> Option<Content> {
    serde_json::from_str::<Block<'_>>(json).ok()?.into_content()
}

/// A field that is there; `null` is a value like others.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(default, deserialize_with = "given")]
    text: Option<String>,
    #[serde(default, deserialize_with = "given")]
    thinking: Option<String>,
    #[serde(default, deserialize_with = "given")]
    signature: Option<String>,
    #[serde(default, deserialize_with = "given")]
    id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    arguments: Option<Json>,
}

impl Block<'_> {
    fn into_content(mut self) -> Option<Content> {
        let content = match self.kind {
            "text" => Content::text(self.text.take()?),
            "thinking" => Content::thinking(self.thinking.take()?, self.signature.take()),
            "toolCall" => {
                Content::tool_call(self.id.take()?, self.name.take()?, self.arguments.take()?)
            }
            _ => return None,
        };
        self.is_spent().then_some(content)
    }

    /// Whether all that was given was taken.
    fn is_spent(&self) -> bool {
        let texts = [
            &self.text,
            &self.thinking,
            &self.signature,
            &self.id,
            &self.name,
        ];
        texts.iter().all(|text| text.is_none()) && self.arguments.is_none()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    role: &'a str,
    #[serde(borrow)]
    content: Vec<Block<'a>>,
    #[serde(default, deserialize_with = "given", rename = "stopReason")]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "given")]
    model: Option<String>,
    #[serde(default, deserialize_with = "given")]
    provider: Option<String>,
    #[serde(default, deserialize_with = "given")]
    usage: Option<Usage>,
    #[serde(default, deserialize_with = "given", rename = "toolCallId")]
    tool_call_id: Option<String>,
    #[serde(default, deserialize_with = "given", rename = "toolName")]
    tool_name: Option<String>,
    #[serde(default, deserialize_with = "given", rename = "isError")]
    is_error: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    timestamp: Option<i64>,
    #[serde(default, deserialize_with = "given", rename = "turnId")]
    turn_id: Option<Turn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Turn {
    loop_id: String,
    turn_index: i64,
}

impl Line<'_> {
    fn into_message(mut self) -> Option<AgentMessage> {
        let blocks = std::mem::take(&mut self.content);
        let content = blocks.into_iter().map(Block::into_content);
        let content = content.collect::<Option<Vec<Content>>>()?;
        let timestamp = self.timestamp.map(Into::into);
        let message = match self.role {
            "user" => Message::User(UserMessage { content, timestamp }),
            "assistant" => Message::Assistant(AssistantMessage {
                content,
                stop_reason: self.stop_reason.take(),
                model: self.model.take(),
                provider: self.provider.take(),
                usage: self.usage.take(),
                timestamp,
                error_message: None,
            }),
            "toolResult" => Message::ToolResult(ToolResultMessage {
                tool_call_id: self.tool_call_id.take()?,
                tool_name: self.tool_name.take()?,
                content,
                is_error: self.is_error.take()?,
                timestamp,
            }),
            _ => return None,
        };
        if !self.is_spent() {
            return None;
        }
        let turn_id = self.turn_id.map(|turn| TurnId {
            loop_id: turn.loop_id,
            turn_index: turn.turn_index.into(),
            extra: Extra::default(),
        });
        Some(AgentMessage::Llm(LlmMessage {
            message,
            turn_id,
            extra: Extra::default(),
        }))
    }

    /// Whether every field that not all roles have was taken.
    fn is_spent(&self) -> bool {
        let texts = [
            &self.stop_reason,
            &self.model,
            &self.provider,
            &self.tool_call_id,
            &self.tool_name,
        ];
        texts.iter().all(|text| text.is_none()) && self.usage.is_none() && self.is_error.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the careful way: a field that comes first and goes again keeps the other from it.
    fn carefully(json: &str) -> Option<AgentMessage> {
        let unusual = format!("{{\"x\":1,{}", json.strip_prefix('{')?);
        let mut message: AgentMessage = serde_json::from_str(&unusual).ok()?;
        message.extra_mut().remove("x");
        Some(message)
    }

    #[test]
    fn what_is_read_in_one_pass_is_what_is_read_with_care() {
        let usual = [
            r#"{"role":"user","content":[{"type":"text","text":"a\n\"b\u00e9"}],"timestamp":5}"#,
            r#"{"role":"user","content":[],"turnId":{"loopId":"l","turnIndex":3}}"#,
            r#"{"content":[{"thinking":"t","type":"thinking","signature":"s"},
                {"type":"toolCall","id":"1","name":"n","arguments":{ "a" : [1.0, -0, 1e5, null] }},
                {"type":"toolCall","id":"2","name":"n","arguments":null}],
                "role":"assistant","model":"m","stopReason":"stop","usage":{"input":1,"output":2,"x":3}}"#,
            r#"{"role":"toolResult","toolCallId":"1","toolName":"n","content":[],"isError":true}"#,
        ];
        for json in usual {
            let read = message(json);
            assert!(read.is_some(), "{json}");
            assert_eq!(read, carefully(json));
        }
    }

    #[test]
    fn what_is_unusual_is_left_to_the_careful_reader() {
        let unusual = [
            r#"{"role":"user","content":[{"type":"text","text":"a","x":1}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a","id":null}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a","id":"1"}]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}"#,
            r#"{"role":"user","content":[{"type":"image","data":"","mimeType":"x"}]}"#,
            r#"{"role":"assistant","content":[{"type":"toolCall","id":"1","name":"n"}]}"#,
            r#"{"role":"assistant","content":[{"type":"toolCall","id":1,"name":"n","arguments":{}}]}"#,
            r#"{"role":"user","content":[],"timestamp":5.0}"#,
            r#"{"role":"user","content":[],"timestamp":-0}"#,
            r#"{"role":"user","content":[],"timestamp":null}"#,
            r#"{"role":"user","content":[],"timestamp":99999999999999999999}"#,
            r#"{"role":"user","content":[],"model":"m"}"#,
            r#"{"role":"user","content":[],"turnId":{"loopId":"l","turnIndex":3,"x":1}}"#,
            r#"{"role":"toolResult","toolCallId":"1","toolName":"n","content":[]}"#,
            r#"{"role":"extension","kind":"k","content":[]}"#,
            r#"{"role":"user"}"#,
        ];
        for json in unusual {
            assert_eq!(message(json), None, "{json}");
        }
    }
}
