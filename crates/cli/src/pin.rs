//! `loopstore pin` and `loopstore unpin`

use loopstore::admin::retention::set_pinned;
use serde::Serialize;

use super::error::CliError;
use super::{App, Done, select, text};

/// Protect a session from `prune`
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or a unique prefix.
    session: String,
}

/// Remove the pin of a session
#[derive(clap::Args)]
pub struct UnpinArgs {
    /// The session: its id or a unique prefix.
    session: String,
}

#[derive(Serialize)]
struct Pinned<'a> {
    session_id: &'a str,
    pinned_at: Option<&'a str>,
}

/// Pins the session.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    pin(app, &args.session, true)
}

/// Unpins the session.
pub fn run_unpin(app: &mut App, args: &UnpinArgs) -> Result<Done, CliError> {
    pin(app, &args.session, false)
}

fn pin(app: &mut App, given: &str, pinned: bool) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, given)?.session_id;
    let pinned_at = set_pinned(&*store, &session, pinned)?;
    let pinned = Pinned {
        session_id: session.as_str(),
        pinned_at: pinned_at.as_deref(),
    };
    let id = text::line(session.as_str());
    app.print(&pinned, || match pinned.pinned_at {
        Some(at) => format!("Session {id} is pinned since {at}."),
        None => format!("Session {id} is not pinned."),
    })?;
    Ok(Done::Well)
}
