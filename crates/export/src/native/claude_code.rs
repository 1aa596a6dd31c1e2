//! The records of Claude Code: each refers to the one before it, an answer is one record for each of its blocks, and a
//! result is a record with the role of the user.

use std::io::{self, Write};

use loopstore::model::{Content, Image, Int, Json, SessionId, Time, Usage};
use loopstore_provider::arguments_object;
use loopstore_provider::media_type;
use serde::Serialize;

use super::conversation::{
    AnswerStep, ConversationStep, InputStep, NativeConversation, ToolReturn,
};
use super::folders::composed;
use super::{NativeForm, NativeSession, is_of_anthropic, line};

/// The newest version whose records were seen.
const VERSION: &str = "2.1.62";

/// The model of answers that Claude Code makes up itself, such as errors.
const SYNTHETIC: &str = "<synthetic>";

pub(super) struct ClaudeCodeForm;

impl NativeForm for ClaudeCodeForm {
    fn takes_thinking(&self, block: &Content) -> bool {
        is_of_anthropic(block)
    }

    fn shows_images_of_errors(&self) -> bool {
        false
    }

    fn write(
        &self,
        session: &NativeSession,
        conversation: &NativeConversation<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let folder = composed(session.folder());
        let mut records = RecordWriter {
            session,
            folder: &folder,
            parent: None,
            out,
        };
        for step in &conversation.steps {
            match step {
                ConversationStep::Input(input) => records.write_input(input)?,
                ConversationStep::Answer(answered) => records.write_answer(answered)?,
            }
        }
        match &session.title {
            Some(title) => line(
                records.out,
                &Title {
                    r#type: "custom-title",
                    custom_title: title,
                    session_id: session.id(),
                },
            ),
            None => Ok(()),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Title<'a> {
    r#type: &'static str,
    custom_title: &'a str,
    session_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaudeRecord<'a> {
    parent_uuid: Option<String>,
    is_sidechain: bool,
    user_type: &'static str,
    cwd: &'a str,
    session_id: &'a str,
    version: &'static str,
    git_branch: &'static str,
    r#type: &'static str,
    message: ClaudeBody<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_meta: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_api_error_message: bool,
    uuid: String,
    timestamp: Time,
}

// One value at a time, dropped once it is written.
#[allow(clippy::large_enum_variant)]
#[derive(Serialize)]
#[serde(untagged)]
enum ClaudeBody<'a> {
    User {
        role: &'static str,
        content: UserContent<'a>,
    },
    Answer {
        id: &'a str,
        r#type: &'static str,
        role: &'static str,
        model: &'a str,
        content: [ClaudeBlock<'a>; 1],
        stop_reason: Option<&'static str>,
        stop_sequence: Option<&'static str>,
        usage: ClaudeUsage,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum UserContent<'a> {
    Text(&'a str),
    List(Vec<ClaudeBlock<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ClaudeBlock<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: ClaudeImageSource<'a>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Json,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: UserContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// Opaque thinking of the provider, unchanged.
    #[serde(untagged)]
    Redacted(&'a Json),
}

#[derive(Serialize)]
struct ClaudeImageSource<'a> {
    r#type: &'static str,
    media_type: &'static str,
    data: &'a str,
}

#[derive(Serialize, Default)]
struct ClaudeUsage {
    input_tokens: Int,
    cache_creation_input_tokens: Int,
    cache_read_input_tokens: Int,
    output_tokens: Int,
}

impl ClaudeUsage {
    fn of(usage: &Usage) -> Self {
        Self {
            input_tokens: usage.input.clone(),
            cache_creation_input_tokens: usage.cache_write.clone().unwrap_or_default(),
            cache_read_input_tokens: usage.cache_read.clone().unwrap_or_default(),
            output_tokens: usage.output.clone(),
        }
    }
}

struct RecordWriter<'a> {
    session: &'a NativeSession,
    /// The folder as Claude Code writes it.
    folder: &'a str,
    parent: Option<String>,
    out: &'a mut dyn Write,
}

impl RecordWriter<'_> {
    fn write_input(&mut self, input: &InputStep) -> io::Result<()> {
        let body = user(content(&input.content));
        self.record("user", body, input.at, |record| {
            record.is_meta = !input.is_prompt;
        })
    }

    fn write_answer(&mut self, answered: &AnswerStep<'_>) -> io::Result<()> {
        let answer = &answered.answer;
        let id = format!("msg_{}", SessionId::generate().as_str().replace('-', ""));
        let is_error = answered.failure() == Some("error");
        let model = match is_error {
            true => SYNTHETIC,
            false => answer.model.as_deref().unwrap_or("unknown"),
        };
        for block in answer.content.iter().filter_map(block) {
            let body = ClaudeBody::Answer {
                id: &id,
                r#type: "message",
                role: "assistant",
                model,
                content: [block],
                stop_reason: stop_reason(answer.stop_reason.as_deref()),
                stop_sequence: None,
                usage: answer
                    .usage
                    .as_ref()
                    .map(ClaudeUsage::of)
                    .unwrap_or_default(),
            };
            self.record("assistant", body, answered.at, |record| {
                record.is_api_error_message = is_error;
            })?;
        }
        answered
            .results
            .iter()
            .try_for_each(|returned| self.write_result(returned))
    }

    fn write_result(&mut self, returned: &ToolReturn) -> io::Result<()> {
        let result = &returned.result;
        let block = ClaudeBlock::ToolResult {
            tool_use_id: &result.tool_call_id,
            content: content(&result.content),
            is_error: result.is_error,
        };
        let body = user(UserContent::List(vec![block]));
        self.record("user", body, returned.at, |_| {})
    }

    fn record(
        &mut self,
        kind: &'static str,
        message: ClaudeBody<'_>,
        at: i64,
        with: impl FnOnce(&mut ClaudeRecord<'_>),
    ) -> io::Result<()> {
        let uuid = SessionId::generate().as_str().to_owned();
        let mut record = ClaudeRecord {
            parent_uuid: self.parent.replace(uuid.clone()),
            is_sidechain: false,
            user_type: "external",
            cwd: self.folder,
            session_id: self.session.id(),
            version: VERSION,
            git_branch: "",
            r#type: kind,
            message,
            is_meta: false,
            is_api_error_message: false,
            uuid,
            timestamp: Time::from_millis(at).unwrap_or_else(Time::now),
        };
        with(&mut record);
        line(self.out, &record)
    }
}

fn user(content: UserContent<'_>) -> ClaudeBody<'_> {
    ClaudeBody::User {
        role: "user",
        content,
    }
}

/// Returns plain text if there are no other blocks.
fn content(blocks: &[Content]) -> UserContent<'_> {
    match blocks {
        [Content::Text(text)] => UserContent::Text(&text.text),
        blocks => UserContent::List(blocks.iter().filter_map(block).collect()),
    }
}

fn block(block: &Content) -> Option<ClaudeBlock<'_>> {
    Some(match block {
        Content::Text(text) => ClaudeBlock::Text { text: &text.text },
        Content::Image(image) => ClaudeBlock::Image {
            source: source(image)?,
        },
        Content::Thinking(thinking) => ClaudeBlock::Thinking {
            thinking: &thinking.thinking,
            signature: thinking.signature.as_deref()?,
        },
        Content::ToolCall(call) => ClaudeBlock::ToolUse {
            id: &call.id,
            name: &call.name,
            input: arguments_object(call),
        },
        Content::Sealed(sealed) => ClaudeBlock::Redacted(&sealed.item),
        Content::Other(_) => return None,
    })
}

fn source(image: &Image) -> Option<ClaudeImageSource<'_>> {
    Some(ClaudeImageSource {
        r#type: "base64",
        media_type: media_type(image)?,
        data: &image.data,
    })
}

fn stop_reason(reason: Option<&str>) -> Option<&'static str> {
    match reason? {
        "stop" => Some("end_turn"),
        "toolUse" => Some("tool_use"),
        "length" => Some("max_tokens"),
        _ => None,
    }
}
