//! Anthropic's messages endpoint.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::HttpOptions;
use super::endpoint::{Dialect, Endpoint};
use crate::{Summarizer, SummarizerError, SummaryAnswer, SummaryRequest};
use loopstore_model::{Extra, Usage};

/// A [`Summarizer`] that uses Anthropic's messages endpoint.
#[derive(Debug)]
pub struct AnthropicSummarizer {
    name: String,
    endpoint: Endpoint,
}

impl AnthropicSummarizer {
    /// The base URL of Anthropic's API.
    pub const BASE_URL: &'static str = "https://api.anthropic.com";

    /// Returns a summariser that posts to `{base_url}/v1/messages`.
    pub fn new(options: HttpOptions) -> Self {
        Self {
            name: format!("anthropic:{}", options.model),
            endpoint: Endpoint::new(options),
        }
    }
}

impl Summarizer for AnthropicSummarizer {
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        self.endpoint.send(self, request)
    }
}

impl Dialect for AnthropicSummarizer {
    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn body(&self, request: &SummaryRequest) -> Value {
        let mut body = Map::new();
        body.insert("model".into(), self.endpoint.model().into());
        body.insert("max_tokens".into(), request.max_tokens.into());
        body.insert("system".into(), request.system.as_str().into());
        body.insert(
            "messages".into(),
            json!([{"role": "user", "content": request.prompt}]),
        );
        if let Some(temperature) = request.temperature {
            body.insert("temperature".into(), temperature.into());
        }
        Value::Object(body)
    }

    fn read(&self, body: &str) -> Result<SummaryAnswer, String> {
        let answer: AnthropicAnswer =
            serde_json::from_str(body).map_err(|error| error.to_string())?;
        let texts = answer.content.into_iter().filter_map(|block| block.text);
        Ok(SummaryAnswer {
            text: texts.collect::<Vec<_>>().join("\n"),
            model: answer.model,
            usage: answer.usage.map(Usage::from),
            ..SummaryAnswer::default()
        })
    }
}

#[derive(Deserialize)]
struct AnthropicAnswer {
    content: Vec<AnswerBlock>,
    model: Option<String>,
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
struct AnswerBlock {
    text: Option<String>,
}

#[derive(Deserialize)]
struct AnthropicUsage {
    #[serde(default)]
    input_tokens: i64,
    #[serde(default)]
    output_tokens: i64,
    cache_read_input_tokens: Option<i64>,
    cache_creation_input_tokens: Option<i64>,
}

impl From<AnthropicUsage> for Usage {
    fn from(reported: AnthropicUsage) -> Self {
        Self {
            input: reported.input_tokens.into(),
            output: reported.output_tokens.into(),
            reasoning: None,
            cache_read: reported.cache_read_input_tokens.map(Into::into),
            cache_write: reported.cache_creation_input_tokens.map(Into::into),
            total_tokens: None,
            extra: Extra::default(),
        }
    }
}
