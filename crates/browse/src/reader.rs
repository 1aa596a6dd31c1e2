//! A turn as recorded, next to its form in the context.

use loopstore::context::TurnState;
use loopstore::{LoopId, SessionId};

use super::cursor::Pane;
use super::session::LoopItem;
use super::state::{
    AskedEdit, Change, ContentRequest, EditKind, FlipAction, KeyOutcome, KeyPress, ScreenSize,
};

/// A turn in both forms.
#[derive(Clone, Debug)]
pub struct TurnText {
    /// The state of the turn in the context; `None` if the context does not contain the turn.
    pub state: Option<TurnState>,
    /// The block that covers the turn, or the runs that edited it.
    pub about: String,
    /// The text in the context, if it differs from the recorded turn.
    pub shown: Option<Pane>,
    pub originals: Pane,
    /// The messages of the originals in order.
    pub messages: Vec<MessagePlace>,
}

/// A message of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePlace {
    pub seq: u32,
    /// The role, as the originals show it.
    pub role: String,
    /// The part of the pane of the originals that begins the message.
    pub part: usize,
}

/// The reader.
#[derive(Debug)]
pub struct TextReader {
    pub session: SessionId,
    /// The loop whose context is shown.
    pub leaf: LoopId,
    pub loop_id: LoopId,
    pub turn: u32,
    /// The number of turns of the loop.
    pub turns: u32,
    /// `None` until read.
    pub turn_text: Option<TurnText>,
    /// True if the keys scroll the originals.
    pub in_originals: bool,
    /// The sequence of the selected message; `None` if the turn is selected.
    pub message: Option<u32>,
}

impl TextReader {
    pub fn new(session: SessionId, leaf: LoopId, line: &LoopItem, turn: u32) -> Self {
        Self {
            session,
            leaf,
            loop_id: line.id.clone(),
            turn,
            turns: line.turns,
            turn_text: None,
            in_originals: false,
            message: None,
        }
    }

    /// Returns the selected message.
    pub fn chosen(&self) -> Option<&MessagePlace> {
        let messages = &self.turn_text.as_ref()?.messages;
        messages
            .iter()
            .find(|place| Some(place.seq) == self.message)
    }

    /// Returns the columns of one pane, and its rows below two headings.
    pub fn pane(room: ScreenSize, has_two: bool) -> (usize, usize) {
        let width = match room.is_wide() && has_two {
            true => (room.width - 3) / 2,
            false => room.width,
        };
        (width, room.height.saturating_sub(2))
    }

    pub fn arrange(&mut self, room: ScreenSize) {
        let Some(turn_text) = &mut self.turn_text else {
            return;
        };
        let (width, height) = Self::pane(room, turn_text.shown.is_some());
        turn_text.originals.fit(width, height);
        turn_text
            .shown
            .iter_mut()
            .for_each(|pane| pane.fit(width, height));
    }

    pub fn next_request(&self) -> Option<ContentRequest> {
        self.turn_text.is_none().then(|| ContentRequest::Turn {
            session: self.session.clone(),
            leaf: self.leaf.clone(),
            loop_id: self.loop_id.clone(),
            turn: self.turn,
        })
    }

    pub fn press(&mut self, key: KeyPress, room: ScreenSize) -> KeyOutcome {
        match key {
            KeyPress::Tab | KeyPress::Enter => self.in_originals = !self.in_originals,
            KeyPress::Left | KeyPress::Char('h' | 'p') => self.go(self.turn.checked_sub(1)),
            KeyPress::Right | KeyPress::Char('l' | 'n') => self.go(self.turn.checked_add(1)),
            KeyPress::Char('[') => self.select(false, room),
            KeyPress::Char(']') => self.select(true, room),
            KeyPress::Char('x' | 'c' | 'b') => return self.edit(key),
            KeyPress::Char('u' | 'r') => {
                return KeyOutcome::Ask(Change::Flip(FlipAction {
                    session: self.session.clone(),
                    leaf: self.leaf.clone(),
                    run: None,
                    redo: key == KeyPress::Char('r'),
                }));
            }
            _ => {
                let Some(turn_text) = &mut self.turn_text else {
                    return KeyOutcome::Unknown;
                };
                let (_, height) = Self::pane(room, turn_text.shown.is_some());
                let pane = match &mut turn_text.shown {
                    Some(shown) if !self.in_originals => shown,
                    _ => &mut turn_text.originals,
                };
                if !pane.press(key, height) {
                    return KeyOutcome::Unknown;
                }
            }
        }
        KeyOutcome::Stay
    }

    fn go(&mut self, turn: Option<u32>) {
        if let Some(turn) = turn.filter(|turn| *turn < self.turns) {
            (self.turn, self.turn_text) = (turn, None);
            self.message = None;
        }
    }

    /// Selects the next or the previous message, and scrolls the originals to it. Before the first message the turn is
    /// selected.
    fn select(&mut self, next: bool, room: ScreenSize) {
        let Some(turn_text) = &mut self.turn_text else {
            return;
        };
        let messages = &turn_text.messages;
        let at = messages
            .iter()
            .position(|place| Some(place.seq) == self.message);
        let wanted = match (at, next) {
            (None, true) => Some(0),
            (Some(at), true) => Some((at + 1).min(messages.len().saturating_sub(1))),
            (at, false) => at.and_then(|at| at.checked_sub(1)),
        };
        let wanted = wanted.and_then(|at| messages.get(at));
        self.message = wanted.map(|place| place.seq);
        let part = wanted.map_or(0, |place| place.part);
        let (_, height) = Self::pane(room, turn_text.shown.is_some());
        turn_text.originals.show_part(part, height);
    }

    /// Asks for the confirmation of an edit of the selected message, or of the turn.
    fn edit(&self, key: KeyPress) -> KeyOutcome {
        let is_read = self.turn_text.is_some();
        match EditKind::of(key).filter(|_| is_read) {
            Some(kind) => KeyOutcome::Ask(Change::Edit(AskedEdit {
                session: self.session.clone(),
                leaf: self.leaf.clone(),
                loop_id: self.loop_id.clone(),
                turn: self.turn,
                seq: self.chosen().map(|place| place.seq),
                kind,
            })),
            None => KeyOutcome::Stay,
        }
    }
}
