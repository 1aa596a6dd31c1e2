//! `loopstore compact --strategy summarize`: the choice of the model, its call, and its interruption.
//!
//! Keys come from the environment only, go out in one header, and are neither printed nor stored.

#[cfg(feature = "http")]
mod by_http;

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::ValueEnum;
use loopstore::{
    BlockCompactionStrategy, CancelFlag, CommandSummarizer, CompactReport, DefaultBlockCompaction,
    DigestCompaction, Role, StrategyName, SummarizeCompaction, SummarizeOptions, Summarizer,
    SummaryPrompt, SummaryRole,
};
use loopstore_terminal::output::note;
use loopstore_terminal::{CliError, amount, text};
use serde_json::Value;

/// The prompts that a dry run collects.
pub type SharedPrompts = Arc<Mutex<Vec<SummaryPrompt>>>;

/// The largest file of own instructions, in bytes.
const MAX_INSTRUCTIONS: u64 = 64 << 10;

/// The maximum time for a summary, in seconds.
const LONGEST: u64 = 86_400;

/// Reads the time for a summary.
fn timeout(given: &str) -> Result<u64, String> {
    match amount::seconds(given)? {
        seconds @ 1..=LONGEST => Ok(seconds),
        _ => Err("expected from 1s to 24h".to_owned()),
    }
}

#[derive(clap::Args)]
#[command(next_help_heading = "Options for --strategy summarize")]
pub struct SummarizeArgs {
    /// A command that writes the summaries: run by `sh -c`, the prompt on its stdin, its answer on stdout;
    /// for example 'llm -m NAME'.
    #[arg(
        long,
        value_name = "CMD",
        conflicts_with_all = ["provider", "base_url", "summary_model", "temperature"]
    )]
    command: Option<String>,
    /// With --dry-run, print the prompt for each block. No model is called.
    #[arg(long, requires = "dry_run")]
    show_prompt: bool,
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
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<u64>,
    /// The temperature, or none for models that do not take one [default: 0.3].
    #[arg(long, value_name = "N|none")]
    temperature: Option<Temperature>,
    /// A file with own instructions to the model, after the usual ones. Files and values from the record are added to
    /// the summary whatever they say.
    #[arg(long = "prompt", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    instructions: Option<PathBuf>,
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
    /// Returns the strategy. A dry run calls no model; with --show-prompt it puts the prompts into `prompts`.
    pub fn made(
        &self,
        strategy: StrategyName,
        dry_run: bool,
        prompts: &SharedPrompts,
    ) -> Result<Arc<dyn BlockCompactionStrategy>, CliError> {
        if let Some(option) = self.misplaced(strategy) {
            return Err(CliError::Usage(format!(
                "{option} needs `--strategy summarize`"
            )));
        }
        match strategy {
            StrategyName::OneLiner => Ok(Arc::new(DefaultBlockCompaction)),
            StrategyName::Digest => Ok(Arc::new(self.digest())),
            StrategyName::Summarize => self.by_a_model(dry_run, prompts),
        }
    }

    /// Reads the file with own instructions to the model.
    pub fn instructions(&self) -> Result<Option<String>, CliError> {
        let Some(path) = &self.instructions else {
            return Ok(None);
        };
        let failed = |why: &dyn std::fmt::Display| {
            let name = text::line(&path.to_string_lossy());
            CliError::Usage(format!("cannot read the instructions `{name}`: {why}"))
        };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| failed(&error))?;
        file.take(MAX_INSTRUCTIONS + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| failed(&error))?;
        if bytes.len() as u64 > MAX_INSTRUCTIONS {
            return Err(failed(&format!("larger than {MAX_INSTRUCTIONS} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed(&"not UTF-8"))?;
        match text.trim() {
            "" => Err(failed(&"empty")),
            text => Ok(Some(text.to_owned())),
        }
    }

    /// True if the prompts are to be shown.
    pub fn shows_prompts(&self) -> bool {
        self.show_prompt
    }

    /// Returns the first given option that the strategy does not have.
    fn misplaced(&self, strategy: StrategyName) -> Option<&'static str> {
        let is_digest = matches!(strategy, StrategyName::Digest);
        let given = [
            ("--command", self.command.is_some()),
            ("--show-prompt", self.show_prompt),
            ("--provider", self.provider.is_some()),
            ("--base-url", self.base_url.is_some()),
            ("--summary-model", self.summary_model.is_some()),
            ("--timeout", self.timeout.is_some()),
            ("--temperature", self.temperature.is_some()),
            ("--prompt", self.instructions.is_some()),
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

    /// Returns the strategy that calls the model; in a dry run no model is called.
    fn by_a_model(
        &self,
        dry_run: bool,
        prompts: &SharedPrompts,
    ) -> Result<Arc<dyn BlockCompactionStrategy>, CliError> {
        let usual = SummarizeOptions::default();
        let strategy = SummarizeCompaction::new(self.summarizer(dry_run)?)
            .fallback(Arc::new(self.digest()))
            .options(SummarizeOptions {
                role: self.summary_role.unwrap_or_default(),
                temperature: self.temperature.map_or(usual.temperature, |given| given.0),
                timeout: self.timeout.map_or(usual.timeout, Duration::from_secs),
                ..usual
            });
        if dry_run {
            note("note: a dry run does not call the model; the digest stands in for its summaries");
            return Ok(Arc::new(match self.show_prompt {
                true => strategy.preview(Arc::clone(prompts)),
                false => strategy.without_asking(),
            }));
        }
        Ok(Arc::new(strategy.cancel(cancelled_by_interrupt()?)))
    }

    #[cfg_attr(not(feature = "http"), allow(unused_variables))]
    fn summarizer(&self, dry_run: bool) -> Result<Arc<dyn Summarizer>, CliError> {
        if let Some(command) = &self.command {
            return Ok(Arc::new(CommandSummarizer::new(command)));
        }
        if self.show_prompt {
            // In a dry run, the command is never called.
            return Ok(Arc::new(CommandSummarizer::new("false")));
        }
        #[cfg(feature = "http")]
        return self.by_http(dry_run);
        #[cfg(not(feature = "http"))]
        Err(CliError::Usage(
            "this loopstore was built without summarisers over HTTP: give --command, or build it with \
             `--features http`"
                .into(),
        ))
    }
}

/// Returns a flag that Ctrl-C sets: the summaries are then made without the model, and the report contains the reason.
/// A second Ctrl-C ends the program; nothing incomplete is left.
fn cancelled_by_interrupt() -> Result<CancelFlag, CliError> {
    let flag = CancelFlag::new();
    let own = flag.clone();
    let handler = move || {
        if own.is_cancelled() {
            // The code that shells expect from a program that SIGINT ended.
            std::process::exit(130);
        }
        own.cancel();
        note("interrupted: the digest makes the remaining summaries; press Ctrl-C again to quit");
    };
    ctrlc::set_handler(handler).map_err(|error| CliError::Failed(Box::new(error)))?;
    Ok(flag)
}

/// Returns the prompts for the model, block by block.
pub fn shown_prompts(prompts: &[SummaryPrompt]) -> String {
    let shown = prompts.iter().map(|prompt| {
        let of = match prompt.turns {
            Some((first, last)) => format!("turns {} of", text::turns(first, last)),
            None => "rollup through".to_owned(),
        };
        let loop_id = text::line(prompt.loop_id.as_str());
        format!(
            "=== {of} {loop_id}: system\n{}\n=== {of} {loop_id}: prompt\n{}\n",
            prompt.system, prompt.prompt
        )
    });
    shown.collect()
}

/// Returns a line with the cost of the model; `None` if no model was called.
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
