//! `loopstore expand`

use loopstore::inspect;
use loopstore::store::StoreError;

use super::error::CliError;
use super::{App, Done, context_text, select, text};

/// Read turns as they were recorded, whatever a compaction made of them
#[derive(clap::Args)]
pub struct Args {
    /// The session: its id or the beginning of it.
    session: String,
    /// The loop [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    in_loop: Option<String>,
    /// The turns, both ends included, counted from 0: A..B, or A for one.
    #[arg(long, value_name = "A..B")]
    turns: String,
    /// Whole turns of at most this many tokens, but at least one; the answer says where to go on.
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
}

/// Prints the turns.
pub fn run(app: &mut App, args: &Args) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&store, &args.session)?;
    let in_loop = select::loop_id(&store, &session, args.in_loop.as_deref())?;
    let turns = range(&args.turns)?;
    let id = &session.session_id;
    let expanded = inspect::expand(&store, id, in_loop.as_ref(), turns, args.max_tokens)?;
    if app.json {
        app.out.json(&expanded)?;
        return Ok(Done::Well);
    }
    for message in &expanded.messages {
        app.out.text(&context_text::message(message))?;
    }
    if let Some(next) = expanded.next {
        let rest = format!("Go on with --turns {next}..{}.", turns.1);
        app.out.text(&rest)?;
    }
    Ok(Done::Well)
}

fn range(given: &str) -> Result<(u32, u32), StoreError> {
    let (first, last) = given.split_once("..").unwrap_or((given, given));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) => Ok((first, last)),
        _ => Err(StoreError::Invalid(format!(
            "`{}` is no range of turns; give A..B, such as 0..4",
            text::line(given)
        ))),
    }
}
