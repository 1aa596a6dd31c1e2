//! `loopstore compact --strategy summarize`: which model is called, and how.
//!
//! Keys come from the environment only, go out in one header, and are neither printed nor stored.

#[cfg(feature = "http")]
mod by_http;

use std::sync::Arc;

use clap::ValueEnum;
use loopstore::{
    BlockCompactionStrategy, CompactReport, DefaultBlockCompaction, DigestCompaction, Role,
    StrategyName, SummaryRole,
};
use serde_json::Value;

use crate::error::CliError;
use crate::text;

/// The longest time that a summary may take, in seconds.
const LONGEST: u64 = 86_400;

#[derive(clap::Args)]
#[command(next_help_heading = "Options for --strategy summarize")]
pub struct SummarizeArgs {
    /// The API of the server; many servers have OpenAI's [default: openai].
    #[arg(long, value_name = "NAME")]
    provider: Option<Provider>,
    /// The base URL of the server [env: OPENAI_BASE_URL, ANTHROPIC_BASE_URL] [default: the
    /// provider's own].
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The model that writes the summaries [env: OPENAI_MODEL, ANTHROPIC_MODEL].
    #[arg(long, value_name = "NAME")]
    summary_model: Option<String>,
    /// The timeout of a summary, retries included [default: 120].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    timeout: Option<u64>,
    /// The temperature, or none for models that do not take one [default: 0.3].
    #[arg(long, value_name = "N|none")]
    temperature: Option<Temperature>,
    /// The role of a summary message, user or assistant; also for the digest [default: user].
    #[arg(long, value_name = "ROLE")]
    summary_role: Option<SummaryRole>,
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
            _ => Err("expected a number from 0 to 2, or none".into()),
        }
    }
}

impl SummarizeArgs {
    /// Returns the strategy; a dry run calls no model.
    pub fn made(
        &self,
        strategy: StrategyName,
        dry_run: bool,
    ) -> Result<Arc<dyn BlockCompactionStrategy>, CliError> {
        if let Some(option) = self.misplaced(strategy) {
            return Err(CliError::Usage(format!(
                "{option} needs `--strategy summarize`"
            )));
        }
        match strategy {
            StrategyName::OneLiner => Ok(Arc::new(DefaultBlockCompaction)),
            StrategyName::Digest => Ok(Arc::new(self.digest())),
            StrategyName::Summarize => self.by_a_model(dry_run),
        }
    }

    /// Returns the first option given that the strategy does not have.
    fn misplaced(&self, strategy: StrategyName) -> Option<&'static str> {
        let is_digest = matches!(strategy, StrategyName::Digest);
        let given = [
            ("--provider", self.provider.is_some()),
            ("--base-url", self.base_url.is_some()),
            ("--summary-model", self.summary_model.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--temperature", self.temperature.is_some()),
            ("--summary-role", self.summary_role.is_some() && !is_digest),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
        match strategy {
            StrategyName::Summarize => None,
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
            "this loopstore was built without summarisers over HTTP; build it with `--features http`"
                .into(),
        ))
    }
}

/// Returns the line for what the model cost; `None` if none was called.
pub fn cost_line(report: &CompactReport) -> Option<String> {
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
