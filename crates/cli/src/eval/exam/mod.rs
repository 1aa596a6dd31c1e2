//! `loopstore eval exam`

mod collect;
mod folder;
mod prepare;
mod score;

use crate::error::CliError;
use crate::{App, Done};

/// What a compacted context is worth to a reader who has to go on from it
///
/// `prepare` compacts transcripts up to a cut and writes one context for each candidate, with the questions.
/// Readers answer from a context, a fresh one for each sitting. `collect` shuffles their answers into a
/// sheet that tells nothing of the candidates. A grader fills it in, and `score` prints the means.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    step: Step,
}

#[derive(clap::Subcommand)]
enum Step {
    Prepare(prepare::Args),
    Collect(collect::Args),
    Score(score::Args),
}

/// Takes a step of an exam.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    match &args.step {
        Step::Prepare(args) => prepare::run(app, args),
        Step::Collect(args) => collect::run(app, args),
        Step::Score(args) => score::run(app, args),
    }
}
