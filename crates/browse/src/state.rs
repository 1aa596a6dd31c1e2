//! The state of the browser: the screens and the selections.
//!
//! The state is pure: keys and content go in, and the next request comes out ([`Browser::wants`]). The screens are a
//! stack; the topmost one is shown.

use loopstore::{LoopId, SessionId};

use super::cursor::Pane;
use super::lists::{Hit, Hits, Run, Runs, SessionItem, Sessions};
use super::reader::{TextReader, TurnText};
use super::session::{InSession, LeafContext, TreeRow, TurnPage};

/// A key, independent of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPress {
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Tab,
    Escape,
    /// Backspace.
    Erase,
    /// Ctrl-C.
    Stop,
    /// Reads everything again.
    Again,
    Char(char),
}

/// A request for the missing content of a screen.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentRequest {
    /// The list of sessions.
    Sessions,
    /// The loops of a session.
    Tree(SessionId),
    /// The states of the turns of a chain.
    Seen(SessionId, LoopId),
    /// Some turns of a loop.
    Turns(SessionId, LoopId, std::ops::Range<u32>),
    /// A turn as recorded, and its form in the context of `leaf`.
    Turn {
        session: SessionId,
        leaf: LoopId,
        loop_id: LoopId,
        turn: u32,
    },
    /// The compactions and edits of a session.
    Runs(SessionId),
    /// The difference between the context of a leaf and the originals.
    Diff(SessionId, LoopId),
    /// A search for messages.
    Search {
        session: Option<SessionId>,
        query: String,
        offset: usize,
    },
    /// A change that was confirmed.
    Change(Change),
}

/// The answer to a request.
#[derive(Debug)]
pub enum ReadOutcome {
    Sessions(Vec<SessionItem>),
    /// The title with the project, the rows, and the row of the current loop.
    Tree(String, Vec<TreeRow>, usize),
    Seen(LeafContext),
    Turns(TurnPage),
    Turn(TurnText),
    Runs(Vec<Run>),
    Diff(Pane),
    /// Hits, and the offset of the next page.
    Hits(Vec<Hit>, Option<usize>),
    /// A line on a change.
    Changed(String),
}

/// A change of the context, which is made after a confirmation.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Flip(FlipAction),
    Edit(AskedEdit),
}

/// An edit of a turn or of a message, or its restore.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedEdit {
    pub session: SessionId,
    /// The leaf from which it is made.
    pub leaf: LoopId,
    pub loop_id: LoopId,
    pub turn: u32,
    /// The sequence of the message; `None` for the whole turn.
    pub seq: Option<u32>,
    pub kind: EditKind,
}

/// The kind of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditKind {
    /// Takes messages out of the context.
    Drop,
    /// Shows markers in place of long texts.
    Clear,
    /// Undoes the edits.
    Restore,
}

impl EditKind {
    /// Returns the edit that a key makes.
    pub fn of(key: KeyPress) -> Option<Self> {
        match key {
            KeyPress::Char('x') => Some(Self::Drop),
            KeyPress::Char('c') => Some(Self::Clear),
            KeyPress::Char('b') => Some(Self::Restore),
            _ => None,
        }
    }
}

/// An undo or redo.
#[derive(Clone, Debug, PartialEq)]
pub struct FlipAction {
    pub session: SessionId,
    /// The leaf from which it is made.
    pub leaf: LoopId,
    /// The run; `None` for the last one that can be flipped.
    pub run: Option<String>,
    pub redo: bool,
}

/// A screen.
#[derive(Debug)]
pub enum Screen {
    Sessions(Sessions),
    Session(Box<InSession>),
    Reader(Box<TextReader>),
    Runs(Runs),
    Diff {
        session: SessionId,
        leaf: LoopId,
        pane: Option<Pane>,
    },
    Hits(Hits),
}

/// The effect of a key.
#[derive(Debug)]
pub enum KeyOutcome {
    /// No other effect.
    Stay,
    /// The key has no meaning here.
    Unknown,
    /// Opens another screen.
    Open(Screen),
    /// Starts the input of a line.
    Type(TextEntry),
    /// Asks for the confirmation of a change.
    Ask(Change),
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq)]
pub enum TextEntry {
    /// The filter of the list of sessions.
    Filter(String),
    /// The query of a search, in one session or in all.
    Search(Option<SessionId>, String),
}

impl TextEntry {
    fn text(&mut self) -> &mut String {
        match self {
            Self::Filter(text) | Self::Search(_, text) => text,
        }
    }
}

/// The columns and rows of a screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScreenSize {
    pub width: usize,
    pub height: usize,
}

impl ScreenSize {
    /// True if there is room for two panes.
    pub fn is_wide(self) -> bool {
        self.width >= 80
    }
}

