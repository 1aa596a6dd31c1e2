//! Summarisers over HTTP (feature `http`).
//!
//! One endpoint, two dialects. The key is held in a type that does not show it, goes out in one
//! header and nowhere else: redirects are not followed, proxies of the environment are not used,
//! and what a server says of a refusal is stripped of it.

mod anthropic;
mod endpoint;
mod openai;
mod retry;

use std::fmt;

pub use anthropic::AnthropicSummarizer;
pub use openai::OpenAiSummarizer;
pub use retry::RetryOptions;

/// A secret: it shows nothing of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes a key; white space around it is no part of it.
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

/// How a summariser is reached.
///
/// ```
/// use loopstore_summarize::SummarizeCompaction;
/// use loopstore_summarize::http::{ApiKey, HttpOptions, OpenAiSummarizer};
/// use std::sync::Arc;
///
/// let options = HttpOptions::new("http://localhost:8080/v1", "qwen").key(ApiKey::new("secret"));
/// assert!(!format!("{options:?}").contains("secret"));
/// // Nothing is sent before a compaction asks.
/// let strategy = SummarizeCompaction::new(Arc::new(OpenAiSummarizer::new(options)));
/// # drop(strategy);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// Where it listens, without the path of the dialect: `https://api.openai.com/v1`.
    pub base_url: String,
    /// The model.
    pub model: String,
    /// The key; `None` for a server that wants none.
    pub key: Option<ApiKey>,
    /// A proxy, such as `http://proxy:3128`; the environment's are not used.
    pub proxy: Option<String>,
    /// When and how often a request is made again.
    pub retry: RetryOptions,
    /// Bytes that an answer may have.
    pub max_answer_bytes: u64,
}

impl HttpOptions {
    /// Options for a model behind `base_url`, without a key.
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
