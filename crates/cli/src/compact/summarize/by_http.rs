//! The addresses of models over HTTP.

use std::sync::Arc;

use loopstore::Summarizer;
use loopstore::compaction::summarize::http::{
    AnthropicSummarizer, ApiKey, HttpOptions, OpenAiSummarizer,
};
use loopstore_terminal::CliError;

use super::{Provider, SummarizeArgs};

impl SummarizeArgs {
    /// Returns the model named by options and environment.
    pub(super) fn by_http(&self, dry_run: bool) -> Result<Arc<dyn Summarizer>, CliError> {
        let provider = self.provider.unwrap_or_default();
        let names = provider.names();
        let model = given_or_env(self.summary_model.as_deref(), names.model)?.ok_or_else(|| {
            CliError::Usage(format!(
                "no model given; use --summary-model, set {}, or give --command",
                names.model
            ))
        })?;
        let base_url = given_or_env(self.base_url.as_deref(), names.base_url)?;
        let is_own = base_url.is_none();
        let base_url = base_url.unwrap_or_else(|| names.own_url.to_owned());
        check_url(&base_url)?;
        let mut options = HttpOptions::new(base_url, model);
        options.key = given_or_env(None, names.key)?.map(ApiKey::new);
        if options.key.is_none() && is_own && !dry_run {
            return Err(CliError::Usage(format!(
                "no API key: set {}, or give --base-url for a server that needs none",
                names.key
            )));
        }
        Ok(match provider {
            // OpenAI itself no longer accepts `max_tokens`, while other servers accept only that.
            Provider::Openai if is_own => {
                Arc::new(OpenAiSummarizer::new(options).tokens_field("max_completion_tokens"))
            }
            Provider::Openai => Arc::new(OpenAiSummarizer::new(options)),
            Provider::Anthropic => Arc::new(AnthropicSummarizer::new(options)),
        })
    }
}

/// The URL of a provider, and the environment variables that users set for it.
struct Names {
    own_url: &'static str,
    key: &'static str,
    base_url: &'static str,
    model: &'static str,
}

impl Provider {
    fn names(self) -> Names {
        match self {
            Self::Openai => Names {
                own_url: OpenAiSummarizer::BASE_URL,
                key: "OPENAI_API_KEY",
                base_url: "OPENAI_BASE_URL",
                model: "OPENAI_MODEL",
            },
            Self::Anthropic => Names {
                own_url: AnthropicSummarizer::BASE_URL,
                key: "ANTHROPIC_API_KEY",
                base_url: "ANTHROPIC_BASE_URL",
                model: "ANTHROPIC_MODEL",
            },
        }
    }
}

/// Returns the option, else the environment variable; an empty variable counts as unset.
fn given_or_env(given: Option<&str>, name: &str) -> Result<Option<String>, CliError> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
    }
    match std::env::var_os(name).map(std::ffi::OsString::into_string) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        // The value may be a key.
        Some(Err(_)) => Err(CliError::Usage(format!("{name} is not valid UTF-8"))),
    }
}

fn check_url(url: &str) -> Result<(), CliError> {
    let after = ["http://", "https://"].map(|scheme| url.strip_prefix(scheme));
    match after.into_iter().flatten().next() {
        Some(host) if !host.is_empty() => Ok(()),
        _ => Err(CliError::Usage(
            "the base URL must begin with http:// or https://".into(),
        )),
    }
}