/// The whole state of the browser.
#[derive(Debug)]
pub struct Browser {
    /// The name of the database.
    pub database: String,
    pub room: ScreenSize,
    /// Never empty.
    screens: Vec<Screen>,
    pub entry: Option<TextEntry>,
    /// The change that waits for a confirmation.
    pub asked: Option<Change>,
    confirmed: Option<Change>,
    pub note: Option<String>,
    pub help: bool,
    pub is_over: bool,
}

impl Browser {
    /// Returns a browser that shows the list of sessions, or one session.
    pub fn new(database: String, session: Option<SessionId>, size: (u16, u16)) -> Self {
        let mut screens = vec![Screen::Sessions(Sessions::default())];
        screens.extend(session.map(|id| Screen::Session(Box::new(InSession::new(id, None)))));
        let mut browser = Self {
            database,
            room: ScreenSize::default(),
            screens,
            entry: None,
            asked: None,
            confirmed: None,
            note: None,
            help: false,
            is_over: false,
        };
        browser.resize(size);
        browser
    }

    /// Returns the current screen.
    pub fn screen(&self) -> Option<&Screen> {
        self.screens.last()
    }

    /// Returns the screens from the first to the current one.
    pub fn path(&self) -> impl Iterator<Item = &Screen> {
        self.screens.iter()
    }

    /// Handles a new size of the terminal.
    pub fn resize(&mut self, (width, height): (u16, u16)) {
        // The first and the last row do not belong to the screen.
        self.room = ScreenSize {
            width: usize::from(width),
            height: usize::from(height.saturating_sub(2)),
        };
        self.arrange();
    }

    fn arrange(&mut self) {
        let room = self.room;
        match self.screens.last_mut() {
            Some(Screen::Sessions(screen)) => screen.arrange(room),
            Some(Screen::Session(screen)) => screen.arrange(room),
            Some(Screen::Reader(screen)) => screen.arrange(room),
            Some(Screen::Runs(screen)) => screen.arrange(room),
            Some(Screen::Diff { pane, .. }) => {
                let fit = |pane: &mut Pane| pane.fit(room.width, room.height);
                pane.iter_mut().for_each(fit);
            }
            Some(Screen::Hits(screen)) => screen.arrange(room),
            None => {}
        }
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyPress) {
        self.note = None;
        if key == KeyPress::Stop {
            self.is_over = true;
        } else if self.help {
            self.help = false;
        } else if self.asked.is_some() {
            self.answer(key);
        } else if self.entry.is_some() {
            self.typed(key);
        } else {
            self.command(key);
        }
        self.arrange();
    }

    /// Handles the answer to a question; only `y` means yes.
    fn answer(&mut self, key: KeyPress) {
        let asked = self.asked.take();
        if matches!(key, KeyPress::Char('y' | 'Y')) {
            self.confirmed = asked;
        } else {
            self.note = Some("Nothing was changed.".into());
        }
    }

    fn typed(&mut self, key: KeyPress) {
        let Some(mut entry) = self.entry.take() else {
            return;
        };
        match key {
            KeyPress::Char(c) => entry.text().push(c),
            KeyPress::Erase => {
                entry.text().pop();
            }
            KeyPress::Enter => return self.entered(entry),
            KeyPress::Escape => {
                entry.text().clear();
                self.filter(&entry);
                return;
            }
            _ => {}
        }
        self.filter(&entry);
        self.entry = Some(entry);
    }

    /// Applies a filter while it is typed.
    fn filter(&mut self, entry: &TextEntry) {
        if let (TextEntry::Filter(text), Some(Screen::Sessions(screen))) =
            (entry, self.screens.last_mut())
        {
            screen.filter(text);
        }
    }

    fn entered(&mut self, entry: TextEntry) {
        if let TextEntry::Search(session, query) = entry
            && !query.trim().is_empty()
        {
            self.screens.push(Screen::Hits(Hits::new(session, query)));
        }
    }

    fn command(&mut self, key: KeyPress) {
        let step = match self.screens.last_mut() {
            Some(Screen::Sessions(screen)) => screen.press(key, self.room),
            Some(Screen::Session(screen)) => screen.press(key, self.room),
            Some(Screen::Reader(screen)) => screen.press(key, self.room),
            Some(Screen::Runs(screen)) => screen.press(key, self.room),
            Some(Screen::Diff { pane, .. }) => {
                let height = self.room.height;
                match pane.as_mut().is_some_and(|pane| pane.press(key, height)) {
                    true => KeyOutcome::Stay,
                    false => KeyOutcome::Unknown,
                }
            }
            Some(Screen::Hits(screen)) => screen.press(key, self.room),
            None => KeyOutcome::Unknown,
        };
        match step {
            KeyOutcome::Stay => {}
            KeyOutcome::Open(screen) => self.screens.push(screen),
            KeyOutcome::Type(entry) => self.entry = Some(entry),
            KeyOutcome::Ask(change) => self.asked = Some(change),
            KeyOutcome::Unknown => self.elsewhere(key),
        }
    }

