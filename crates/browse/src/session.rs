//! A session: its tree of loops, and the turns of the selected loop.

use std::collections::HashMap;
use std::ops::Range;

use loopstore::context::TurnState;
use loopstore::{LoopId, SessionId};

use super::cursor::Cursor;
use super::lists::Runs;
use super::reader::TextReader;
use super::state::{
    AskedEdit, Change, ContentRequest, EditKind, FlipAction, KeyOutcome, KeyPress, Screen,
    ScreenSize,
};

/// The minimum number of turns that are read at once.
const PAGE: u32 = 100;

/// A row of the tree.
#[derive(Clone, Debug)]
pub struct TreeRow {
    /// The depth in the tree.
    pub depth: usize,
    pub what: Node,
}

/// The content of a row of the tree.
#[derive(Clone, Debug)]
pub enum Node {
    Loop(LoopItem),
    /// A session that this one started.
    Agent {
        session: SessionId,
        title: String,
    },
}

/// A loop in the tree.
#[derive(Clone, Debug)]
pub struct LoopItem {
    pub id: LoopId,
    /// The kind of the loop and the point where it begins, unless that is the end of the loop above.
    pub origin: String,
    pub status: String,
    pub turns: u32,
    pub tokens: u64,
    /// True if the loop is on the chain of the current loop.
    pub on_chain: bool,
    /// The first prompt of the loop.
    pub prompt: String,
}

/// The context of a leaf, turn by turn.
#[derive(Clone, Debug)]
pub struct LeafContext {
    pub leaf: LoopId,
    /// The tokens of the originals and of the context.
    pub tokens: Option<[u64; 2]>,
    pub loops: HashMap<LoopId, LoopSeen>,
}

/// The turns of a loop in a context.
#[derive(Clone, Debug, Default)]
pub struct LoopSeen {
    /// The number of turns up to the cut.
    pub turns: u32,
    /// The active block: `block 3`, `rollup 2`.
    pub block: Option<String>,
    /// True if a live edit changes the form of a message.
    pub is_edited: bool,
    /// The changed turns, first and last with their state; `None` if the context leaves them out.
    pub changes: Vec<(u32, u32, Option<TurnState>)>,
}

impl LeafContext {
    /// Returns the state of a turn; `None` if the context does not contain it.
    pub fn state(&self, loop_id: &LoopId, turn: u32) -> Option<TurnState> {
        let seen = self.loops.get(loop_id)?;
        let at = seen.changes.partition_point(|change| change.1 < turn);
        match seen.changes.get(at) {
            Some((first, _, state)) if *first <= turn => *state,
            _ => (turn < seen.turns).then_some(TurnState::Raw),
        }
    }
}

/// Some turns of a loop.
#[derive(Clone, Debug)]
pub struct TurnPage {
    pub loop_id: LoopId,
    pub range: Range<u32>,
    pub rows: Vec<TurnItem>,
}

/// A turn in the list.
#[derive(Clone, Debug)]
pub struct TurnItem {
    pub turn: u32,
    pub tokens: u64,
    /// The first words of the turn.
    pub text: String,
}

/// The side that the keys move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    Tree,
    Turns,
}

/// A session.
#[derive(Debug)]
pub struct InSession {
    pub session: SessionId,
    pub title: String,
    /// `None` until read.
    pub tree: Option<Vec<TreeRow>>,
    current: Option<LoopId>,
    /// The row to select once the tree is read.
    goal: Option<(LoopId, u32)>,
    pub focus: Focus,
    pub in_tree: Cursor,
    pub in_turns: Cursor,
    pub seen: Option<LeafContext>,
    pub page: Option<TurnPage>,
}

impl InSession {
    pub fn new(session: SessionId, goal: Option<(LoopId, u32)>) -> Self {
        Self {
            session,
            title: String::new(),
            tree: None,
            current: None,
            focus: match goal {
                Some(_) => Focus::Turns,
                None => Focus::Tree,
            },
            goal,
            in_tree: Cursor::default(),
            in_turns: Cursor::default(),
            seen: None,
            page: None,
        }
    }

