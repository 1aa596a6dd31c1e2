//! pi's session: a header, then entries that each name the one before.

use std::io::{self, Write};

use loopstore::model::{Content, Extra, Int, Json, Time, Usage};
use loopstore_provider::arguments_object;
use serde::{Deserialize, Serialize};

use super::conversation::{Answered, Conversation, Returned, Said, Step};
use super::{Form, NativeSession, is_of_anthropic, line};

/// The version of the form.
const VERSION: u32 = 3;

pub(super) struct Pi;

impl Form for Pi {
    /// pi itself leaves out what another model thought, or sends it as text.
    fn takes_thinking(&self, block: &Content) -> bool {
        matches!(block, Content::Thinking(_)) || is_of_anthropic(block)
    }

    fn write(
        &self,
        session: &NativeSession,
        conversation: &Conversation<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let steps = &conversation.steps;
        let begun = steps
            .first()
            .map_or(session.now.timestamp_millis(), Step::at);
        let header = Header {
            r#type: "session",
            version: VERSION,
            id: session.id(),
            timestamp: time(begun),
            cwd: session.folder(),
        };
        line(out, &header)?;
        let mut entries = Entries { written: 0, out };
        if let Some(name) = &session.title {
            entries.entry(begun, "session_info", Entry::Info { name })?;
        }
        for step in steps {
            match step {
                Step::Said(said) => entries.said(said)?,
                Step::Answered(answered) => entries.answered(answered)?,
            }
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Header<'a> {
    r#type: &'static str,
    version: u32,
    id: &'a str,
    timestamp: Time,
    cwd: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    r#type: &'static str,
    id: String,
    parent_id: Option<String>,
    timestamp: Time,
    #[serde(flatten)]
    entry: Entry<'a>,
}

// One at a time, and gone once it is written.
#[allow(clippy::large_enum_variant)]
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Info {
        name: &'a str,
    },
    Message {
        message: Message<'a>,
    },
    #[serde(rename_all = "camelCase")]
    Custom {
        custom_type: &'static str,
        content: Vec<Block<'a>>,
        display: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "camelCase")]
enum Message<'a> {
    User {
        content: Vec<Block<'a>>,
        timestamp: i64,
    },
    #[serde(rename_all = "camelCase")]
    Assistant {
        content: Vec<Block<'a>>,
        api: String,
        provider: &'a str,
        model: &'a str,
        usage: Tokens,
        stop_reason: &'a str,
        timestamp: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<&'a str>,
    },
    #[serde(rename_all = "camelCase")]
    ToolResult {
        tool_call_id: &'a str,
        tool_name: &'a str,
        content: Vec<Block<'a>>,
        is_error: bool,
        timestamp: i64,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum Block<'a> {
    #[serde(rename_all = "camelCase")]
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        text_signature: Option<&'a Json>,
    },
    #[serde(rename_all = "camelCase")]
    Image { data: &'a str, mime_type: &'a str },
    #[serde(rename_all = "camelCase")]
    Thinking {
        thinking: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking_signature: Option<Json>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    #[serde(rename_all = "camelCase")]
    ToolCall {
        id: &'a str,
        name: &'a str,
        arguments: Json,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a Json>,
    },
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    input: Int,
    output: Int,
    cache_read: Int,
    cache_write: Int,
    total_tokens: Int,
    cost: Cost,
}

/// What a call cost. A sum that is not known is none.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cost {
    input: u8,
    output: u8,
    cache_read: u8,
    cache_write: u8,
    total: u8,
}

impl Tokens {
    fn of(usage: &Usage) -> Self {
        let counted = || usage.input.get().saturating_add(usage.output.get()).into();
        Self {
            input: usage.input.clone(),
            output: usage.output.clone(),
            cache_read: usage.cache_read.clone().unwrap_or_default(),
            cache_write: usage.cache_write.clone().unwrap_or_default(),
            total_tokens: usage.total_tokens.clone().unwrap_or_else(counted),
            cost: Cost::default(),
        }
    }
}

struct Entries<'a> {
    /// How many entries there are; their number is their id.
    written: u32,
    out: &'a mut dyn Write,
}

