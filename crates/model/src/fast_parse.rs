//! A fast parser for usual messages, which nearly all are.
//!
//! The interchange format keeps unknown fields, so its general parser reads each block as text first and visits it
//! three times. This parser reads the text once, and returns `None` at the first unusual thing: a field that is `null`,
//! repeated, or of another type or role, white space, a number that is no plain integer. The caller then uses the
//! general parser; both return the same message. This is the innermost loop of every build, so a text is copied only
//! once, into the message.

use serde::Deserialize;

use super::author::Author;
use super::content::Content;
use super::json::{Extra, Json};
use super::message::{
    AgentMessage, AssistantMessage, ExtensionMessage, LlmMessage, Message, ToolResultMessage,
    TurnId, Usage, UserMessage,
};

/// Returns the message; `None` if it is unusual.
#[doc(hidden)]
pub fn message(json: &str) -> Option<AgentMessage> {
    let mut scan = JsonCursor { text: json, at: 0 };
    let mut line = MessageFields::default();
    scan.object(|scan, key| line.take(scan, key))?;
    scan.is_at_end().then(|| line.into_message()).flatten()
}

/// Returns the block; `None` if it is unusual.
pub(super) fn block(json: &str) -> Option<Content> {
    let mut scan = JsonCursor { text: json, at: 0 };
    let content = scan.block()?;
    scan.is_at_end().then_some(content)
}

/// A cursor over JSON without white space. Its methods return `None` for anything unexpected.
struct JsonCursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonCursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn is_next(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        self.is_next(byte).then_some(())
    }

    fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Reads an object; `field` reads the value of each key.
    fn object(&mut self, mut field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.eat(b'{')?;
        if self.is_next(b'}') {
            return Some(());
        }
        loop {
            let key = self.plain()?;
            self.eat(b':')?;
            field(self, key)?;
            if self.is_next(b'}') {
                return Some(());
            }
            self.eat(b',')?;
        }
    }

    /// Reads a string without escapes.
    fn plain(&mut self) -> Option<&'a str> {
        let (quoted, has_escapes) = self.quoted()?;
        (!has_escapes).then_some(quoted)
    }

    /// Reads a string.
    fn string(&mut self) -> Option<String> {
        let from = self.at;
        let (quoted, has_escapes) = self.quoted()?;
        if has_escapes {
            return serde_json::from_str(self.text.get(from..self.at)?).ok();
        }
        Some(quoted.to_owned())
    }

    /// Returns the text between the quotes of a string, and whether it has escapes. Nearly all strings are short, so a
    /// plain loop is fastest, and a table is faster than three comparisons.
    #[inline]
    fn quoted(&mut self) -> Option<(&'a str, bool)> {
        self.eat(b'"')?;
        let bytes = self.text.as_bytes();
        let (mut end, mut has_escapes) = (self.at, false);
        loop {
            let byte = *bytes.get(end)?;
            if !IS_SPECIAL[usize::from(byte)] {
                end += 1;
                continue;
            }
            match byte {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    end += 2;
                }
                _ => return None,
            }
        }
        let quoted = self.text.get(self.at..end)?;
        self.at = end + 1;
        Some((quoted, has_escapes))
    }

    /// Reads an integer in the form that Rust writes.
    fn integer(&mut self) -> Option<i64> {
        let is_negative = self.is_next(b'-');
        let (first, from, mut value) = (self.peek()?, self.at, 0_i64);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            // `i64::MIN` has no positive counterpart.
            value = value.checked_mul(10)?.checked_sub((digit - b'0').into())?;
            self.at += 1;
        }
        let is_plain = match self.at - from {
            0 => false,
            1 => value != 0 || !is_negative,
            _ => first != b'0',
        };
        let value = if is_negative {
            Some(value)
        } else {
            value.checked_neg()
        };
        value.filter(|_| is_plain)
    }

    fn boolean(&mut self) -> Option<bool> {
        let rest = self.text.get(self.at..)?;
        let value = rest.starts_with("true");
        self.at += if value { 4 } else { 5 };
        (value || rest.starts_with("false")).then_some(value)
    }

    /// Reads a value with `serde`.
    fn value<T: Deserialize<'a>>(&mut self) -> Option<T> {
        let rest = self.text.get(self.at..)?;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(value)
    }

    /// Reads an unknown field.
    fn unknown(&mut self, extra: &mut Extra, key: &str) -> Option<()> {
        let is_first = extra.get(key).is_none();
        extra.insert(key, self.value()?);
        is_first.then_some(())
    }

    fn content(&mut self) -> Option<Vec<Content>> {
        self.eat(b'[')?;
        if self.is_next(b']') {
            return Some(Vec::new());
        }
        // Most messages have one block or two.
        let mut blocks = Vec::with_capacity(2);
        loop {
            blocks.push(self.block()?);
            if self.is_next(b']') {
                return Some(blocks);
            }
            self.eat(b',')?;
        }
    }

    fn block(&mut self) -> Option<Content> {
        let mut block = BlockFields::default();
        self.object(|scan, key| block.take(scan, key))?;
        block.into_content()
    }

    fn turn(&mut self) -> Option<TurnId> {
        let (mut loop_id, mut turn_index) = (None, None);
        self.object(|scan, key| match key {
            "loopId" => set(&mut loop_id, scan.string()),
            "turnIndex" => set(&mut turn_index, scan.integer()),
            _ => None,
        })?;
        Some(TurnId {
            loop_id: loop_id?,
            turn_index: turn_index?.into(),
            extra: Extra::default(),
        })
    }
}