    /// Handles keys that mean the same on every screen.
    fn elsewhere(&mut self, key: KeyPress) {
        match key {
            KeyPress::Char('?') => self.help = true,
            KeyPress::Char('s') => {
                self.entry = Some(TextEntry::Search(self.session(), String::new()));
            }
            KeyPress::Again => self.renew(),
            KeyPress::Char('q') if self.screens.len() == 1 => self.is_over = true,
            KeyPress::Escape if self.screens.len() == 1 => self.note = Some("q quits.".into()),
            KeyPress::Char('q') | KeyPress::Escape | KeyPress::Left if self.screens.len() > 1 => {
                self.screens.pop();
            }
            _ => {}
        }
    }

    /// Returns the session of the current screen, if it has one.
    fn session(&self) -> Option<SessionId> {
        match self.screens.last()? {
            Screen::Sessions(_) => None,
            Screen::Session(screen) => Some(screen.session.clone()),
            Screen::Reader(screen) => Some(screen.session.clone()),
            Screen::Runs(screen) => Some(screen.session.clone()),
            Screen::Diff { session, .. } => Some(session.clone()),
            Screen::Hits(screen) => screen.session.clone(),
        }
    }

    /// Returns the next request, if any.
    pub fn next_request(&self) -> Option<ContentRequest> {
        if let Some(change) = &self.confirmed {
            return Some(ContentRequest::Change(change.clone()));
        }
        match self.screens.last()? {
            Screen::Sessions(screen) => screen.rows.is_none().then_some(ContentRequest::Sessions),
            Screen::Session(screen) => screen.next_request(self.room),
            Screen::Reader(screen) => screen.next_request(),
            Screen::Runs(screen) => {
                let want = ContentRequest::Runs(screen.session.clone());
                screen.rows.is_none().then_some(want)
            }
            Screen::Diff {
                session,
                leaf,
                pane,
            } => {
                let want = ContentRequest::Diff(session.clone(), leaf.clone());
                pane.is_none().then_some(want)
            }
            Screen::Hits(screen) => screen.next_request(),
        }
    }

    /// Handles the answer to a request.
    pub fn apply(&mut self, found: ReadOutcome) {
        match (self.screens.last_mut(), found) {
            (_, ReadOutcome::Changed(summary)) => {
                self.confirmed = None;
                self.renew();
                self.note = Some(summary);
            }
            (Some(Screen::Sessions(screen)), ReadOutcome::Sessions(rows)) => screen.set_rows(rows),
            (Some(Screen::Session(screen)), ReadOutcome::Tree(title, rows, current)) => {
                screen.take_tree(title, rows, current, self.room);
            }
            (Some(Screen::Session(screen)), ReadOutcome::Seen(seen)) => screen.seen = Some(seen),
            (Some(Screen::Session(screen)), ReadOutcome::Turns(page)) => screen.page = Some(page),
            (Some(Screen::Reader(screen)), ReadOutcome::Turn(turn_text)) => {
                screen.turn_text = Some(turn_text);
            }
            (Some(Screen::Runs(screen)), ReadOutcome::Runs(rows)) => screen.rows = Some(rows),
            (Some(Screen::Diff { pane, .. }), ReadOutcome::Diff(read)) => *pane = Some(read),
            (Some(Screen::Hits(screen)), ReadOutcome::Hits(hits, next)) => {
                screen.add_page(hits, next);
            }
            _ => {}
        }
        self.arrange();
    }

    /// Shows the error of a read that failed. The read is not repeated.
    pub fn fail(&mut self, why: String) {
        self.note = Some(why);
        if self.confirmed.take().is_some() {
            return;
        }
        let stays = match self.screens.last_mut() {
            Some(Screen::Sessions(screen)) => {
                screen.set_rows(Vec::new());
                true
            }
            Some(Screen::Session(screen)) => screen.fail(self.room),
            _ => false,
        };
        if !stays {
            self.screens.pop();
        }
        self.arrange();
    }

    /// Requests everything again.
    fn renew(&mut self) {
        for screen in &mut self.screens {
            match screen {
                Screen::Sessions(screen) => screen.rows = None,
                Screen::Session(screen) => screen.renew(),
                Screen::Reader(screen) => screen.turn_text = None,
                Screen::Runs(screen) => screen.rows = None,
                Screen::Diff { pane, .. } => *pane = None,
                Screen::Hits(_) => {}
            }
        }
    }
}