impl Entries<'_> {
    fn entry(&mut self, at: i64, kind: &'static str, entry: Entry<'_>) -> io::Result<()> {
        let id = |number: u32| format!("{number:08x}");
        self.written += 1;
        let entry = Line {
            r#type: kind,
            id: id(self.written),
            parent_id: self.written.checked_sub(1).filter(|n| *n > 0).map(id),
            timestamp: time(at),
            entry,
        };
        line(self.out, &entry)
    }

    fn message(&mut self, at: i64, message: Message<'_>) -> io::Result<()> {
        self.entry(at, "message", Entry::Message { message })
    }

    fn said(&mut self, said: &Said) -> io::Result<()> {
        let content = blocks(&said.content);
        if said.is_prompt {
            let timestamp = said.at;
            return self.message(said.at, Message::User { content, timestamp });
        }
        let added = Entry::Custom {
            custom_type: "loopstore",
            content,
            display: false,
        };
        self.entry(said.at, "custom_message", added)
    }

    fn answered(&mut self, answered: &Answered<'_>) -> io::Result<()> {
        let answer = &answered.answer;
        let provider = answer.provider.as_deref().unwrap_or("unknown");
        let stop_reason = match (answered.failure(), answered.results.is_empty()) {
            (Some(failure), _) => failure,
            (None, false) => "toolUse",
            (None, true) if answer.stop_reason.as_deref() == Some("length") => "length",
            (None, true) => "stop",
        };
        let message = Message::Assistant {
            content: blocks(&answer.content),
            api: api(answered.source, provider),
            provider,
            model: answer.model.as_deref().unwrap_or("unknown"),
            usage: answer.usage.as_ref().map(Tokens::of).unwrap_or_default(),
            stop_reason,
            timestamp: answered.at,
            error_message: answer.error_message.as_deref(),
        };
        self.message(answered.at, message)?;
        answered
            .results
            .iter()
            .try_for_each(|returned| self.returned(returned))
    }

    fn returned(&mut self, returned: &Returned) -> io::Result<()> {
        let result = &returned.result;
        let message = Message::ToolResult {
            tool_call_id: &result.tool_call_id,
            tool_name: &result.tool_name,
            content: blocks(&result.content),
            is_error: result.is_error,
            timestamp: returned.at,
        };
        self.message(returned.at, message)
    }
}

fn time(at: i64) -> Time {
    Time::from_millis(at).unwrap_or_else(Time::now)
}

fn blocks(content: &[Content]) -> Vec<Block<'_>> {
    content.iter().filter_map(block).collect()
}

fn block(block: &Content) -> Option<Block<'_>> {
    Some(match block {
        Content::Text(text) => Block::Text {
            text: &text.text,
            text_signature: text.extra.get("textSignature"),
        },
        Content::Image(image) => Block::Image {
            data: &image.data,
            mime_type: &image.mime_type,
        },
        Content::Thinking(thinking) => Block::Thinking {
            thinking: &thinking.thinking,
            thinking_signature: signature(thinking.signature.as_deref(), &thinking.extra),
            redacted: false,
        },
        Content::ToolCall(call) => Block::ToolCall {
            id: &call.id,
            name: &call.name,
            arguments: arguments_object(call),
            thought_signature: call.extra.get("thoughtSignature"),
        },
        Content::Sealed(sealed) => Block::Thinking {
            thinking: "",
            thinking_signature: Some(Json::string(&sealed.item.read::<Redacted>().ok()?.data)),
            redacted: true,
        },
        Content::Other(_) => return None,
    })
}

/// Thinking that Anthropic redacted.
#[derive(Deserialize)]
struct Redacted {
    data: String,
}

/// Returns the signature of Anthropic's, or what pi kept of another provider.
fn signature(own: Option<&str>, extra: &Extra) -> Option<Json> {
    let kept = || extra.get("thinkingSignature").cloned();
    own.map(Json::string).or_else(kept)
}

/// Returns the interface of the provider: as pi recorded it, else the one that the provider is known for.
fn api(source: Option<&Json>, provider: &str) -> String {
    #[derive(Deserialize)]
    struct Recorded {
        message: Api,
    }
    #[derive(Deserialize)]
    struct Api {
        api: String,
    }
    let recorded = source.and_then(|source| source.read::<Recorded>().ok());
    recorded.map_or_else(
        || {
            let known = match provider {
                "anthropic" => "anthropic-messages",
                "openai" => "openai-responses",
                "google" => "google-generative-ai",
                _ => "openai-completions",
            };
            known.to_owned()
        },
        |recorded| recorded.message.api,
    )
}
