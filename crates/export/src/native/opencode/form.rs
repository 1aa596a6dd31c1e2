//! What OpenCode's export holds: a session, its messages, and their parts.

use loopstore::model::{Int, Json, Usage};
use serde::Serialize;

use crate::native::conversation::Answered;

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

    pub(super) fn of(answered: &'a Answered<'_>) -> Self {
        let answer = &answered.answer;
        Self {
            provider_id: answer.provider.as_deref().unwrap_or("unknown"),
            model_id: answer.model.as_deref().unwrap_or("unknown"),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Info<'a> {
    pub(super) id: &'a str,
    pub(super) slug: &'a str,
    #[serde(rename = "projectID")]
    pub(super) project_id: &'static str,
    pub(super) directory: &'a str,
    pub(super) title: &'a str,
    pub(super) version: &'static str,
    pub(super) time: Updated,
}

#[derive(Serialize)]
pub(super) struct Updated {
    pub(super) created: i64,
    pub(super) updated: i64,
}

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub(super) info: MessageInfo<'a>,
    pub(super) parts: Vec<Part<'a>>,
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

// One at a time, and gone once it is written.
#[allow(clippy::large_enum_variant)]
#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum OfRole<'a> {
    User {
        time: Created,
        model: Model<'a>,
    },
    Assistant {
        #[serde(rename = "parentID")]
        parent_id: &'a str,
        #[serde(flatten)]
        model: Model<'a>,
        mode: &'static str,
        path: Place<'a>,
        cost: u8,
        tokens: Tokens,
        time: Completed,
        #[serde(skip_serializing_if = "Option::is_none")]
        finish: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Failure<'a>>,
    },
}

#[derive(Serialize)]
pub(super) struct Created {
    pub(super) created: i64,
}

#[derive(Serialize)]
pub(super) struct Completed {
    pub(super) created: i64,
    pub(super) completed: i64,
}

#[derive(Serialize)]
pub(super) struct Place<'a> {
    pub(super) cwd: &'a str,
    pub(super) root: &'a str,
}

#[derive(Serialize)]
pub(super) struct Failure<'a> {
    pub(super) name: &'static str,
    pub(super) data: FailureText<'a>,
}

#[derive(Serialize)]
pub(super) struct FailureText<'a> {
    pub(super) message: &'a str,
}

#[derive(Default, Serialize)]
pub(super) struct Tokens {
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

impl Tokens {
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
pub(super) struct Part<'a> {
    pub(super) id: String,
    #[serde(rename = "sessionID")]
    pub(super) session_id: &'a str,
    #[serde(rename = "messageID")]
    pub(super) message_id: &'a str,
    #[serde(flatten)]
    pub(super) block: Block<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Block<'a> {
    StepStart,
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        synthetic: bool,
    },
    Reasoning {
        text: &'a str,
        time: Span,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Signed<'a>>,
    },
    File {
        mime: &'a str,
        url: String,
    },
    Tool {
        #[serde(rename = "callID")]
        call_id: &'a str,
        tool: &'a str,
        state: State<'a>,
    },
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) end: i64,
}

/// What Anthropic signed or redacted.
#[derive(Serialize)]
pub(super) struct Signed<'a> {
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
pub(super) enum State<'a> {
    Completed {
        input: Json,
        output: String,
        title: &'static str,
        metadata: Empty,
        time: Span,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Part<'a>>,
    },
    Error {
        input: Json,
        error: String,
        time: Span,
    },
}

#[derive(Serialize)]
pub(super) struct Empty {}
