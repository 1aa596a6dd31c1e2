//! The types of the format, for steps and their parts. Trajectories are written and read field by field, since their
//! steps are not in memory together.

// The fields are named as in the JSON.
#![allow(missing_docs)]

use loopstore_model::Json;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// The version that is written.
pub const SCHEMA_VERSION: &str = "ATIF-v1.8";

/// The beginning of every version.
pub const SCHEMA_FAMILY: &str = "ATIF-v";

/// The media types that an image of a step may have.
pub const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The originator of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepSource {
    /// A system prompt, or an event of the system.
    System,
    /// A prompt.
    User,
    /// An answer of the model, with the results of its calls.
    Agent,
}

/// One step of a trajectory. The model, the thinking, the calls and the metrics belong to steps of the agent only.
#[derive(Debug, Serialize, Deserialize)]
pub struct Step {
    /// The position of the step in its trajectory, from 1.
    pub step_id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    pub source: StepSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    /// A text, or a list of parts.
    pub message: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tool_calls: Vec<StepCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observation: Option<Observation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// True if the step repeats context and is not a part of the history.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_copied_context: bool,
    /// Values of stored messages may nest deeper than [`Json`] allows here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Box<RawValue>>,
}

impl Step {
    /// Returns a step with a text or a list of parts.
    pub fn new(source: StepSource, message: Json) -> Self {
        Self {
            step_id: 0,
            timestamp: None,
            source,
            model_name: None,
            message,
            reasoning_content: None,
            tool_calls: Vec::new(),
            observation: None,
            metrics: None,
            is_copied_context: false,
            extra: None,
        }
    }

    /// Returns the results of the step.
    pub fn results(&self) -> &[ObservationResult] {
        let results = self.observation.as_ref().map(|seen| &*seen.results);
        results.unwrap_or_default()
    }
}

/// A tool call.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepCall {
    pub tool_call_id: String,
    pub function_name: String,
    /// An object.
    pub arguments: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Json>,
}

/// The results of a step.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Observation {
    pub results: Vec<ObservationResult>,
}

/// One result.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ObservationResult {
    /// The call of the same step that the result belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_call_id: Option<String>,
    /// A text, or a list of parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Json>,
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub subagent_trajectory_ref: Vec<SubagentRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Json>,
}

/// A reference to the trajectory of a sub-agent: to one in the same document, or to another file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SubagentRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trajectory_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Json>,
}

/// The tokens of one step.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// All tokens of the prompt, cached or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<i64>,
    /// A number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Json>,
}

/// One part of a text with images.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepPart {
    /// `text`, `image` or `audio`.
    pub r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<MediaSource>,
}

/// The media type and the place of an image or a recording.
#[derive(Debug, Serialize, Deserialize)]
pub struct MediaSource {
    pub media_type: String,
    /// A path, or a URL: `data:…;base64,…` contains the bytes.
    pub path: String,
}

/// Reads `null`, which other writers put in place of an absent field, as the default.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
