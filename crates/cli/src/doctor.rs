//! `loopstore doctor`

use loopstore_terminal::{App, CliError, Done};

/// Check the setup of agents and their transcripts, and show the failures of their hooks
///
/// For each agent, the newest transcript on this machine and the newest stored message, and the days until the agent
/// deletes its oldest transcript.
///
/// A hook does not report failures to its agent: they are logged, and shown here with a remedy. A failure before a
/// successful call of the same agent is listed and no longer counts. Exits with 1 if something is wrong.
#[derive(clap::Args)]
pub struct DoctorArgs {}

/// Checks and reports.
pub fn run(app: &mut App, _args: &DoctorArgs) -> Result<Done, CliError> {
    loopstore_agents::doctor::run(app)
}
