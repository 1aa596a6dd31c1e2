//! Summarisers over HTTP (feature `http`).
//!
//! There are two APIs: OpenAI's chat completions and Anthropic's messages. The key is kept in a type that does not
//! print it, and sent in one header only: redirects are not followed, proxies of the environment are not used, and the
//! key is removed from error messages of the server.

mod anthropic;
mod endpoint;
mod openai;
mod retry;

use std::fmt;

pub use anthropic::AnthropicSummarizer;
pub use openai::OpenAiSummarizer;
pub use retry::RetryOptions;

/// An API key, whose `Debug` output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Returns a key, without white space around it.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into().trim().to_owned())
    }

    fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}

/// The options of a summariser over HTTP.
///
/// ```
/// use loopstore_summarize::SummarizeCompaction;
/// use loopstore_summarize::http::{ApiKey, HttpOptions, OpenAiSummarizer};
/// use std::sync::Arc;
///
/// let options = HttpOptions::new("http://localhost:8080/v1", "qwen").key(ApiKey::new("secret"));
/// assert!(!format!("{options:?}").contains("secret"));
/// // Nothing is sent before a compaction.
/// let strategy = SummarizeCompaction::new(Arc::new(OpenAiSummarizer::new(options)));
/// # drop(strategy);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// The base URL without the path of the API, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The model.
    pub model: String,
    /// The key; `None` for a server without keys.
    pub key: Option<ApiKey>,
    /// A proxy, such as `http://proxy:3128`; the environment's are not used.
    pub proxy: Option<String>,
    /// The retries of a failed request.
    pub retry: RetryOptions,
    /// The most bytes of an answer.
    pub max_answer_bytes: u64,
}

impl HttpOptions {
    /// Returns options for a model at `base_url`, without a key.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            key: None,
            proxy: None,
            retry: RetryOptions::default(),
            max_answer_bytes: 1 << 20,
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: ApiKey) -> Self {
        self.key = Some(key);
        self
    }
}
