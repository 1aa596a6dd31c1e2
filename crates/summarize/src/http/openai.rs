//! The chat-completions endpoint of OpenAI and compatible servers.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::HttpOptions;
use super::endpoint::{Dialect, Endpoint};
use crate::{Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};
use loopstore_model::{Extra, Usage};

/// A [`Summarizer`] that uses an OpenAI-compatible chat-completions endpoint.
#[derive(Debug)]
pub struct OpenAiSummarizer {
    name: String,
    endpoint: Endpoint,
    tokens_field: String,
}

impl OpenAiSummarizer {
    /// The base URL of OpenAI's API.
    pub const BASE_URL: &'static str = "https://api.openai.com/v1";

    /// Returns a summariser that posts to `{base_url}/chat/completions`.
    pub fn new(options: HttpOptions) -> Self {
        Self {
            name: format!("openai:{}", options.model),
            endpoint: Endpoint::new(options),
            tokens_field: "max_tokens".into(),
        }
    }

    /// Sets the name of the field that limits the tokens of the answer: `max_tokens` (the default), which every
    /// server accepts, or `max_completion_tokens`, which some models require.
    #[must_use]
    pub fn tokens_field(mut self, field: impl Into<String>) -> Self {
        self.tokens_field = field.into();
        self
    }
}

impl Summarizer for OpenAiSummarizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        self.endpoint.send(self, request)
    }
}

impl Dialect for OpenAiSummarizer {
    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("authorization", "Bearer ")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn body(&self, request: &SummaryRequest) -> Value {
        let mut body = Map::new();
        body.insert("model".into(), self.endpoint.model().into());
        body.insert(
            "messages".into(),
            json!([
                {"role": "system", "content": request.system},
                {"role": "user", "content": request.prompt},
            ]),
        );
        body.insert(self.tokens_field.clone(), request.max_tokens.into());
        if let Some(temperature) = request.temperature {
            body.insert("temperature".into(), temperature.into());
        }
        Value::Object(body)
    }

    fn read(&self, body: &str) -> Result<SummaryAnswer, String> {
        let answer: Completion = serde_json::from_str(body).map_err(|error| error.to_string())?;
        let choice = answer.choices.into_iter().next();
        let message = choice.ok_or("it has no choice")?.message;
        if let Some(refusal) = message.refusal.filter(|refusal| !refusal.is_empty()) {
            return Err(format!("the model refused: {refusal}"));
        }
        Ok(SummaryAnswer {
            text: message.content.unwrap_or_default(),
            model: answer.model,
            usage: answer.usage.map(Usage::from),
            ..SummaryAnswer::default()
        })
    }
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    model: Option<String>,
    usage: Option<OpenAiUsage>,
}

#[derive(Deserialize)]
struct Choice {
    message: ChatAnswer,
}

#[derive(Deserialize)]
struct ChatAnswer {
    content: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiUsage {
    #[serde(default)]
    prompt_tokens: i64,
    #[serde(default)]
    completion_tokens: i64,
    total_tokens: Option<i64>,
    prompt_tokens_details: Option<Details>,
    completion_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<i64>,
    reasoning_tokens: Option<i64>,
}

impl From<OpenAiUsage> for Usage {
    /// OpenAI includes cached tokens in the prompt; [`loopstore_model::Usage`] does not.
    fn from(reported: OpenAiUsage) -> Self {
        let cached = reported.prompt_tokens_details.and_then(|d| d.cached_tokens);
        let input = reported.prompt_tokens - cached.unwrap_or(0);
        let details = reported.completion_tokens_details;
        Self {
            input: input.max(0).into(),
            output: reported.completion_tokens.into(),
            reasoning: details.and_then(|d| d.reasoning_tokens).map(Into::into),
            cache_read: cached.map(Into::into),
            cache_write: None,
            total_tokens: reported.total_tokens.map(Into::into),
            extra: Extra::default(),
        }
    }
}
