//! The session file of pi: a header, then entries that each refer to the one before.

use std::io::{self, Write};

use loopstore::model::{Content, Extra, Int, Json, Time, Usage};
use loopstore_provider::arguments_object;
use serde::{Deserialize, Serialize};

use super::conversation::{
    AnswerStep, ConversationStep, InputStep, NativeConversation, ToolReturn,
};
use super::{NativeForm, NativeSession, is_of_anthropic, line};

/// The version of the format.
const VERSION: u32 = 3;

pub(super) struct PiForm;

impl NativeForm for PiForm {
    /// pi itself leaves out the thinking of another model, or sends it as text.
    fn takes_thinking(&self, block: &Content) -> bool {
        matches!(block, Content::Thinking(_)) || is_of_anthropic(block)
    }

    fn write(
        &self,
        session: &NativeSession,
        conversation: &NativeConversation<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let steps = &conversation.steps;
        let begun = steps
            .first()
            .map_or(session.now.timestamp_millis(), ConversationStep::at);
        let header = PiHeader {
            r#type: "session",
            version: VERSION,
            id: session.id(),
            timestamp: time(begun),
            cwd: session.folder(),
        };
        line(out, &header)?;
        let mut entries = EntryWriter { written: 0, out };
        if let Some(name) = &session.title {
            entries.entry(begun, "session_info", PiEntryBody::Info { name })?;
        }
        for step in steps {
            match step {
                ConversationStep::Input(input) => entries.write_input(input)?,
                ConversationStep::Answer(answered) => entries.write_answer(answered)?,
            }
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct PiHeader<'a> {
    r#type: &'static str,
    version: u32,
    id: &'a str,
    timestamp: Time,
    cwd: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PiLine<'a> {
    r#type: &'static str,
    id: String,
    parent_id: Option<String>,
    timestamp: Time,
    #[serde(flatten)]
    entry: PiEntryBody<'a>,
}

// One value at a time, dropped once it is written.
#[allow(clippy::large_enum_variant)]
#[derive(Serialize)]
#[serde(untagged)]
enum PiEntryBody<'a> {
    Info {
        name: &'a str,
    },
    Message {
        message: PiMessage<'a>,
    },
    #[serde(rename_all = "camelCase")]
    Custom {
        custom_type: &'static str,
        content: Vec<PiBlock<'a>>,
        display: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "camelCase")]
enum PiMessage<'a> {
    User {
        content: Vec<PiBlock<'a>>,
        timestamp: i64,
    },
    #[serde(rename_all = "camelCase")]
    Assistant {
        content: Vec<PiBlock<'a>>,
        api: String,
        provider: &'a str,
        model: &'a str,
        usage: PiUsage,
        stop_reason: &'a str,
        timestamp: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<&'a str>,
    },
    #[serde(rename_all = "camelCase")]
    ToolResult {
        tool_call_id: &'a str,
        tool_name: &'a str,
        content: Vec<PiBlock<'a>>,
        is_error: bool,
        timestamp: i64,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum PiBlock<'a> {
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
struct PiUsage {
    input: Int,
    output: Int,
    cache_read: Int,
    cache_write: Int,
    total_tokens: Int,
    cost: PiCost,
}

/// The cost of a call; 0 if it is not known.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct PiCost {
    input: u8,
    output: u8,
    cache_read: u8,
    cache_write: u8,
    total: u8,
}

impl PiUsage {
    fn of(usage: &Usage) -> Self {
        let counted = || usage.input.get().saturating_add(usage.output.get()).into();
        Self {
            input: usage.input.clone(),
            output: usage.output.clone(),
            cache_read: usage.cache_read.clone().unwrap_or_default(),
            cache_write: usage.cache_write.clone().unwrap_or_default(),
            total_tokens: usage.total_tokens.clone().unwrap_or_else(counted),
            cost: PiCost::default(),
        }
    }
}

struct EntryWriter<'a> {
    /// The number of entries; the number of an entry is its id.
    written: u32,
    out: &'a mut dyn Write,
}

