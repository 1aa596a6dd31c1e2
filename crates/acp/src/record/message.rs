//! The messages that the recorder reads.

use loopstore::model::{Extra, Json, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::call::CallUpdate;
use super::draft::ChunkKind;
use crate::counts::Unrecorded;
use crate::wire::Envelope;

/// Requests by which an agent uses the editor's files and terminals.
const SERVICES: [&str; 8] = [
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/kill",
    "terminal/release",
    "terminal/wait_for_exit",
    "elicitation/create",
    "$/cancel_request",
];
/// Messages of the editor that belong to no conversation.
const UNRELATED: [&str; 8] = [
    "authenticate",
    "logout",
    "session/list",
    "session/delete",
    "session/close",
    "session/fork",
    "$/cancel_request",
    "initialized",
];

/// True for a request by which an agent uses the editor's files and terminals.
pub(super) fn is_service(method: &str) -> bool {
    SERVICES.contains(&method)
}

/// A request of the editor, until its response.
#[derive(Clone, Debug)]
pub(super) enum EditorRequest {
    Initialize,
    /// `session/new` with its folder.
    New(Option<String>),
    /// A session that the agent begins for this stored one.
    Served(String),
    /// `session/load` or `session/resume` with the session and its folder.
    Load(String, Option<String>),
    Prompt(String),
    /// A change of an option of the session.
    Option(String, Value),
    Cancel(String),
}

#[derive(Default, Deserialize)]
struct Folder {
    cwd: Option<String>,
}

impl EditorRequest {
    /// Reads a request or notification; `None` if it belongs to no conversation.
    pub fn read(message: &Envelope<'_>) -> Result<Option<Self>, Unrecorded> {
        let method = message.method.as_deref().unwrap_or_default();
        let session = || message.session_id().ok_or(Unrecorded::Malformed);
        let params = message.params.map_or("{}", RawValue::get);
        let folder = || {
            serde_json::from_str(params)
                .unwrap_or(Folder::default())
                .cwd
        };
        Ok(Some(match method {
            "initialize" => Self::Initialize,
            "session/new" => Self::New(folder()),
            "session/load" | "session/resume" => Self::Load(session()?, folder()),
            "session/prompt" => Self::Prompt(session()?),
            "session/set_mode" | "session/set_model" | "session/set_config_option" => {
                let mut option: Value = serde_json::from_str(params).unwrap_or_default();
                if let Some(fields) = option.as_object_mut() {
                    fields.remove("sessionId");
                }
                Self::Option(session()?, option)
            }
            "session/cancel" => Self::Cancel(session()?),
            name if UNRELATED.contains(&name) => return Ok(None),
            _ => return Err(Unrecorded::UnknownMethod),
        }))
    }
}

/// Returns the blocks of a prompt.
pub(super) fn prompt_blocks<'a>(message: &Envelope<'a>) -> Option<Vec<&'a RawValue>> {
    #[derive(Deserialize)]
    struct Prompt<'a> {
        #[serde(borrow)]
        prompt: Vec<&'a RawValue>,
    }
    let prompt: Prompt<'_> = serde_json::from_str(message.params?.get()).ok()?;
    Some(prompt.prompt)
}

/// Returns the terminal that a request is for.
pub(super) fn terminal_of(message: &Envelope<'_>) -> Option<String> {
    let params: Value = serde_json::from_str(message.params?.get()).ok()?;
    Some(params["terminalId"].as_str()?.to_owned())
}

/// The output of a terminal of the editor.
#[derive(Deserialize)]
pub(super) struct TerminalOutput {
    pub output: String,
}

/// A request of the agent, until the editor's response.
pub(super) enum AgentRequest {
    /// A question for permission in a session.
    Permission(String, Permission),
    /// The output of this terminal.
    TerminalOutput(String),
}

/// A question for permission.
pub(super) struct Permission {
    /// The call, as an update of it.
    pub call: Value,
    options: Value,
}

/// The answer to a question for permission.
#[derive(Default, Deserialize)]
pub(super) struct Selected {
    #[serde(default)]
    outcome: Value,
}

impl Permission {
    pub fn read(message: &Envelope<'_>) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Question {
            tool_call: Value,
            #[serde(default)]
            options: Value,
        }
        let question: Question = serde_json::from_str(message.params?.get()).ok()?;
        Some(Self {
            call: question.tool_call,
            options: question.options,
        })
    }

    /// Returns the question with its answer.
    pub fn answered(&self, selected: &Selected) -> Json {
        let chosen = &selected.outcome["optionId"];
        let options = self.options.as_array().into_iter().flatten();
        let mut kinds = options.filter(|option| !chosen.is_null() && option["optionId"] == *chosen);
        json!({
            "toolCallId": self.call["toolCallId"],
            "options": self.options,
            "outcome": selected.outcome["outcome"],
            "optionId": chosen,
            "kind": kinds.next().map(|option| &option["kind"]),
        })
        .into()
    }
}

