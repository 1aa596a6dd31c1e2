//! `loopstore pin` and `loopstore unpin`

use loopstore::extend::SessionRow;
use loopstore::{Database, PinList, PinRef, PinReport, PinRequest};
use loopstore_terminal::table::{Column, TextTable};
use loopstore_terminal::{App, CliError, Done, select, text};

use super::address;

/// Keep a message verbatim in every later compaction
///
/// Without LOOP:TURN, list what is pinned. A pin changes what the next compaction writes, not the contexts of
/// before; a compacted section shows the message as a quote.
#[derive(clap::Args)]
pub struct PinArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The message; without SEQ, the messages of a person or the agent in the turn. LOOP is an id or a unique prefix.
    #[arg(value_name = "LOOP:TURN[:SEQ]")]
    message: Option<String>,
    /// The loop whose line it holds for [default: the current one if the message is on its chain, else the
    /// message's own].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
}

/// Take a pin back: the next compaction treats the message like any other
#[derive(clap::Args)]
pub struct UnpinArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The message; without SEQ, all pinned messages of the turn. LOOP is an id or a unique prefix.
    #[arg(value_name = "LOOP:TURN[:SEQ]")]
    message: String,
    /// The loop whose line it holds for [default: the current one if the message is on its chain, else the
    /// message's own].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
}

/// Pins messages, or lists the pins.
pub fn run(app: &mut App, args: &PinArgs) -> Result<Done, CliError> {
    let leaf = args.loop_id.as_deref();
    match &args.message {
        Some(message) => {
            let store = app.open_to_write()?;
            let (session, request) = request(&*store, &args.session, message, leaf)?;
            let report = loopstore::pin(&*store, &session.session_id, &request)?;
            print(app, &report)
        }
        None => list(app, &args.session, leaf),
    }
}

/// Removes pins.
pub fn run_unpin(app: &mut App, args: &UnpinArgs) -> Result<Done, CliError> {
    let store = app.open_to_write()?;
    let leaf = args.loop_id.as_deref();
    let (session, request) = request(&*store, &args.session, &args.message, leaf)?;
    let report = loopstore::unpin(&*store, &session.session_id, &request)?;
    print(app, &report)
}

fn list(app: &mut App, session: &str, leaf: Option<&str>) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, session)?;
    let leaf = select::loop_id(&*store, &session, leaf)?;
    let list = loopstore::pins(&*store, &session.session_id, leaf.as_ref())?;
    app.print(&list, || listed(&list))?;
    Ok(Done::Well)
}

fn listed(list: &PinList) -> String {
    if list.pins.is_empty() {
        let id = text::line(list.session_id.as_str());
        return format!("Nothing is pinned in session {id}.");
    }
    let mut table = TextTable::new(vec![
        Column::text("message", 12),
        Column::text("author", 6),
        Column::number("tokens"),
        Column::text("text", 20),
    ]);
    for pin in &list.pins {
        table.row(vec![
            place(pin.loop_id.as_str(), pin.turn, pin.seq),
            pin.author.to_owned(),
            text::number(pin.tokens),
            text::line(&pin.text),
        ]);
    }
    table.lines(None)
}

fn place(loop_id: &str, turn: u32, seq: u32) -> String {
    format!("{}:{turn}:{seq}", text::line(loop_id))
}

fn print(app: &mut App, report: &PinReport) -> Result<Done, CliError> {
    let summary = || {
        let lines = report.messages.iter().map(|message| {
            let place = place(message.loop_id.as_str(), message.turn, message.seq);
            let already = if message.changed { "" } else { " already" };
            format!("Message {place} is {}{already}.", report.outcome)
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    app.print(report, summary)?;
    Ok(Done::Well)
}

fn request(
    store: &dyn Database,
    session: &str,
    message: &str,
    leaf: Option<&str>,
) -> Result<(SessionRow, PinRequest), CliError> {
    let session = select::session(store, session)?;
    let leaf = select::loop_id(store, &session, leaf)?;
    let of = reference(store, &session, message)?;
    Ok((session, PinRequest { of, leaf }))
}

/// Parses `LOOP:TURN` or `LOOP:TURN:SEQ`.
fn reference(store: &dyn Database, session: &SessionRow, text: &str) -> Result<PinRef, CliError> {
    let Some(found) = address::find(store, session, text, 2)? else {
        let expected = format!("`{text}` is not a message; expected LOOP:TURN or LOOP:TURN:SEQ");
        return Err(CliError::Usage(expected));
    };
    Ok(PinRef {
        loop_id: found.row.core.loop_id,
        turn: found.numbers[0],
        seq: found.numbers.get(1).copied(),
    })
}
