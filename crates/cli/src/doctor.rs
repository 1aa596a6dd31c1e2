//! `loopstore doctor`

use loopstore_terminal::{App, CliError, Done};

/// Check what is set up in agents, and show what their hooks could not do
///
/// A hook tells its agent nothing when it fails: it is noted, and shown here with what to do. A failure that
/// a later call of the same agent made good is listed and no longer counts. Exits with 1 if something is
/// wrong.
#[derive(clap::Args)]
pub struct DoctorArgs {}

/// Checks and reports.
pub fn run(app: &mut App, _args: &DoctorArgs) -> Result<Done, CliError> {
    loopstore_agents::doctor::run(app)
}
