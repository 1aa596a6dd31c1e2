//! `loopstore read`

mod draw;
mod entries;
mod markdown;
mod styled;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use loopstore::extend::{self as store, SessionRow, prompt};
use loopstore::{Database, LoopId, SessionId};
use loopstore_admin::replay::{Replay, ReplayStep, ReplayedTurn};
use loopstore_terminal::output::{takes_colours, width};
use loopstore_terminal::short::ShortNames;
use loopstore_terminal::{App, CliError, Done, amount, select, text};

use self::draw::Drawing;
use self::entries::{ReadTurn, turn_entry};
use super::address;

/// The time between two looks at a session that is followed.
const PAUSE: Duration = Duration::from_millis(500);
/// The widest text: longer lines are hard to read.
const WIDEST: usize = 100;

/// Read a session: what people and agents wrote, with tool calls folded and edits as diffs
///
/// From the root to the current loop, newest last. A tool call is a line with the size of its result; a change of a
/// file is a diff. On a terminal the Markdown of answers is rendered; in a pipe it stays as it is. Text of the harness,
/// thinking and results are folded, and notes are counted; `--full` shows all of it.
#[derive(clap::Args)]
pub struct ReadArgs {
    /// The session: its id or a unique prefix.
    session: String,
    /// The loop where the branch ends [default: the current one].
    #[arg(long = "loop", value_name = "LOOP")]
    loop_id: Option<String>,
    /// Only these turns: a turn or A..B of the loop, or LOOP:TURN as the headings name it.
    #[arg(long, value_name = "TURN|A..B|LOOP:TURN", conflicts_with_all = ["last", "follow"])]
    turn: Option<String>,
    /// Only the last turns.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    /// Show arguments, results, thinking, notes and text of the harness whole.
    #[arg(long)]
    full: bool,
    /// Wait for further turns, and print them as they are stored. With --json a turn is a line.
    #[arg(long, short = 'f')]
    follow: bool,
}

impl ReadArgs {
    /// True if the output ends by itself.
    pub fn is_read_at_once(&self) -> bool {
        !self.follow
    }
}

/// Prints the session.
pub fn run(app: &mut App, args: &ReadArgs) -> Result<Done, CliError> {
    let store = app.open_to_read()?;
    let session = select::session(&*store, &args.session)?;
    let leaf = select::loop_id(&*store, &session, args.loop_id.as_deref())?;
    let mut reader = Reader::new(app, args, &*store, &session);
    if let Some(given) = &args.turn {
        let (loop_id, turns) = given_turns(&*store, &session, leaf.as_ref(), given)?;
        return reader.turns(&*store, &session, &loop_id, turns);
    }
    let stop = args.follow.then(stopped).transpose()?;
    reader.begin(&*store, &session)?;
    // A session without loops has nothing to read yet.
    if session.current_loop.is_some() {
        let replay = Replay::new(&*store, &session.session_id, leaf.as_ref())?;
        reader.steps(match args.last {
            Some(last) => replay.last_turns(last),
            None => replay,
        })?;
    }
    while let Some(stop) = &stop {
        reader.app.out.flush()?;
        if stop.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        let row = store::read(&*store, |read| read.session_by_key(session.key))?;
        if row.current_loop.is_none() {
            continue;
        }
        let replay = Replay::new(&*store, &session.session_id, leaf.as_ref())?;
        let replay = match &reader.last {
            Some((loop_id, turn)) => replay.from_turn(loop_id, *turn),
            None => replay,
        };
        reader.steps(replay)?;
    }
    reader.end()
}

/// Returns a channel that Ctrl-C sends to.
fn stopped() -> Result<Receiver<()>, CliError> {
    let (stop, stopped) = channel();
    let handler = move || {
        // The receiver is gone if the program is ending anyway.
        let _ = stop.send(());
    };
    ctrlc::set_handler(handler).map_err(|error| CliError::Failed(Box::new(error)))?;
    Ok(stopped)
}

/// Returns the loop and the turns that `--turn` names.
fn given_turns(
    store: &dyn Database,
    session: &SessionRow,
    leaf: Option<&LoopId>,
    given: &str,
) -> Result<(LoopId, (u32, u32)), CliError> {
    let range = match amount::turns(given) {
        Ok(range) => range,
        Err(error) => {
            let found = address::find(store, session, given, 1)?;
            let found = found.ok_or(CliError::Usage(error))?;
            // An address has its turn.
            let turn = found.numbers.first().copied().unwrap_or_default();
            return Ok((found.row.core.loop_id, (turn, turn)));
        }
    };
    let leaf = store::read(store, |read| store::leaf_of(read, session, leaf))?;
    Ok((leaf.core.loop_id, range))
}

/// Prints turns and changes.
struct Reader<'a> {
    app: &'a mut App,
    /// The short forms of the ids of loops, for headings.
    names: ShortNames<'a>,
    session: &'a SessionId,
    drawing: Drawing,
    /// True if a turn is a line of JSON, not an element of an array.
    is_lines: bool,
    is_full: bool,
    is_empty: bool,
    /// The turn that was printed last.
    last: Option<(LoopId, u32)>,
    /// The sequence after the last printed message of each loop.
    printed: HashMap<LoopId, u32>,
    /// The changes up to this one were printed.
    tick: Option<store::Tick>,
}

