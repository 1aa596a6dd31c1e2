//! `loopstore switch`

use loopstore::{LoopId, SessionId, extend as store};
use loopstore_terminal::{App, CliError, Done, select, text};
use serde::Serialize;

/// Make a loop the current one: commands and appends then continue it
///
/// Nothing else changes, and nothing is deleted. An import of newer messages, or an append to another loop, makes that
/// loop the current one again.
#[derive(clap::Args)]
pub struct SwitchArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The loop: its id or a unique prefix.
    #[arg(value_name = "LOOP")]
    loop_id: String,
}

#[derive(Serialize)]
struct Switched {
    session_id: SessionId,
    loop_id: LoopId,
    /// The loop that was the current one before.
    previous_loop_id: Option<LoopId>,
}

/// Switches and prints both loops.
pub fn run(app: &mut App, args: &SwitchArgs) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?;
    let row = select::loop_row(&*store, &session, &args.loop_id)?;
    let previous = store::write(&*store, |write| {
        let mut session = write.session_by_key(session.key)?;
        let previous = session.current_loop.replace(row.key);
        write.update_session(&session)?;
        let previous = previous.map(|key| write.loop_by_key(key)).transpose()?;
        Ok(previous.map(|row| row.core.loop_id))
    })?;
    let switched = Switched {
        session_id: session.session_id,
        loop_id: row.core.loop_id,
        previous_loop_id: previous,
    };
    app.print(&switched, || {
        let name = |id: &LoopId| text::line(id.as_str());
        let loop_id = name(&switched.loop_id);
        match &switched.previous_loop_id {
            Some(previous) if *previous == switched.loop_id => {
                format!("Loop {loop_id} is the current loop already.")
            }
            Some(previous) => {
                let before = name(previous);
                format!("Loop {loop_id} is now the current loop; before it was {before}.")
            }
            None => format!("Loop {loop_id} is now the current loop."),
        }
    })?;
    Ok(Done::Well)
}
