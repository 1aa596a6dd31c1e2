//! `loopstore compact --strategy summarize`: which model is asked, and how.
//!
//! Keys come from the environment only, go out in one header, and are neither printed nor stored.

use std::sync::Arc;

use clap::ValueEnum;
use loopstore::{
    BlockCompactionStrategy, CompactReport, DefaultBlockCompaction, DigestCompaction, Role,
    SummaryRole,
};
use serde_json::Value;

use super::super::error::CliError;
use super::super::text;
use super::Strategy;

/// The longest time that a summary may take, in seconds.
const LONGEST: u64 = 86_400;

#[derive(clap::Args)]
#[command(next_help_heading = "Options for --strategy summarize")]
pub struct SummarizeArgs {
    /// Whose protocol the server speaks; many servers speak OpenAI's [default: openai].
    #[arg(long, value_name = "NAME")]
    provider: Option<Provider>,
    /// Where the server listens [env: OPENAI_BASE_URL, ANTHROPIC_BASE_URL] [default: the provider's
    /// own].
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The model [env: OPENAI_MODEL, ANTHROPIC_MODEL].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// How long one summary may take, retries included [default: 120].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    timeout: Option<u64>,
    /// The temperature, or none for models that take none [default: 0.3].
    #[arg(long, value_name = "N|none")]
    temperature: Option<Temperature>,
    /// Who seems to say a summary, user or assistant; for the digest too [default: user].
    #[arg(long, value_name = "ROLE")]
    summary_role: Option<SummaryRole>,
    /// The text that a summary begins with; may be empty [default: "## Session Summary"].
    #[arg(long, value_name = "TEXT")]
    summary_marker: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Provider {
    /// Chat completions; the key is in OPENAI_API_KEY.
    #[default]
    Openai,
    /// Messages; the key is in ANTHROPIC_API_KEY.
    Anthropic,
}

/// A temperature, or the model's own.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Temperature(Option<f64>);

impl std::str::FromStr for Temperature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        match text.parse::<f64>() {
            Ok(number) if (0.0..=2.0).contains(&number) => Ok(Self(Some(number))),
            _ => Err("give a number from 0 to 2, or none".into()),
        }
    }
}

impl SummarizeArgs {
    /// Returns the strategy; a dry run asks no model.
    pub fn made(
        &self,
        strategy: Strategy,
        dry_run: bool,
    ) -> Result<Arc<dyn BlockCompactionStrategy>, CliError> {
        if let Some(option) = self.misplaced(strategy) {
            return Err(CliError::Usage(format!(
                "{option} goes with `--strategy summarize` only"
            )));
        }
        match strategy {
            Strategy::OneLiner => Ok(Arc::new(DefaultBlockCompaction)),
            Strategy::Digest => Ok(Arc::new(self.digest())),
            Strategy::Summarize => self.by_a_model(dry_run),
        }
    }

    /// Returns the first option given that the strategy does not have.
    fn misplaced(&self, strategy: Strategy) -> Option<&'static str> {
        let is_digest = matches!(strategy, Strategy::Digest);
        let given = [
            ("--provider", self.provider.is_some()),
            ("--base-url", self.base_url.is_some()),
            ("--model", self.model.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--temperature", self.temperature.is_some()),
            ("--summary-marker", self.summary_marker.is_some()),
            ("--summary-role", self.summary_role.is_some() && !is_digest),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
        match strategy {
            Strategy::Summarize => None,
            _ => given.next().map(|(option, _)| option),
        }
    }

    fn digest(&self) -> DigestCompaction {
        DigestCompaction::default().with_role(match self.summary_role.unwrap_or_default() {
            SummaryRole::User => Role::User,
            SummaryRole::Assistant => Role::Assistant,
        })
    }

    #[cfg(not(feature = "http"))]
    fn by_a_model(&self, _dry_run: bool) -> Result<Arc<dyn BlockCompactionStrategy>, CliError> {
        Err(CliError::Usage(
            "this loopstore was built without summarisers over HTTP; build one that has them with \
             `cargo build --release --features http`"
                .into(),
        ))
    }
}

/// Tells what the model cost; `None` if none was asked.
pub fn told(report: &CompactReport) -> Option<String> {
    let usage: Value = report.usage.as_ref()?.read().ok()?;
    let count = |key: &str, one| text::count(usage[key].as_u64().unwrap_or_default(), one);
    let calls = count("calls", "call");
    let Some(model) = usage["model"].as_str() else {
        return Some(format!("model     no answer, {calls}"));
    };
    let (model, read) = (text::line(model), count("input", "token"));
    let written = count("output", "token");
    Some(format!(
        "model     {model}, {calls}, {read} in, {written} out"
    ))
}

#[cfg(feature = "http")]
mod by_http {
    use std::time::Duration;