/// An update of a session.
pub(super) enum Update<'a> {
    /// A piece of an answer, with the id of its message.
    Chunk(ChunkKind, &'a RawValue, Option<String>),
    /// A piece of the prompt that the editor has sent.
    EchoedPrompt,
    Call(Box<CallUpdate>),
    /// The entries of a plan.
    Plan(Json),
    Usage(Json),
    /// An option of the session that has changed.
    Option(Value),
    /// The title of the session.
    Title(String),
    /// An update about the editor's own display.
    Ignored,
    /// An update of another kind.
    Other(Json),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateFields<'a> {
    session_update: String,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    message_id: Option<String>,
    #[serde(default)]
    entries: Option<Json>,
    #[serde(default)]
    title: Option<String>,
}

impl<'a> Update<'a> {
    /// Reads an update; `None` if required fields are missing.
    pub fn read(message: &Envelope<'a>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            update: &'a RawValue,
        }
        let params: Params<'a> = serde_json::from_str(message.params?.get()).ok()?;
        let raw = params.update.get();
        let update: UpdateFields<'a> = serde_json::from_str(raw).ok()?;
        let json = || Json::parse(raw).ok();
        Some(match update.session_update.as_str() {
            "agent_message_chunk" => {
                Self::Chunk(ChunkKind::Text, update.content?, update.message_id)
            }
            "agent_thought_chunk" => {
                Self::Chunk(ChunkKind::Thinking, update.content?, update.message_id)
            }
            "user_message_chunk" => Self::EchoedPrompt,
            "tool_call" | "tool_call_update" => {
                Self::Call(Box::new(serde_json::from_str(raw).ok()?))
            }
            "plan" => Self::Plan(update.entries?),
            "usage_update" => Self::Usage(json()?),
            "current_mode_update" | "config_option_update" => {
                Self::Option(serde_json::from_str(raw).ok()?)
            }
            "session_info_update" => update.title.map_or(Self::Ignored, Self::Title),
            "available_commands_update" => Self::Ignored,
            _ => Self::Other(json()?),
        })
    }
}

/// The result of `initialize`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialized {
    pub agent_info: Option<AgentInfo>,
}

#[derive(Deserialize)]
pub(super) struct AgentInfo {
    pub name: String,
    pub version: Option<String>,
}

/// The result of `session/new`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewSession {
    pub session_id: String,
    #[serde(flatten)]
    pub rest: AnsweredRequest,
}

/// The options of a session that an agent begins or loads.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnsweredRequest {
    #[serde(default)]
    models: Value,
    #[serde(default)]
    config_options: Value,
}

impl AnsweredRequest {
    /// Returns the model that answers, if the agent tells it.
    pub fn model(&self) -> Option<String> {
        let options = self.config_options.as_array().into_iter().flatten();
        let mut models = options.filter(|option| option["category"] == "model");
        let chosen = models
            .next()
            .and_then(|option| option["currentValue"].as_str());
        let model = self.models["currentModelId"].as_str().or(chosen)?;
        Some(model.to_owned())
    }
}

/// The result of `session/prompt`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptResponse {
    pub stop_reason: Option<String>,
    usage: Option<PromptUsage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptUsage {
    total_tokens: Option<u32>,
    #[serde(default)]
    input_tokens: u32,
    #[serde(default)]
    output_tokens: u32,
    thought_tokens: Option<u32>,
    cached_read_tokens: Option<u32>,
    cached_write_tokens: Option<u32>,
}

impl PromptResponse {
    /// Returns the tokens of all model calls of the prompt.
    pub fn usage(&self) -> Option<Usage> {
        let usage = self.usage.as_ref()?;
        let int = |tokens: u32| i64::from(tokens).into();
        Some(Usage {
            input: int(usage.input_tokens),
            output: int(usage.output_tokens),
            reasoning: usage.thought_tokens.map(int),
            cache_read: usage.cached_read_tokens.map(int),
            cache_write: usage.cached_write_tokens.map(int),
            total_tokens: usage.total_tokens.map(int),
            extra: Extra::default(),
        })
    }
}

/// Returns the text of an error response.
pub(super) fn error_text(error: &RawValue) -> String {
    let value: Value = serde_json::from_str(error.get()).unwrap_or_default();
    let message = value["message"].as_str();
    message.map_or_else(|| error.get().to_owned(), str::to_owned)
}