    /// Returns the screen of a session.
    pub fn screen(session: SessionId, goal: Option<(LoopId, u32)>) -> Screen {
        Screen::Session(Box::new(Self::new(session, goal)))
    }

    /// Returns the number of rows for both lists, below two headings.
    pub fn height(room: ScreenSize) -> usize {
        room.height.saturating_sub(2)
    }

    /// Returns the selected loop.
    pub fn chosen(&self) -> Option<&LoopItem> {
        match &self.tree.as_ref()?.get(self.in_tree.at)?.what {
            Node::Loop(line) => Some(line),
            Node::Agent { .. } => None,
        }
    }

    /// Returns the loop whose context is shown: the current one if its chain contains the selected loop.
    pub fn leaf(&self) -> Option<&LoopId> {
        match self.chosen() {
            Some(line) if !line.on_chain => Some(&line.id),
            _ => self.current.as_ref(),
        }
    }

    fn turns(&self) -> usize {
        self.chosen().map_or(0, |line| line.turns as usize)
    }

    pub fn arrange(&mut self, room: ScreenSize) {
        let (height, turns) = (Self::height(room), self.turns());
        let rows = self.tree.as_ref().map_or(0, Vec::len);
        self.in_tree.clamp(rows, height);
        self.in_turns.clamp(turns, height);
    }

    /// Sets the tree, and selects the previous row, the goal, or the current loop.
    pub fn take_tree(
        &mut self,
        title: String,
        rows: Vec<TreeRow>,
        current: usize,
        room: ScreenSize,
    ) {
        let before = self.chosen().map(|line| line.id.clone());
        let id_of = |row: &TreeRow| match &row.what {
            Node::Loop(line) => Some(line.id.clone()),
            Node::Agent { .. } => None,
        };
        let goal = self.goal.take();
        let wanted = goal.as_ref().map(|(id, _)| id.clone()).or(before);
        let found =
            wanted.and_then(|id| rows.iter().position(|row| id_of(row).as_ref() == Some(&id)));
        self.title = title;
        self.current = rows.get(current).and_then(id_of);
        let count = rows.len();
        self.tree = Some(rows);
        self.in_tree
            .jump(found.unwrap_or(current), count, Self::height(room));
        if let Some((_, turn)) = goal {
            let turns = self.turns();
            self.in_turns.jump(turn as usize, turns, Self::height(room));
        }
    }

    /// Requests everything again, and keeps the selection.
    pub fn renew(&mut self) {
        if let Some(line) = self.chosen() {
            self.goal = Some((line.id.clone(), self.in_turns.at as u32));
        }
        (self.tree, self.seen, self.page) = (None, None, None);
    }

    pub fn next_request(&self, room: ScreenSize) -> Option<ContentRequest> {
        if self.tree.is_none() {
            return Some(ContentRequest::Tree(self.session.clone()));
        }
        if let Some(leaf) = self.leaf()
            && self.seen.as_ref().is_none_or(|seen| seen.leaf != *leaf)
        {
            return Some(ContentRequest::Seen(self.session.clone(), leaf.clone()));
        }
        let line = self.chosen()?;
        let wanted = self.wanted_turns(line.turns, room)?;
        Some(ContentRequest::Turns(
            self.session.clone(),
            line.id.clone(),
            wanted,
        ))
    }

    /// Returns the visible turns, if the page does not contain them all.
    fn wanted_turns(&self, turns: u32, room: ScreenSize) -> Option<Range<u32>> {
        let first = self.in_turns.top as u32;
        let last = first.saturating_add(Self::height(room) as u32).min(turns);
        let page = self.page.as_ref();
        let page = page.filter(|page| Some(&page.loop_id) == self.chosen().map(|line| &line.id));
        let is_there = page.is_some_and(|page| page.range.start <= first && last <= page.range.end);
        let end = first.saturating_add(PAGE).max(last).min(turns);
        (!is_there && first < last).then_some(first.saturating_sub(PAGE / 2)..end)
    }