impl<'a> Reader<'a> {
    fn new(
        app: &'a mut App,
        args: &ReadArgs,
        store: &'a dyn Database,
        session: &'a SessionRow,
    ) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            app,
            names: ShortNames::new(store),
            session: &session.session_id,
            drawing: Drawing {
                width: is_terminal.then(|| width().map_or(WIDEST, |width| width.min(WIDEST))),
                is_coloured: is_terminal && takes_colours(),
                is_full: args.full,
                notes: 0,
            },
            is_lines: args.follow,
            is_full: args.full,
            is_empty: true,
            last: None,
            printed: HashMap::new(),
            tick: None,
        }
    }

    /// Prints what the session is about.
    fn begin(&mut self, store: &dyn Database, session: &SessionRow) -> Result<(), CliError> {
        if self.app.json {
            return Ok(());
        }
        let title = store::read(store, |read| prompt::session_title(read, session))?;
        let title = title.map_or_else(String::new, |title| format!(": {}", text::line(&title)));
        let id = text::line(session.session_id.as_str());
        self.app.out.text(&format!("Session {id}{title}"))?;
        let mut facts = Vec::new();
        facts.extend(session.project.as_deref().map(text::line));
        facts.extend(session.source.as_deref().map(text::line));
        facts.extend(session.last_active_at.as_deref().map(text::time));
        match facts.is_empty() {
            true => Ok(()),
            false => self.app.out.text(&facts.join(", ")),
        }
    }

    fn steps(&mut self, replay: Replay<'_>) -> Result<(), CliError> {
        for step in replay {
            match step? {
                ReplayStep::Change(change) => {
                    if self.tick.is_some_and(|tick| change.tick <= tick) {
                        continue;
                    }
                    self.tick = Some(change.tick);
                    if !self.app.json {
                        let run = self.names.run(self.session.as_str(), &change.run_id);
                        let line = self.drawing.change(&change, &run);
                        self.app.out.bytes(line.as_bytes())?;
                    }
                }
                ReplayStep::Turn(turn) => self.turn(&turn)?,
            }
        }
        Ok(())
    }

    /// Prints a turn, or the messages that were added to the last one.
    fn turn(&mut self, turn: &ReplayedTurn) -> Result<(), CliError> {
        let next_seq = self.printed.get(&turn.loop_id).copied().unwrap_or(0);
        let start = next_seq.saturating_sub(turn.first_seq) as usize;
        let messages = turn.messages.len();
        if start >= messages {
            return Ok(());
        }
        let this = (turn.loop_id.clone(), turn.turn);
        let is_new = self.last.as_ref() != Some(&this);
        self.print(&turn_entry(turn, start), is_new)?;
        let end = turn.first_seq.saturating_add(messages as u32);
        self.printed.insert(turn.loop_id.clone(), end);
        self.last = Some(this);
        Ok(())
    }

    fn print(&mut self, entry: &ReadTurn, is_new: bool) -> Result<(), CliError> {
        let is_first = std::mem::replace(&mut self.is_empty, false);
        match (self.app.json, self.is_lines) {
            (true, true) => self.app.out.json_line(entry),
            (true, false) => self.app.out.element(is_first, entry),
            (false, _) => {
                let loop_id = entry.loop_id.as_str();
                let name = is_new.then(|| self.names.loop_id(self.session.as_str(), loop_id));
                let lines = self.drawing.turn(entry, name.as_deref());
                self.app.out.bytes(lines.as_bytes())
            }
        }
    }

    /// Prints some turns of a loop.
    fn turns(
        &mut self,
        store: &dyn Database,
        session: &SessionRow,
        loop_id: &LoopId,
        (first, last): (u32, u32),
    ) -> Result<Done, CliError> {
        let replay = Replay::new(store, &session.session_id, Some(loop_id))?;
        for step in replay.from_turn(loop_id, first) {
            match step? {
                ReplayStep::Turn(turn) if turn.turn <= last => self.turn(&turn)?,
                ReplayStep::Turn(_) => break,
                ReplayStep::Change(_) => {}
            }
        }
        if self.is_empty {
            let id = loop_id.as_str();
            let row = select::loop_row(store, session, id)?;
            let turns = text::count(row.totals.turns, "turn");
            let what = format!(
                "turn {first} of loop {} not found: the loop has {turns}, counted from 0",
                text::line(id)
            );
            return Err(CliError::Failed(what.into()));
        }
        self.end()
    }

    fn end(&mut self) -> Result<Done, CliError> {
        if self.app.json {
            if !self.is_lines {
                self.app.out.end_elements(self.is_empty)?;
            }
            return Ok(Done::Well);
        }
        if self.is_empty {
            self.app.out.text("The session has no turns yet.")?;
        }
        if self.drawing.notes > 0 && !self.is_full {
            let notes = text::count(self.drawing.notes, "note");
            self.app
                .out
                .text(&format!("\nNot shown: {notes}; --full shows all."))?;
        }
        Ok(Done::Well)
    }
}
