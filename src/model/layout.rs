//! Sections and sizes as plain values: what a plan and a strategy work with before anything is stored.

use std::ops::Range;

/// The size of a context, or of a part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Sum of the messages' counts.
    pub tokens: u64,
    /// Sum of the messages' JSON.
    pub bytes: u64,
    /// Number of messages.
    pub messages: u64,
}

impl Size {
    /// Adds `other`.
    pub fn add(&mut self, other: Self) {
        // Saturating: a damaged row must not stop the program that looks for damage.
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.messages = self.messages.saturating_add(other.messages);
    }

    /// Returns what is left when `other` is taken away.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            bytes: self.bytes.saturating_sub(other.bytes),
            messages: self.messages.saturating_sub(other.messages),
        }
    }
}

/// Turns of one loop, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Turns {
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
}

impl Turns {
    /// The turns of `range`, `None` if it is empty.
    pub fn of(range: Range<u32>) -> Option<Self> {
        (range.start < range.end).then(|| Self {
            first: range.start,
            last: range.end - 1,
        })
    }

    /// One turn.
    pub(crate) fn only(turn: u32) -> Self {
        Self {
            first: turn,
            last: turn,
        }
    }

    /// Returns the turn after the last.
    pub fn end(self) -> u32 {
        self.last.saturating_add(1)
    }

    /// Whether a turn is one of these.
    pub(crate) fn contains(self, turn: u32) -> bool {
        self.first <= turn && turn <= self.last
    }
}

/// The turns of a block's sections: they follow each other without gap or overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Kept word for word.
    pub first: Option<Turns>,
    /// Replaced.
    pub compacted: Option<Turns>,
    /// Kept, long tool outputs cut.
    pub recent: Option<Turns>,
}

impl Layout {
    /// Returns the turn after the last covered one.
    pub fn end(&self) -> u32 {
        self.recent
            .or(self.compacted)
            .or(self.first)
            .map_or(0, Turns::end)
    }

    /// Returns the sections in order; an empty one is absent.
    pub(crate) fn sections(&self) -> [Option<Turns>; 3] {
        [self.first, self.compacted, self.recent]
    }

    /// Returns which of [`Layout::sections`] holds a turn.
    #[doc(hidden)]
    pub fn section_of(&self, turn: u32) -> Option<usize> {
        let holds = |turns: Option<Turns>| turns.is_some_and(|turns| turns.contains(turn));
        self.sections().into_iter().position(holds)
    }

    /// Whether a turn is replaced.
    pub(crate) fn replaces(&self, turn: u32) -> bool {
        self.compacted.is_some_and(|turns| turns.contains(turn))
    }
}
