//! Reads the content of a screen from the store when the screen is shown.
//!
//! The database is open for reading. A change opens it for writing and closes it again.

use loopstore::compact::FlipRequest;
use loopstore::extend::SessionFilter;
use loopstore::extend::sqlite::Record;
use loopstore::search::{SearchHit, SearchQuery};
use loopstore::{Database, EditRequest, EditTarget, LoopId, OpenError, SessionId};
use loopstore_admin::inspect::{DiffRequest, DiffSide, diff};
use loopstore_terminal::diff_lines::diff_lines;
use loopstore_terminal::edits::result_line;
use loopstore_terminal::hits::hit_heading;
use loopstore_terminal::runs::{edit_reason, flip_summary, flips, run_state};
use loopstore_terminal::{CliError, text};

use super::cursor::{Pane, Tone};
use super::lists::{Hit, Run, SessionItem};
use super::state::{AskedEdit, Change, ContentRequest, EditKind, FlipAction, ReadOutcome};
use super::{loops, turns};

/// The number of hits in a page.
const HITS: usize = 50;

/// Opens the database, for writing if the argument is true.
pub type OpenDatabase<'a> = dyn Fn(bool) -> Result<Box<dyn Database>, OpenError> + 'a;

/// The database.
pub struct Data<'a> {
    open: &'a OpenDatabase<'a>,
    /// `None` after a change whose reopening failed.
    store: Option<Box<dyn Database>>,
}

impl<'a> Data<'a> {
    /// Opens the database for reading.
    pub fn new(open: &'a OpenDatabase<'a>) -> Result<Self, CliError> {
        let store = Some(open(false)?);
        Ok(Self { open, store })
    }

    /// Returns the database, open for reading.
    pub fn store(&mut self) -> Result<&dyn Database, CliError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => (self.open)(false)?,
        };
        Ok(&**self.store.insert(store))
    }

    /// Reads the requested content, or makes the confirmed change.
    pub fn read(&mut self, want: &ContentRequest) -> Result<ReadOutcome, CliError> {
        if let ContentRequest::Change(change) = want {
            return self.change(change);
        }
        let store = self.store()?;
        Ok(match want {
            ContentRequest::Sessions => ReadOutcome::Sessions(sessions(store)?),
            ContentRequest::Tree(session) => loops::tree(store, session)?,
            ContentRequest::Seen(session, leaf) => {
                ReadOutcome::Seen(loops::seen(store, session, leaf)?)
            }
            ContentRequest::Turns(session, loop_id, range) => {
                ReadOutcome::Turns(turns::page(store, session, loop_id, range.clone())?)
            }
            ContentRequest::Turn {
                session,
                leaf,
                loop_id,
                turn,
            } => ReadOutcome::Turn(turns::turn_text(store, session, leaf, loop_id, *turn)?),
            ContentRequest::Runs(session) => ReadOutcome::Runs(runs(store, session)?),
            ContentRequest::Diff(session, leaf) => {
                ReadOutcome::Diff(differences(store, session, leaf)?)
            }
            ContentRequest::Search {
                session,
                query,
                offset,
            } => hits(store, session.as_ref(), query, *offset)?,
            ContentRequest::Change(change) => self.change(change)?,
        })
    }

    fn change(&mut self, change: &Change) -> Result<ReadOutcome, CliError> {
        // One connection at a time: closing one must not release the locks of the other.
        self.store = None;
        let store = (self.open)(true)?;
        Ok(ReadOutcome::Changed(match change {
            Change::Flip(flip_action) => flip(&*store, flip_action)?,
            Change::Edit(edit_action) => edit(&*store, edit_action)?,
        }))
    }
}

fn flip(store: &dyn Database, flip: &FlipAction) -> Result<String, CliError> {
    let request = FlipRequest {
        leaf: Some(flip.leaf.clone()),
        run: flip.run.clone(),
        reason: None,
    };
    let report = match flip.redo {
        true => loopstore::redo(store, &flip.session, &request)?,
        false => loopstore::undo(store, &flip.session, &request)?,
    };
    Ok(flip_summary(&report))
}

