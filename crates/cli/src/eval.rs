//! `loopstore eval`

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use loopstore::import::{ImportOptions, import_paths};
use loopstore::{CommandSummarizer, SqliteStore, SummarizeCompaction};
use loopstore_report::eval::{
    EvalStrategy, EvalSummarize, RetentionReport, STRATEGIES, recall_svg, retention, strategy,
};

use super::error::CliError;
use super::output::{note, write_file};
use super::{App, Done, text};

/// Measure the strategies on recorded transcripts
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(clap::Subcommand)]
enum Measure {
    Retention(Retention),
}

/// How much of what the agent later needed survives each strategy at each budget
///
/// Each session is cut at 60 % of its messages, and the part before the cut is compacted without
/// looking at the rest. The values needed are those (strings of 3 to 120 characters, numbers of three
/// or more digits) that a later tool call takes from before the cut; the result is the share of them
/// that survives verbatim. Sessions too short to cut are left out. The transcripts are imported into
/// memory; the database of --db is not touched.
#[derive(clap::Args)]
struct Retention {
    /// Transcripts: files and folders, as `import` takes them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A strategy to measure; may be repeated [default: all].
    #[arg(long = "strategy", value_name = "NAME", value_parser = names())]
    strategies: Vec<String>,
    /// Also measure summaries by a model: a command, run by `sh -c`, the prompt on its stdin, its answer on
    /// stdout. Its answers cost what they cost: one for each session and budget.
    #[arg(long, value_name = "CMD")]
    command: Option<String>,
    /// A budget as a share of the tokens before the cut, such as 0.2 or 20%; may be repeated.
    #[arg(
        long = "budget",
        value_name = "SHARE",
        default_values = ["1%", "3%", "5%", "10%", "20%"]
    )]
    budgets: Vec<Share>,
    /// Also plot the figures into this file, replacing it.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STRATEGIES.map(EvalStrategy::name))
}

/// More than nothing, at most all.
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

/// Measures and prints.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let Measure::Retention(args) = &args.measure;
    let report = args.measured()?;
    app.print(&report, || report.table().trim_end().to_owned())?;
    if report.needed == 0 {
        note("note: no value after the cuts comes from before them, so the figures say nothing");
    }
    if let Some(path) = &args.svg {
        write_file(app, path, recall_svg(&report).as_bytes())?;
    }
    Ok(Done::Well)
}

impl Retention {
    fn measured(&self) -> Result<RetentionReport, CliError> {
        let store = SqliteStore::in_memory()?;
        let options = ImportOptions {
            without_source: true,
            ..ImportOptions::default()
        };
        let imported = import_paths(&store, &self.paths, &options, &mut |_| {})?;
        let mut budgets = distinct(self.budgets.iter().map(|share| share.0));
        budgets.sort_by(f64::total_cmp);
        let mut strategies: Vec<&dyn EvalStrategy> = distinct(self.strategies.iter())
            .into_iter()
            .filter_map(|name| strategy(name))
            .collect();
        if strategies.is_empty() {
            strategies.extend(STRATEGIES.map(|strategy| strategy as &dyn EvalStrategy));
        }
        let command = self.command.as_ref().map(CommandSummarizer::new);
        let by_command =
            command.map(|command| EvalSummarize::new(SummarizeCompaction::new(Arc::new(command))));
        strategies.extend(
            by_command
                .iter()
                .map(|strategy| strategy as &dyn EvalStrategy),
        );
        let report = retention(&store, &imported.sessions, &budgets, &strategies)?;
        let fallbacks = by_command.map_or(0, |strategy| strategy.fallbacks());
        if fallbacks > 0 {
            let texts = text::count(fallbacks as u64, "text");
            note(&format!(
                "note: the command gave no answer for {texts}; the digest stood in"
            ));
        }
        if report.cases == 0 {
            let sessions = text::count(imported.sessions.len() as u64, "session");
            let why = format!("{sessions} imported, and none is long enough to cut");
            return Err(CliError::Failed(why.into()));
        }
        Ok(report)
    }
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
