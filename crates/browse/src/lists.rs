//! The lists: sessions, compactions and edits, and search results.

use loopstore::{LoopId, SessionId, Snippet};

use super::cursor::Cursor;
use super::session::InSession;
use super::state::{
    Change, ContentRequest, FlipAction, KeyOutcome, KeyPress, ScreenSize, TextEntry,
};

/// A session in the list.
#[derive(Clone, Debug)]
pub struct SessionItem {
    pub id: SessionId,
    pub title: String,
    pub project: String,
    pub loops: i64,
    pub turns: i64,
    pub tokens: i64,
    pub last_active: String,
}

/// The list of sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    /// `None` until read.
    pub rows: Option<Vec<SessionItem>>,
    pub filter: String,
    /// The rows that match the filter.
    pub shown: Vec<usize>,
    pub cursor: Cursor,
}

impl Sessions {
    /// Returns the number of rows for the list, below its heading.
    pub fn height(room: ScreenSize) -> usize {
        room.height.saturating_sub(1)
    }

    pub fn arrange(&mut self, room: ScreenSize) {
        self.cursor.clamp(self.shown.len(), Self::height(room));
    }

    pub fn set_rows(&mut self, rows: Vec<SessionItem>) {
        self.rows = Some(rows);
        let text = self.filter.clone();
        self.filter(&text);
    }

    /// Keeps the sessions whose id, title and project contain all of these words.
    pub fn filter(&mut self, text: &str) {
        self.filter = text.to_owned();
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        let fits = |row: &SessionItem| {
            let has = format!("{} {} {}", row.id, row.title, row.project).to_lowercase();
            words.iter().all(|word| has.contains(word))
        };
        let rows = self.rows.iter().flatten().enumerate();
        self.shown = rows
            .filter(|(_, row)| fits(row))
            .map(|(at, _)| at)
            .collect();
    }

    /// Returns the selected session.
    pub fn chosen(&self) -> Option<&SessionItem> {
        let at = self.shown.get(self.cursor.at)?;
        self.rows.as_ref()?.get(*at)
    }

    pub fn press(&mut self, key: KeyPress, room: ScreenSize) -> KeyOutcome {
        match key {
            KeyPress::Enter | KeyPress::Right | KeyPress::Char('l') => match self.chosen() {
                Some(row) => KeyOutcome::Open(InSession::screen(row.id.clone(), None)),
                None => KeyOutcome::Stay,
            },
            KeyPress::Char('/') => KeyOutcome::Type(TextEntry::Filter(self.filter.clone())),
            KeyPress::Escape if !self.filter.is_empty() => {
                self.filter("");
                KeyOutcome::Stay
            }
            _ if self.cursor.press(key, self.shown.len(), Self::height(room)) => KeyOutcome::Stay,
            _ => KeyOutcome::Unknown,
        }
    }
}

/// A compaction, or a run of edits.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: String,
    /// The loop from which it was made.
    pub loop_id: Option<LoopId>,
    pub started: String,
    pub strategy: String,
    /// `active`, `undone`, or the outcome.
    pub state: String,
    pub before: Option<i64>,
    pub after: Option<i64>,
    /// Further lines about the run.
    pub details: Vec<String>,
}

/// The compactions and edits of a session, newest first.
#[derive(Debug)]
pub struct Runs {
    pub session: SessionId,
    /// `None` until read.
    pub rows: Option<Vec<Run>>,
    pub cursor: Cursor,
}

impl Runs {
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            rows: None,
            cursor: Cursor::default(),
        }
    }

    /// Returns the number of rows for the list and, below a line, for the details of the selected run.
    pub fn heights(room: ScreenSize) -> (usize, usize) {
        let all = room.height.saturating_sub(1);
        match all {
            0..12 => (all, 0),
            _ => (all - 8, 7),
        }
    }

    pub fn count(&self) -> usize {
        self.rows.as_ref().map_or(0, Vec::len)
    }

    pub fn arrange(&mut self, room: ScreenSize) {
        let count = self.count();
        self.cursor.clamp(count, Self::heights(room).0);
    }

    /// Returns the selected run.
    pub fn chosen(&self) -> Option<&Run> {
        self.rows.as_ref()?.get(self.cursor.at)
    }

    pub fn press(&mut self, key: KeyPress, room: ScreenSize) -> KeyOutcome {
        let count = self.count();
        match key {
            KeyPress::Char('u' | 'r') => self.flip(key == KeyPress::Char('r')),
            _ if self.cursor.press(key, count, Self::heights(room).0) => KeyOutcome::Stay,
            _ => KeyOutcome::Unknown,
        }
    }

    fn flip(&self, redo: bool) -> KeyOutcome {
        let chosen = self
            .chosen()
            .and_then(|run| Some((run, run.loop_id.clone()?)));
        let Some((run, leaf)) = chosen else {
            return KeyOutcome::Stay;
        };
        KeyOutcome::Ask(Change::Flip(FlipAction {
            session: self.session.clone(),
            leaf,
            run: Some(run.id.clone()),
            redo,
        }))
    }
}

/// A hit of a search.
#[derive(Clone, Debug)]
pub struct Hit {
    pub session: SessionId,
    pub loop_id: LoopId,
    pub turn: Option<u32>,
    /// The author, the time, and the block that covers the message.
    pub about: String,
    /// True if the context does not contain the message.
    pub hidden: bool,
    pub snippet: Snippet,
}

/// The hits of a search, in the order of the ranking.
#[derive(Debug)]
pub struct Hits {
    pub session: Option<SessionId>,
    pub query: String,
    pub rows: Vec<Hit>,
    /// The offset of the next page; `None` after the last page.
    pub next: Option<usize>,
    pub cursor: Cursor,
}

impl Hits {
    pub fn new(session: Option<SessionId>, query: String) -> Self {
        Self {
            session,
            query,
            rows: Vec::new(),
            next: Some(0),
            cursor: Cursor::default(),
        }
    }

    /// Returns the number of visible hits, which take two rows each.
    pub fn height(room: ScreenSize) -> usize {
        (room.height.saturating_sub(1) / 2).max(1)
    }

    pub fn arrange(&mut self, room: ScreenSize) {
        self.cursor.clamp(self.rows.len(), Self::height(room));
    }

    /// Returns a request for more hits if the last one is selected.
    pub fn next_request(&self) -> Option<ContentRequest> {
        let offset = self
            .next
            .filter(|_| self.cursor.at + 1 >= self.rows.len())?;
        Some(ContentRequest::Search {
            session: self.session.clone(),
            query: self.query.clone(),
            offset,
        })
    }

    pub fn add_page(&mut self, hits: Vec<Hit>, next: Option<usize>) {
        // Otherwise a page without hits would be requested forever.
        self.next = next.filter(|_| !hits.is_empty());
        self.rows.extend(hits);
    }

    pub fn press(&mut self, key: KeyPress, room: ScreenSize) -> KeyOutcome {
        match key {
            KeyPress::Enter | KeyPress::Right | KeyPress::Char('l') => {
                match self.rows.get(self.cursor.at) {
                    Some(hit) => {
                        let place = (hit.loop_id.clone(), hit.turn.unwrap_or(0));
                        KeyOutcome::Open(InSession::screen(hit.session.clone(), Some(place)))
                    }
                    None => KeyOutcome::Stay,
                }
            }
            _ if self.cursor.press(key, self.rows.len(), Self::height(room)) => KeyOutcome::Stay,
            _ => KeyOutcome::Unknown,
        }
    }
}