/// True for bytes of a string that need a closer look: quotes, backslashes, control characters.
static IS_SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        special[byte] = true;
        byte += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};

/// Sets a field; returns `None` if it was set before.
fn set<T>(field: &mut Option<T>, value: Option<T>) -> Option<()> {
    let is_first = field.is_none();
    *field = Some(value?);
    is_first.then_some(())
}

#[derive(Default)]
struct BlockFields<'a> {
    kind: Option<&'a str>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    id: Option<String>,
    name: Option<String>,
    arguments: Option<Json>,
    extra: Extra,
}

impl<'a> BlockFields<'a> {
    fn take(&mut self, scan: &mut JsonCursor<'a>, key: &str) -> Option<()> {
        match key {
            "type" => set(&mut self.kind, scan.plain()),
            "text" => set(&mut self.text, scan.string()),
            "thinking" => set(&mut self.thinking, scan.string()),
            "signature" => set(&mut self.signature, scan.string()),
            "id" => set(&mut self.id, scan.string()),
            "name" => set(&mut self.name, scan.string()),
            "arguments" => set(&mut self.arguments, scan.value()),
            _ => scan.unknown(&mut self.extra, key),
        }
    }

    fn into_content(mut self) -> Option<Content> {
        let mut content = match self.kind? {
            "text" => Content::text(self.text.take()?),
            "thinking" => Content::thinking(self.thinking.take()?, self.signature.take()),
            "toolCall" => {
                Content::tool_call(self.id.take()?, self.name.take()?, self.arguments.take()?)
            }
            _ => return None,
        };
        if !self.is_spent() {
            return None;
        }
        if !self.extra.is_empty() {
            *content.extra_mut()? = self.extra;
        }
        Some(content)
    }

    /// True if every field was used.
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

#[derive(Default)]
struct MessageFields<'a> {
    role: Option<&'a str>,
    content: Option<Vec<Content>>,
    stop_reason: Option<String>,
    model: Option<String>,
    provider: Option<String>,
    usage: Option<Usage>,
    tool_call_id: Option<String>,
    tool_name: Option<String>,
    is_error: Option<bool>,
    timestamp: Option<i64>,
    author: Option<Author>,
    turn_id: Option<TurnId>,
    kind: Option<String>,
    data: Option<Json>,
    extra: Extra,
}

