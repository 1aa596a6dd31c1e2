//! `loopstore eval exam`

use loopstore_terminal::{App, CliError, Done};
mod collect;
mod folder;
mod prepare;
mod score;

/// Measure the worth of a compacted context to a reader who continues from it
///
/// `prepare` compacts transcripts up to a cut and writes one context for each candidate, with the questions. Readers
/// answer from a context, a fresh one for each sitting. `collect` shuffles their answers into a sheet without the
/// names of the candidates. A grader fills it in, and `score` prints the means.
#[derive(clap::Args)]
pub struct EvalExamArgs {
    #[command(subcommand)]
    step: ExamStep,
}

#[derive(clap::Subcommand)]
enum ExamStep {
    Prepare(prepare::ExamPrepareArgs),
    Collect(collect::ExamCollectArgs),
    Score(score::ExamScoreArgs),
}

/// Runs a step of an exam.
pub fn run(app: &mut App, args: &EvalExamArgs) -> Result<Done, CliError> {
    match &args.step {
        ExamStep::Prepare(args) => prepare::run(app, args),
        ExamStep::Collect(args) => collect::run(app, args),
        ExamStep::Score(args) => score::run(app, args),
    }
}