fn edit(store: &dyn Database, edit: &AskedEdit) -> Result<String, CliError> {
    let (loop_id, turn) = (edit.loop_id.clone(), edit.turn);
    let target = match edit.seq {
        Some(seq) => EditTarget::Message(loop_id, turn, seq),
        None => EditTarget::Turns(loop_id, turn..=turn),
    };
    let mut request = match edit.kind {
        EditKind::Drop => EditRequest::remove([target]),
        EditKind::Clear => EditRequest::clear([target]),
        EditKind::Restore => {
            let reports = loopstore::restore(store, &edit.session, Some(&edit.leaf), &[target])?;
            let lines: Vec<String> = reports.iter().map(flip_summary).collect();
            return Ok(lines.join("; "));
        }
    };
    request.leaf = Some(edit.leaf.clone());
    let action = request.action;
    let report = loopstore::edit(store, &edit.session, &request)?;
    Ok(result_line(&report, action))
}

fn sessions(store: &dyn Database) -> Result<Vec<SessionItem>, CliError> {
    let line = |row: &Record| {
        let number = |column| row.number(column).unwrap_or(0);
        let last_active = row.text("last_active_at");
        Some(SessionItem {
            id: SessionId::new(row.text("session_id")?).ok()?,
            title: row.text("title").unwrap_or_default(),
            project: row.text("project").unwrap_or_default(),
            loops: number("loops"),
            turns: number("turns"),
            tokens: number("tokens"),
            last_active: last_active.map(|at| text::time(&at)).unwrap_or_default(),
        })
    };
    Ok(store
        .session_rows(&SessionFilter::default())?
        .iter()
        .filter_map(line)
        .collect())
}

fn runs(store: &dyn Database, session: &SessionId) -> Result<Vec<Run>, CliError> {
    let rows = store.run_rows(Some(session))?;
    Ok(rows.iter().map(run).collect())
}

fn run(row: &Record) -> Run {
    let word = |column| row.text(column).unwrap_or_default();
    let state = match run_state(row) {
        "" => word("outcome"),
        state => state.to_owned(),
    };
    let mut details = vec![
        format!("run {}", word("run_id")),
        format!(
            "on loop {}, triggered by {}",
            word("loop_id"),
            word("trigger")
        ),
    ];
    let facts = [("fallback", "fallback"), ("error", "error")];
    for (name, column) in facts {
        details.extend(row.text(column).map(|text| format!("{name}: {text}")));
    }
    details.extend(edit_reason(row).map(|reason| format!("reason: {reason}")));
    for flip in flips(row) {
        let reason = flip.reason.map(|why| format!(": {why}"));
        let at = text::time(&flip.at);
        details.push(format!("{} {at}{}", flip.kind, reason.unwrap_or_default()));
    }
    Run {
        id: word("run_id"),
        loop_id: LoopId::new(word("loop_id")).ok(),
        started: text::time(&word("started_at")),
        strategy: word("strategy"),
        state,
        before: row.number("tokens_before"),
        after: row.number("tokens_after"),
        details,
    }
}

/// Returns the difference between the context of a leaf and the originals.
fn differences(store: &dyn Database, session: &SessionId, leaf: &LoopId) -> Result<Pane, CliError> {
    let request = DiffRequest {
        from: Some(DiffSide::Raw),
        to: Some(DiffSide::Now),
        leaf: Some(leaf.clone()),
    };
    let found = diff(store, session, &request)?;
    let lines = diff_lines(&found).into_iter();
    Ok(Pane::new(
        lines
            .map(|(line, state)| (line, state.map_or(Tone::Plain, loops::tone)))
            .collect(),
    ))
}

fn hits(
    store: &dyn Database,
    session: Option<&SessionId>,
    query: &str,
    offset: usize,
) -> Result<ReadOutcome, CliError> {
    let mut asked = SearchQuery::new(query);
    asked.session = session.cloned();
    asked.limit = Some(HITS);
    asked.offset = offset;
    let found = loopstore::search(store, &asked)?;
    let hit = |hit: SearchHit| Hit {
        about: hit_heading(&hit),
        hidden: hit.hidden,
        session: hit.session_id,
        loop_id: hit.loop_id,
        turn: hit.turn,
        snippet: hit.snippet,
    };
    Ok(ReadOutcome::Hits(
        found.hits.into_iter().map(hit).collect(),
        found.next,
    ))
}