impl<'a> MessageFields<'a> {
    fn take(&mut self, scan: &mut JsonCursor<'a>, key: &str) -> Option<()> {
        match key {
            "role" => set(&mut self.role, scan.plain()),
            "content" => set(&mut self.content, scan.content()),
            "stopReason" => set(&mut self.stop_reason, scan.string()),
            "model" => set(&mut self.model, scan.string()),
            "provider" => set(&mut self.provider, scan.string()),
            "usage" => set(&mut self.usage, scan.value()),
            "toolCallId" => set(&mut self.tool_call_id, scan.string()),
            "toolName" => set(&mut self.tool_name, scan.string()),
            "isError" => set(&mut self.is_error, scan.boolean()),
            "timestamp" => set(&mut self.timestamp, scan.integer()),
            "author" => set(&mut self.author, scan.plain().and_then(Author::from_name)),
            "turnId" => set(&mut self.turn_id, scan.turn()),
            "kind" => set(&mut self.kind, scan.string()),
            "data" => set(&mut self.data, scan.value()),
            "error_message" => None,
            _ => scan.unknown(&mut self.extra, key),
        }
    }

    fn into_message(mut self) -> Option<AgentMessage> {
        if self.role == Some("extension") {
            return self.into_extension();
        }
        let content = self.content.take()?;
        let (timestamp, author) = (self.timestamp.map(Into::into), self.author);
        let message = match self.role? {
            "user" => Message::User(UserMessage {
                content,
                timestamp,
                author,
            }),
            "assistant" => Message::Assistant(AssistantMessage {
                content,
                stop_reason: self.stop_reason.take(),
                model: self.model.take(),
                provider: self.provider.take(),
                usage: self.usage.take(),
                timestamp,
                error_message: None,
                author,
            }),
            "toolResult" => Message::ToolResult(ToolResultMessage {
                tool_call_id: self.tool_call_id.take()?,
                tool_name: self.tool_name.take()?,
                content,
                is_error: self.is_error.take()?,
                timestamp,
                author,
            }),
            _ => return None,
        };
        if !self.is_spent() {
            return None;
        }
        Some(AgentMessage::Llm(LlmMessage {
            message,
            turn_id: self.turn_id,
            extra: self.extra,
        }))
    }

    fn into_extension(mut self) -> Option<AgentMessage> {
        let (kind, data) = (self.kind.take()?, self.data.take()?);
        let is_plain = self.content.is_none()
            && self.timestamp.is_none()
            && self.author.is_none()
            && self.turn_id.is_none();
        if !is_plain || !self.is_spent() {
            return None;
        }
        Some(AgentMessage::Extension(ExtensionMessage {
            kind,
            data,
            extra: self.extra,
        }))
    }

