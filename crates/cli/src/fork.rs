//! `loopstore fork`

use loopstore::extend::session::{self, Fork};
use loopstore::{LoopId, SessionId, extend as store};
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::{App, CliError, Done, select, text};
use serde::Serialize;

/// Begin a new loop from the middle of another
///
/// Nothing is copied: the new loop reads its parent up to that turn, with the compactions that were
/// active then. Later changes on one side do not affect the other. The current loop of the session
/// stays the same without --switch.
#[derive(clap::Args)]
pub struct ForkArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The loop to fork: its id or a unique prefix.
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: String,
    /// The last turn that both have in common; it must be complete. With a message of it, that is the last
    /// one.
    #[arg(long, value_name = "N[:SEQ]", value_parser = parse_turn)]
    turn: (u32, Option<u32>),
    /// The name of the branch.
    #[arg(long, value_name = "TAG", default_value = "fork")]
    tag: String,
    /// Make the new loop the current one, as `loopstore switch` does later.
    #[arg(long)]
    switch: bool,
    /// The id of the new loop [default: generated].
    #[arg(long, value_name = "NEWID")]
    id: Option<String>,
}

#[derive(Serialize)]
struct Forked {
    session_id: SessionId,
    loop_id: LoopId,
    parent_loop_id: LoopId,
    parent_turn: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_seq: Option<u32>,
}

/// Parses a turn, and optionally a message of it.
fn parse_turn(given: &str) -> Result<(u32, Option<u32>), String> {
    let number = |text: &str| {
        text.parse::<u32>()
            .map_err(|_| "give a turn such as 3, or a message of it such as 3:7".to_owned())
    };
    match given.split_once(':') {
        None => Ok((number(given)?, None)),
        Some((turn, seq)) => Ok((number(turn)?, Some(number(seq)?))),
    }
}

/// Forks a loop and prints the new one.
pub fn run(app: &mut App, args: &ForkArgs) -> Result<Done, CliError> {
    let id = match &args.id {
        Some(id) => {
            LoopId::new(id.as_str()).map_err(|error| CliError::Usage(format!("--id: {error}")))?
        }
        None => LoopId::generate(),
    };
    let store = app.open_to_write()?;
    let session = select::session(&*store, &args.session)?;
    let fork = Fork {
        loop_id: id.clone(),
        turn: args.turn.0,
        seq: args.turn.1,
        tag: args.tag.clone(),
    };
    let parent = select::loop_row(&*store, &session, &args.loop_id)?;
    store::write(&*store, |write| {
        let current = write.session_by_key(session.key)?.current_loop;
        session::fork(write, parent.key, &fork)?;
        if args.switch {
            return Ok(());
        }
        let mut session = write.session_by_key(session.key)?;
        session.current_loop = current;
        write.update_session(&session)
    })?;
    let name = ShortNames::new(&*store).session(session.session_id.as_str());
    let forked = Forked {
        session_id: session.session_id,
        loop_id: id,
        parent_loop_id: parent.core.loop_id,
        parent_turn: args.turn.0,
        parent_seq: args.turn.1,
    };
    let words = ["switch".to_owned(), name, forked.loop_id.to_string()];
    let switch = app.command_line(&words);
    app.print(&forked, || {
        let within = forked.parent_seq.map(|seq| format!("message {seq} of "));
        let id = forked.loop_id.as_str();
        let end = match args.switch {
            true => " and is now the current loop.".to_owned(),
            false => format!(".\n`{switch}` makes it the current loop."),
        };
        format!(
            "Loop {} continues from {}turn {} of {}{end}",
            text::line(id),
            within.unwrap_or_default(),
            forked.parent_turn,
            text::line(forked.parent_loop_id.as_str()),
        )
    })?;
    Ok(Done::Well)
}