    /// Treats content that could not be read as empty. Returns true if there is still something to show.
    pub fn fail(&mut self, room: ScreenSize) -> bool {
        match self.next_request(room) {
            Some(ContentRequest::Seen(_, leaf)) => {
                self.seen = Some(LeafContext {
                    leaf,
                    tokens: None,
                    loops: HashMap::new(),
                });
            }
            Some(ContentRequest::Turns(_, loop_id, range)) => {
                self.page = Some(TurnPage {
                    loop_id,
                    range,
                    rows: Vec::new(),
                });
            }
            _ => {}
        }
        self.tree.is_some()
    }

    pub fn press(&mut self, key: KeyPress, room: ScreenSize) -> KeyOutcome {
        if let Some(kind) = EditKind::of(key).filter(|_| self.focus == Focus::Turns) {
            return self.edit(kind);
        }
        match key {
            KeyPress::Tab => self.turn_to_other(),
            KeyPress::Left if self.focus == Focus::Turns => self.turn_to_other(),
            KeyPress::Enter | KeyPress::Right | KeyPress::Char('l') => return self.enter(),
            KeyPress::Char('h') => {
                return KeyOutcome::Open(Screen::Runs(Runs::new(self.session.clone())));
            }
            KeyPress::Char('d') => return self.diff(),
            KeyPress::Char('u' | 'r') => return self.flip(key == KeyPress::Char('r')),
            _ => return self.move_to(key, room),
        }
        KeyOutcome::Stay
    }

    fn turn_to_other(&mut self) {
        self.focus = match self.focus {
            Focus::Tree if self.chosen().is_some() => Focus::Turns,
            _ => Focus::Tree,
        };
    }

    fn move_to(&mut self, key: KeyPress, room: ScreenSize) -> KeyOutcome {
        let (height, turns) = (Self::height(room), self.turns());
        let rows = self.tree.as_ref().map_or(0, Vec::len);
        let before = self.in_tree.at;
        let is_known = match self.focus {
            Focus::Tree => self.in_tree.press(key, rows, height),
            Focus::Turns => self.in_turns.press(key, turns, height),
        };
        if self.in_tree.at != before {
            self.in_turns = Cursor::default();
        }
        match is_known {
            true => KeyOutcome::Stay,
            false => KeyOutcome::Unknown,
        }
    }

    fn enter(&mut self) -> KeyOutcome {
        let row = self
            .tree
            .as_ref()
            .and_then(|rows| rows.get(self.in_tree.at));
        match row.map(|row| &row.what) {
            Some(Node::Agent { session, .. }) => {
                KeyOutcome::Open(Self::screen(session.clone(), None))
            }
            Some(Node::Loop(_)) if self.focus == Focus::Tree => {
                self.focus = Focus::Turns;
                KeyOutcome::Stay
            }
            Some(Node::Loop(line)) if line.turns > 0 => match self.leaf() {
                Some(leaf) => KeyOutcome::Open(Screen::Reader(Box::new(TextReader::new(
                    self.session.clone(),
                    leaf.clone(),
                    line,
                    self.in_turns.at as u32,
                )))),
                None => KeyOutcome::Stay,
            },
            _ => KeyOutcome::Stay,
        }
    }

    fn diff(&self) -> KeyOutcome {
        match self.leaf() {
            Some(leaf) => KeyOutcome::Open(Screen::Diff {
                session: self.session.clone(),
                leaf: leaf.clone(),
                pane: None,
            }),
            None => KeyOutcome::Stay,
        }
    }

    fn flip(&self, redo: bool) -> KeyOutcome {
        match self.leaf() {
            Some(leaf) => KeyOutcome::Ask(Change::Flip(FlipAction {
                session: self.session.clone(),
                leaf: leaf.clone(),
                run: None,
                redo,
            })),
            None => KeyOutcome::Stay,
        }
    }

    /// Asks for the confirmation of an edit of the selected turn.
    fn edit(&self, kind: EditKind) -> KeyOutcome {
        let line = self.chosen().filter(|line| line.turns > 0);
        match line.zip(self.leaf()) {
            Some((line, leaf)) => KeyOutcome::Ask(Change::Edit(AskedEdit {
                session: self.session.clone(),
                leaf: leaf.clone(),
                loop_id: line.id.clone(),
                turn: self.in_turns.at as u32,
                seq: None,
                kind,
            })),
            None => KeyOutcome::Stay,
        }
    }
}