    /// True if every field that only some roles have was used.
    fn is_spent(&self) -> bool {
        let texts = [
            &self.stop_reason,
            &self.model,
            &self.provider,
            &self.tool_call_id,
            &self.tool_name,
            &self.kind,
        ];
        texts.iter().all(|text| text.is_none())
            && self.usage.is_none()
            && self.is_error.is_none()
            && self.data.is_none()
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
            r#"{"role":"user","content":[],"turnId":{"loopId":"l","turnIndex":0},"timestamp":9223372036854775807}"#,
            concat!(
                r#"{"content":[{"thinking":"t","type":"thinking","signature":"s"},"#,
                r#"{"type":"toolCall","id":"1","name":"n","arguments":{ "a" : [1.0, -0, 1e5, null] }},"#,
                r#"{"type":"toolCall","id":"2","name":"n","arguments":null},"#,
                r#"{"type":"toolCall","id":"3","name":"n","arguments":"\"\\"},"#,
                r#"{"type":"toolCall","id":"\u0034","name":"n","arguments":-1.5}],"#,
                r#""role":"assistant","model":"m","stopReason":"stop","usage":{"input":1,"output":2,"x":3},"#,
                r#""timestamp":-9223372036854775808}"#
            ),
            r#"{"role":"user","content":[{"type":"text","text":"\\"},{"type":"text","text":"é\ud83d\ude00\\\""}]}"#,
            r#"{"role":"toolResult","toolCallId":"1","toolName":"n","content":[],"isError":true}"#,
            r#"{"role":"user","content":[],"author":"harness"}"#,
            r#"{"role":"assistant","content":[],"timestamp":1,"author":"agent"}"#,
            r#"{"item":{"a": [1.0]},"role":"user","content":[{"text":"a","x":[ ],"type":"text","y":"\u0041"}],"z":null}"#,
            concat!(
                r#"{"role":"assistant","content":[{"type":"toolCall","id":"1","name":"n","arguments":{},"#,
                r#""source":{"id":"f"}},{"type":"thinking","thinking":"t","redacted":true}],"responseId":"r"}"#
            ),
            r#"{"role":"extension","kind":"k","data":{"a":1}}"#,
            r#"{"role":"extension","data":null,"kind":"k","y":[]}"#,
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
            r#"{"role":"user","content":[{"type":"text","text":"a","x":1,"x":1}]}"#,
            r#"{"role":"user","content":[],"x":1,"x":1}"#,
            r#"{"role":"user","content":[],"x\u0079":1}"#,
            r#"{"role":"user","content":[],"kind":"k"}"#,
            r#"{"role":"user","content":[],"data":1}"#,
            r#"{"role":"assistant","content":[],"error_message":"e"}"#,
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
            r#"{"role":"user","content":[],"timestamp":9223372036854775808}"#,
            r#"{"role":"user","content":[],"timestamp":-05}"#,
            r#"{"role":"user","content":[],"model":"m"}"#,
            r#"{"role":"user","content":[],"turnId":{"loopId":"l","turnIndex":3,"x":1}}"#,
            r#"{"role":"toolResult","toolCallId":"1","toolName":"n","content":[]}"#,
            r#"{"role":"extension","kind":"k","content":[]}"#,
            r#"{"role":"extension","kind":"k","data":1,"content":[]}"#,
            r#"{"role":"extension","kind":"k","data":1,"timestamp":1}"#,
            r#"{"role":"extension","kind":"k","data":1,"author":"agent"}"#,
            r#"{"role":"extension","kind":"k","data":1,"toolName":"n"}"#,
            r#"{"role":"extension","kind":"k"}"#,
            r#"{"role":"extension","data":1}"#,
            r#"{"role":"user"}"#,
            r#"{"role":"user","content":[],"author":"bob"}"#,
            r#"{"role":"user","content":[],"author":1}"#,
            r#"{"role":"user","content":[{"type":"text","text":"a"} ]}"#,
            r#"{"role":"user","content":[{"type":"te\u0078t","text":"a"}]}"#,
            r#"{"role":"user","content":[],"timestamp":05}"#,
            r#"{"role":"user","content":[],"timestamp":--5}"#,
            r#"{"role":"user","content":[],"timestamp":-}"#,
            r#"{"role":"toolResult","toolCallId":"1","toolName":"n","content":[],"isError":falsy}"#,
        ];
        for json in unusual {
            assert_eq!(message(json), None, "{json}");
        }
    }

    #[test]
    fn what_is_no_json_is_no_usual_message() {
        let json = r#"{"role":"user","content":[{"type":"text","text":"a\nb"}],"timestamp":5}"#;
        assert!(message(json).is_some());
        for end in 0..json.len() {
            assert_eq!(message(&json[..end]), None);
        }
        let broken = [
            json.replace("a\\nb", "a\nb"),
            json.replace("a\\nb", "a\\xb"),
            json.replace("5}", "5}}"),
            json.replace("5}", "5,}"),
            json.replace("}]", "},]"),
            json.replace(r#""role":"#, r#""role""#),
        ];
        for json in broken {
            assert!(
                serde_json::from_str::<AgentMessage>(&json).is_err(),
                "{json}"
            );
            assert_eq!(message(&json), None, "{json}");
        }
    }
}