impl EntryWriter<'_> {
    fn entry(&mut self, at: i64, kind: &'static str, entry: PiEntryBody<'_>) -> io::Result<()> {
        let id = |number: u32| format!("{number:08x}");
        self.written += 1;
        let entry = PiLine {
            r#type: kind,
            id: id(self.written),
            parent_id: self.written.checked_sub(1).filter(|n| *n > 0).map(id),
            timestamp: time(at),
            entry,
        };
        line(self.out, &entry)
    }

    fn message(&mut self, at: i64, message: PiMessage<'_>) -> io::Result<()> {
        self.entry(at, "message", PiEntryBody::Message { message })
    }

    fn write_input(&mut self, input: &InputStep) -> io::Result<()> {
        let content = blocks(&input.content);
        if input.is_prompt {
            let timestamp = input.at;
            return self.message(input.at, PiMessage::User { content, timestamp });
        }
        let added = PiEntryBody::Custom {
            custom_type: "loopstore",
            content,
            display: false,
        };
        self.entry(input.at, "custom_message", added)
    }

    fn write_answer(&mut self, answered: &AnswerStep<'_>) -> io::Result<()> {
        let answer = &answered.answer;
        let provider = answer.provider.as_deref().unwrap_or("unknown");
        let stop_reason = match (answered.failure(), answered.results.is_empty()) {
            (Some(failure), _) => failure,
            (None, false) => "toolUse",
            (None, true) if answer.stop_reason.as_deref() == Some("length") => "length",
            (None, true) => "stop",
        };
        let message = PiMessage::Assistant {
            content: blocks(&answer.content),
            api: api(answered.source, provider),
            provider,
            model: answer.model.as_deref().unwrap_or("unknown"),
            usage: answer.usage.as_ref().map(PiUsage::of).unwrap_or_default(),
            stop_reason,
            timestamp: answered.at,
            error_message: answer.error_message.as_deref(),
        };
        self.message(answered.at, message)?;
        answered
            .results
            .iter()
            .try_for_each(|returned| self.write_result(returned))
    }

    fn write_result(&mut self, returned: &ToolReturn) -> io::Result<()> {
        let result = &returned.result;
        let message = PiMessage::ToolResult {
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

fn blocks(content: &[Content]) -> Vec<PiBlock<'_>> {
    content.iter().filter_map(block).collect()
}

fn block(block: &Content) -> Option<PiBlock<'_>> {
    Some(match block {
        Content::Text(text) => PiBlock::Text {
            text: &text.text,
            text_signature: text.extra.get("textSignature"),
        },
        Content::Image(image) => PiBlock::Image {
            data: &image.data,
            mime_type: &image.mime_type,
        },
        Content::Thinking(thinking) => PiBlock::Thinking {
            thinking: &thinking.thinking,
            thinking_signature: signature(thinking.signature.as_deref(), &thinking.extra),
            redacted: false,
        },
        Content::ToolCall(call) => PiBlock::ToolCall {
            id: &call.id,
            name: &call.name,
            arguments: arguments_object(call),
            thought_signature: call.extra.get("thoughtSignature"),
        },
        Content::Sealed(sealed) => PiBlock::Thinking {
            thinking: "",
            thinking_signature: Some(Json::string(
                &sealed.item.read::<RedactedThinking>().ok()?.data,
            )),
            redacted: true,
        },
        Content::Other(_) => return None,
    })
}

/// Thinking that Anthropic redacted.
#[derive(Deserialize)]
struct RedactedThinking {
    data: String,
}

/// Returns the signature of Anthropic, or the one that pi kept of another provider.
fn signature(own: Option<&str>, extra: &Extra) -> Option<Json> {
    let kept = || extra.get("thinkingSignature").cloned();
    own.map(Json::string).or_else(kept)
}

/// Returns the API of the provider: as pi recorded it, else the usual one of the provider.
fn api(source: Option<&Json>, provider: &str) -> String {
    #[derive(Deserialize)]
    struct PiSource {
        message: Api,
    }
    #[derive(Deserialize)]
    struct Api {
        api: String,
    }
    let recorded = source.and_then(|source| source.read::<PiSource>().ok());
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
