//! `loopstore protect`

use loopstore_admin::retention::set_protected;
use loopstore_terminal::{App, CliError, Done, select, text};
use serde::Serialize;

/// Protect a session from `prune`
#[derive(clap::Args)]
pub struct ProtectArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// End the protection.
    #[arg(long)]
    off: bool,
}

#[derive(Serialize)]
struct Protected<'a> {
    session_id: &'a str,
    protected_at: Option<&'a str>,
}

/// Adds or ends the protection of the session.
pub fn run(app: &mut App, args: &ProtectArgs) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?.session_id;
    let protected_at = set_protected(&*store, &session, !args.off)?;
    let protected = Protected {
        session_id: session.as_str(),
        protected_at: protected_at.as_deref(),
    };
    let id = text::line(session.as_str());
    app.print(&protected, || match protected.protected_at {
        Some(at) => format!("Session {id} is protected since {at}."),
        None => format!("Session {id} is not protected."),
    })?;
    Ok(Done::Well)
}
