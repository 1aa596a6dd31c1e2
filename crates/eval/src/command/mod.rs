//! `loopstore eval`

mod compactions;
mod cost;
mod exam;
mod prose;
mod recall;
mod retention;
mod state;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::{EvalStrategy, EvalSummarize, STRATEGIES, strategy};
use clap::builder::PossibleValuesParser;
use loopstore::{CommandSummarizer, SessionId, SqliteStore, SummarizeCompaction};
use loopstore_terminal::output::note;
use loopstore_terminal::{App, CliError, Done, text};
use loopstore_transcripts::{ImportOptions, import_paths};
use serde::Serialize;

/// Measure the strategies on recorded transcripts
#[derive(clap::Args)]
pub struct EvalArgs {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(clap::Subcommand)]
enum Measure {
    Retention(retention::EvalRetentionArgs),
    State(state::EvalStateArgs),
    Compactions(compactions::EvalCompactionsArgs),
    Cost(cost::EvalCostArgs),
    Prose(prose::EvalProseArgs),
    Recall(recall::EvalRecallArgs),
    Exam(exam::EvalExamArgs),
}

/// Measures and prints.
pub fn run(app: &mut App, args: &EvalArgs) -> Result<Done, CliError> {
    match &args.measure {
        Measure::Retention(args) => retention::run(app, args),
        Measure::State(args) => state::run(app, args),
        Measure::Compactions(args) => compactions::run(app, args),
        Measure::Cost(args) => cost::run(app, args),
        Measure::Prose(args) => prose::run(app, args),
        Measure::Recall(args) => recall::run(app, args),
        Measure::Exam(args) => exam::run(app, args),
    }
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STRATEGIES.map(EvalStrategy::name))
}

/// A share greater than 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, whole) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (text, 1.0),
        };
        match number.parse::<f64>().map(|number| number / whole) {
            Ok(share) if share > 0.0 && share <= 1.0 => Ok(Self(share)),
            _ => Err("expected a share above 0 and up to 1, such as 0.2 or 20%".into()),
        }
    }
}

/// Returns the distinct shares, the smallest first.
fn shares(given: &[Share]) -> Vec<f64> {
    let mut shares = distinct(given.iter().map(|share| share.0));
    shares.sort_by(f64::total_cmp);
    shares
}

/// The command of a model, in addition to the strategies without a model.
#[derive(clap::Args)]
struct ByCommand {
    /// Also take summaries by a model: a command, run by `sh -c`, the prompt on its stdin, its answer on
    /// stdout. Its answers cost what they cost: one for each session and budget.
    #[arg(long, value_name = "CMD")]
    command: Option<String>,
}

impl ByCommand {
    fn strategy(&self) -> Option<EvalSummarize> {
        let command = self.command.as_ref().map(CommandSummarizer::new);
        command.map(|command| EvalSummarize::new(SummarizeCompaction::new(Arc::new(command))))
    }
}

/// Prints how often the digest was used because a command gave no answer.
fn note_fallbacks(by_command: Option<&EvalSummarize>) {
    let fallbacks = by_command.map_or(0, EvalSummarize::fallbacks);
    if fallbacks > 0 {
        let texts = text::count(fallbacks as u64, "text");
        note(&format!(
            "note: the command gave no answer for {texts}; the digest stood in"
        ));
    }
}

/// Returns the strategies of these names, each once; all if there is no name.
fn chosen(names: &[String]) -> Vec<&'static dyn EvalStrategy> {
    if names.is_empty() {
        return STRATEGIES.map(|one| one as &dyn EvalStrategy).to_vec();
    }
    let names = distinct(names.iter()).into_iter();
    names.filter_map(|name| strategy(name)).collect()
}

/// Imports transcripts into memory; the database of `--db` is not touched.
fn imported(paths: &[PathBuf]) -> Result<(SqliteStore, Vec<SessionId>), CliError> {
    let store = SqliteStore::in_memory()?;
    let options = ImportOptions {
        without_source: true,
        ..ImportOptions::default()
    };
    let imported = import_paths(&store, paths, &options, &mut |_| {})?;
    Ok((store, imported.sessions))
}

/// Returns an error about a file.
fn bad_file(path: &Path, why: impl std::fmt::Display) -> CliError {
    CliError::Failed(format!("{}: {why}", path.display()).into())
}

fn read_text(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| bad_file(path, error))
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), CliError> {
    std::fs::write(path, bytes).map_err(|error| bad_file(path, error))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), CliError> {
    write(path, serde_json::to_string_pretty(value)? + "\n")
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        for (text, share) in [("0.2", 0.2), ("20%", 0.2), ("12.5 %", 0.125), ("1", 1.0)] {
            assert_eq!(text.parse(), Ok(Share(share)), "{text}");
        }
        for bad in [
            "", "%", "0", "0%", "-0.1", "1.01", "101%", "NaN", "inf", "a", "20%%",
        ] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
    }
}
