//! The options that select which of the found secrets are replaced.

use std::path::PathBuf;

use clap::ValueEnum;
use loopstore_redact::{Confidence, RedactionPolicy, rule_names};
use loopstore_terminal::CliError;
use loopstore_terminal::nearest::nearest;

/// The allow files if no option names one.
const ENV: &str = "LOOPSTORE_ALLOW_FILE";

/// The options that select the secrets to replace.
#[derive(clap::Args, Clone, Debug)]
pub struct RedactionArgs {
    /// A value that is no secret, or the id that `redact --dry-run` shows for it. May be repeated.
    #[arg(long, value_name = "VALUE")]
    allow: Vec<String>,
    /// A file of values and ids that are no secrets, one per line; lines that begin with # are comments. May be
    /// repeated [env: LOOPSTORE_ALLOW_FILE].
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    allow_file: Vec<PathBuf>,
    /// Replace only what this rule finds, such as `password` or `github-pat`. May be repeated.
    #[arg(long, value_name = "RULE")]
    only: Vec<String>,
    /// Replace what is found with this confidence or more; the rest is only reported.
    #[arg(long, value_name = "LEVEL", default_value = "medium")]
    min_confidence: ConfidenceLevel,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ConfidenceLevel {
    Low,
    Medium,
    High,
}

impl RedactionArgs {
    /// Returns the policy that the options describe.
    pub fn policy(&self) -> Result<RedactionPolicy, CliError> {
        let mut policy = RedactionPolicy::default().min_confidence(match self.min_confidence {
            ConfidenceLevel::Low => Confidence::Low,
            ConfidenceLevel::Medium => Confidence::Medium,
            ConfidenceLevel::High => Confidence::High,
        });
        for value in &self.allow {
            policy = policy.allow(value);
        }
        for path in self.files() {
            let text = std::fs::read_to_string(&path).map_err(|error| {
                CliError::Usage(format!("cannot read {}: {error}", path.display()))
            })?;
            policy = policy.allow_lines(&text);
        }
        for rule in &self.only {
            policy = policy
                .only(rule)
                .map_err(|error| CliError::Usage(unknown(&error.0)))?;
        }
        Ok(policy)
    }

    fn files(&self) -> Vec<PathBuf> {
        let named = || std::env::var_os(ENV).filter(|value| !value.is_empty());
        match self.allow_file.is_empty() {
            true => named().map(PathBuf::from).into_iter().collect(),
            false => self.allow_file.clone(),
        }
    }
}

fn unknown(rule: &str) -> String {
    let names: Vec<&str> = rule_names().collect();
    let hint = match nearest(rule, &names).first() {
        Some(like) => format!("did you mean `{like}`?"),
        None => "`redact --dry-run` shows the rule of each secret".to_owned(),
    };
    format!("--only: no rule `{rule}` finds secrets; {hint}")
}
