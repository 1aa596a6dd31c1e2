//! `loopstore eval prose`

use std::path::PathBuf;

use crate::{ProseConversation, prose};
use loopstore_terminal::output::note;
use loopstore_terminal::{App, CliError, Done};

use super::{Share, bad_file, chosen, names, read_text, shares};

/// Measure the share of the answers to later questions that survives in a long conversation without tools
///
/// Each file is JSON: {"messages": [{"author": "Ada", "text": "…", "time": "2031-05-04T10:00:00Z"}], "questions":
/// [{"question": "…", "answer": "…"}]}. The whole conversation is compacted without looking at the questions; the
/// result is the share of the content words of the answers that survives. The baselines are the messages with the
/// rarest words (tf-idf) and messages chosen at random (the mean of five draws). The database of --db is not touched.
#[derive(clap::Args)]
pub struct EvalProseArgs {
    /// Files with a conversation and its questions.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A strategy to measure; may be repeated.
    #[arg(long = "strategy", value_name = "NAME", value_parser = names(), default_value = "digest")]
    strategies: Vec<String>,
    /// A budget as a share of the tokens of the conversation, such as 0.2 or 20%; may be repeated.
    #[arg(long = "budget", value_name = "SHARE", default_values = ["5%", "10%", "20%"])]
    budgets: Vec<Share>,
    /// The seed of the messages chosen at random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Measures and prints.
pub fn run(app: &mut App, args: &EvalProseArgs) -> Result<Done, CliError> {
    let mut conversations = Vec::new();
    for path in &args.files {
        let read = ProseConversation::from_json(&read_text(path)?);
        conversations.push(read.map_err(|error| bad_file(path, error))?);
    }
    let strategies = chosen(&args.strategies);
    let report = prose(
        &conversations,
        &shares(&args.budgets),
        &strategies,
        args.seed,
    );
    let report = report.map_err(|error| CliError::Failed(error.into()))?;
    app.print(&report, || report.table().trim_end().to_owned())?;
    if report.words == 0 {
        note("note: the answers hold no words, so the figures say nothing");
    }
    Ok(Done::Well)
}
