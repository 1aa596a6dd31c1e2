//! Requests to summarisers and their answers, as JSON.

use std::time::Duration;

use loopstore::{SummarizerError, SummaryAnswer, SummaryRequest, Usage};
use serde::Deserialize;
use serde_json::json;

/// Writes a request, with its remaining time.
pub fn request(request: &SummaryRequest, left: Duration) -> String {
    let request_json = json!({
        "system": request.system,
        "prompt": request.prompt,
        "asked_tokens": request.asked_tokens,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "timeout": left.as_secs_f64(),
    });
    request_json.to_string()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerJson {
    text: String,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: Option<Usage>,
}

/// Reads an answer.
pub fn answer(json: &[u8]) -> Result<SummaryAnswer, SummarizerError> {
    let answer: AnswerJson = serde_json::from_slice(json)
        .map_err(|error| SummarizerError::Unreadable(error.to_string()))?;
    Ok(SummaryAnswer {
        text: answer.text,
        model: answer.model,
        usage: answer.usage,
        ..SummaryAnswer::default()
    })
}
