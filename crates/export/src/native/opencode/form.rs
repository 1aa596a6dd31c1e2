//! The export of OpenCode: a session, its messages, and their parts.

use loopstore::model::{Int, Json, Usage};
use serde::Serialize;

use crate::native::conversation::AnswerStep;

#[derive(Clone, Copy, Serialize)]
pub(super) struct Model<'a> {
    #[serde(rename = "providerID")]
    pub(super) provider_id: &'a str,
    #[serde(rename = "modelID")]
    pub(super) model_id: &'a str,
}

impl<'a> Model<'a> {
    pub(super) const UNKNOWN: Self = Self {
        provider_id: "unknown",
        model_id: "unknown",
    };

    pub(super) fn of(answered: &'a AnswerStep<'_>) -> Self {
        let answer = &answered.answer;
        Self {
            provider_id: answer.provider.as_deref().unwrap_or("unknown"),
            model_id: answer.model.as_deref().unwrap_or("unknown"),
        }
    }
}

#[derive(Serialize)]
pub(super) struct SessionInfo<'a> {
    pub(super) id: &'a str,
    pub(super) slug: &'a str,
    #[serde(rename = "projectID")]
    pub(super) project_id: &'static str,
    pub(super) directory: &'a str,
    pub(super) title: &'a str,
    pub(super) version: &'static str,
    pub(super) time: UpdatedTime,
}

#[derive(Serialize)]
pub(super) struct UpdatedTime {
    pub(super) created: i64,
    pub(super) updated: i64,
}

#[derive(Serialize)]
pub(super) struct OpenCodeMessage<'a> {
    pub(super) info: MessageInfo<'a>,
    pub(super) parts: Vec<OpenCodePart<'a>>,
}

#[derive(Serialize)]
pub(super) struct MessageInfo<'a> {
    pub(super) id: &'a str,
    #[serde(rename = "sessionID")]
    pub(super) session_id: &'a str,
    pub(super) agent: &'static str,
    #[serde(flatten)]
    pub(super) of: OfRole<'a>,
}

// One value at a time, dropped once it is written.
#[allow(clippy::large_enum_variant)]
#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum OfRole<'a> {
    User {
        time: CreatedTime,
        model: Model<'a>,
    },
    Assistant {
        #[serde(rename = "parentID")]
        parent_id: &'a str,
        #[serde(flatten)]
        model: Model<'a>,
        mode: &'static str,
        path: MessagePath<'a>,
        cost: u8,
        tokens: OpenCodeUsage,
        time: CompletedTime,
        #[serde(skip_serializing_if = "Option::is_none")]
        finish: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<MessageError<'a>>,
    },
}

#[derive(Serialize)]
pub(super) struct CreatedTime {
    pub(super) created: i64,
}

#[derive(Serialize)]
pub(super) struct CompletedTime {
    pub(super) created: i64,
    pub(super) completed: i64,
}

#[derive(Serialize)]
pub(super) struct MessagePath<'a> {
    pub(super) cwd: &'a str,
    pub(super) root: &'a str,
}

#[derive(Serialize)]
pub(super) struct MessageError<'a> {
    pub(super) name: &'static str,
    pub(super) data: MessageErrorText<'a>,
}

#[derive(Serialize)]
pub(super) struct MessageErrorText<'a> {
    pub(super) message: &'a str,
}

#[derive(Default, Serialize)]
pub(super) struct OpenCodeUsage {
    pub(super) input: Int,
    pub(super) output: Int,
    pub(super) reasoning: Int,
    pub(super) cache: Cached,
}

#[derive(Default, Serialize)]
pub(super) struct Cached {
    pub(super) read: Int,
    pub(super) write: Int,
}

impl OpenCodeUsage {
    pub(super) fn of(usage: &Usage) -> Self {
        Self {
            input: usage.input.clone(),
            output: usage.output.clone(),
            reasoning: usage.reasoning.clone().unwrap_or_default(),
            cache: Cached {
                read: usage.cache_read.clone().unwrap_or_default(),
                write: usage.cache_write.clone().unwrap_or_default(),
            },
        }
    }
}

#[derive(Serialize)]
pub(super) struct OpenCodePart<'a> {
    pub(super) id: String,
    #[serde(rename = "sessionID")]
    pub(super) session_id: &'a str,
    #[serde(rename = "messageID")]
    pub(super) message_id: &'a str,
    #[serde(flatten)]
    pub(super) block: PartBlock<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum PartBlock<'a> {
    StepStart,
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        synthetic: bool,
    },
    Reasoning {
        text: &'a str,
        time: TimeSpan,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<SignedMetadata<'a>>,
    },
    File {
        mime: &'a str,
        url: String,
    },
    Tool {
        #[serde(rename = "callID")]
        call_id: &'a str,
        tool: &'a str,
        state: ToolState<'a>,
    },
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct TimeSpan {
    pub(super) start: i64,
    pub(super) end: i64,
}

/// Metadata of thinking that Anthropic signed or redacted.
#[derive(Serialize)]
pub(super) struct SignedMetadata<'a> {
    pub(super) anthropic: Signature<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Signature<'a> {
    Signature(&'a str),
    RedactedData(String),
}

#[derive(Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub(super) enum ToolState<'a> {
    Completed {
        input: Json,
        output: String,
        title: &'static str,
        metadata: Empty,
        time: TimeSpan,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<OpenCodePart<'a>>,
    },
    Error {
        input: Json,
        error: String,
        time: TimeSpan,
    },
}

#[derive(Serialize)]
pub(super) struct Empty {}
