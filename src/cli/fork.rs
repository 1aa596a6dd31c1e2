//! `loopstore fork`

use loopstore::LoopId;
use loopstore::store;
use loopstore::store::session::{self, Fork};
use serde::Serialize;

use super::error::CliError;
use super::{App, Done, select, text};

/// Begin a new loop from the middle of one
///
/// Nothing is copied: the new loop reads its parent up to that turn, with the compactions that were
/// in force then. What is compacted, undone or appended later on one side never reaches the other.
/// The new loop becomes the current one.
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or the beginning of it.
    session: String,
    /// The loop to leave: its id or the beginning of it.
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: String,
    /// The last turn that the new loop has in common with it; it must be complete.
    #[arg(long, value_name = "N")]
    turn: u32,
    /// Which branch it is.
    #[arg(long, value_name = "TAG", default_value = "fork")]
    tag: String,
    /// The id of the new loop [default: a new one].
    #[arg(long, value_name = "NEWID")]
    id: Option<String>,
}

#[derive(Serialize)]
struct Told {
    session: String,
    #[serde(rename = "loop")]
    loop_id: LoopId,
    parent_loop: LoopId,
    parent_turn: u32,
}

/// Forks a loop and tells where it stands.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let id = match &args.id {
        Some(id) => LoopId::new(id.as_str())
            .map_err(|error| CliError::Usage(format!("--id: {error}; give another one")))?,
        None => LoopId::generate(),
    };
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?;
    let fork = Fork {
        loop_id: id.clone(),
        turn: args.turn,
        tag: args.tag.clone(),
    };
    let parent = select::loop_row(&*store, &session, &args.loop_id)?;
    store::write(&*store, |write| session::fork(write, parent.key, &fork))?;
    let told = Told {
        session: session.session_id.to_string(),
        loop_id: id,
        parent_loop: parent.core.loop_id,
        parent_turn: args.turn,
    };
    if app.json {
        app.out.json(&told)?;
    } else {
        app.out.text(&format!(
            "Loop {} goes on from turn {} of {}; it is the current loop now.",
            text::line(told.loop_id.as_str()),
            told.parent_turn,
            text::line(told.parent_loop.as_str()),
        ))?;
    }
    Ok(Done::Well)
}