    use loopstore::summarize::http::{AnthropicSummarizer, ApiKey, HttpOptions, OpenAiSummarizer};
    use loopstore::{CancelFlag, SummarizeCompaction, SummarizeOptions, Summarizer};

    use super::super::super::output::note;
    use super::*;

    impl SummarizeArgs {
        pub(super) fn by_a_model(
            &self,
            dry_run: bool,
        ) -> Result<Arc<dyn BlockCompactionStrategy>, CliError> {
            let strategy = SummarizeCompaction::new(self.summarizer(dry_run)?)
                .fallback(Arc::new(self.digest()))
                .options(self.options());
            if dry_run {
                note(
                    "note: a dry run does not ask the model: the digest stands in for its summaries",
                );
                return Ok(Arc::new(strategy.without_asking()));
            }
            Ok(Arc::new(strategy.cancel(cancelled_by_interrupt()?)))
        }

        fn summarizer(&self, dry_run: bool) -> Result<Arc<dyn Summarizer>, CliError> {
            let provider = self.provider.unwrap_or_default();
            let names = provider.names();
            let model = given_or_env(self.model.as_deref(), names.model)?.ok_or_else(|| {
                CliError::Usage(format!("which model? Give --model, or set {}", names.model))
            })?;
            let base_url = given_or_env(self.base_url.as_deref(), names.base_url)?;
            let is_own = base_url.is_none();
            let base_url = base_url.unwrap_or_else(|| names.own_url.to_owned());
            check_url(&base_url)?;
            let mut options = HttpOptions::new(base_url, model);
            options.key = given_or_env(None, names.key)?.map(ApiKey::new);
            if options.key.is_none() && is_own && !dry_run {
                return Err(CliError::Usage(format!(
                    "the key is missing: set {}; for a server without keys give --base-url",
                    names.key
                )));
            }
            Ok(match provider {
                // OpenAI itself has given up `max_tokens`, which others know alone.
                Provider::Openai if is_own => {
                    Arc::new(OpenAiSummarizer::new(options).tokens_field("max_completion_tokens"))
                }
                Provider::Openai => Arc::new(OpenAiSummarizer::new(options)),
                Provider::Anthropic => Arc::new(AnthropicSummarizer::new(options)),
            })
        }

        fn options(&self) -> SummarizeOptions {
            let usual = SummarizeOptions::default();
            SummarizeOptions {
                role: self.summary_role.unwrap_or_default(),
                marker: self.summary_marker.clone().or(usual.marker),
                temperature: self.temperature.map_or(usual.temperature, |given| given.0),
                timeout: self.timeout.map_or(usual.timeout, Duration::from_secs),
                ..usual
            }
        }
    }

    /// Where a provider listens, and the environment variables that people set for it.
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

    /// Returns what was given, else what the environment says; an empty variable says nothing.
    fn given_or_env(given: Option<&str>, name: &str) -> Result<Option<String>, CliError> {
        if let Some(given) = given {
            return Ok(Some(given.to_owned()));
        }
        match std::env::var_os(name).map(std::ffi::OsString::into_string) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
            // What it holds may be a key.
            Some(Err(_)) => Err(CliError::Usage(format!("{name} is not UTF-8"))),
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

    /// Returns a flag that Ctrl-C sets: the summaries are then made without the model, and the run
    /// says so. A second Ctrl-C ends the program; nothing half-written is left.
    fn cancelled_by_interrupt() -> Result<CancelFlag, CliError> {
        let flag = CancelFlag::new();
        let own = flag.clone();
        let handler = move || {
            if own.is_cancelled() {
                // What shells expect of a program that SIGINT ended.
                std::process::exit(130);
            }
            own.cancel();
            note("interrupted: the digest makes the summaries; once more ends the program");
        };
        ctrlc::set_handler(handler).map_err(|error| CliError::Failed(Box::new(error)))?;
        Ok(flag)
    }
}
