//! A turn as recorded, next to its form in the context.

use loopstore::context::TurnState;
use loopstore::{LoopId, SessionId};

use super::cursor::Pane;
use super::session::LoopItem;
use super::state::{ContentRequest, KeyOutcome, KeyPress, ScreenSize};

/// A turn in both forms.
#[derive(Clone, Debug)]
pub struct TurnText {
    /// The state of the turn in the context; `None` if the context does not contain the turn.
    pub state: Option<TurnState>,
    /// The block that covers the turn.
    pub about: String,
    /// The text in the context, if it differs from the recorded turn.
    pub shown: Option<Pane>,
    pub originals: Pane,
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
        }
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
        }
    }
}
