//! Sections and sizes as plain values, for plans and strategies.

use std::ops::Range;

/// The size of a context, or of a part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The sum of the messages' tokens.
    pub tokens: u64,
    /// The sum of the messages' bytes of JSON.
    pub bytes: u64,
    /// The number of messages.
    pub messages: u64,
}

impl Size {
    /// Adds `other` to this size.
    pub fn add(&mut self, other: Self) {
        // Saturating: a damaged row must not stop `verify`.
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.messages = self.messages.saturating_add(other.messages);
    }

    /// Returns this size less `other`; each number is at least 0.
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
    /// The first turn.
    pub first: u32,
    /// The last turn.
    pub last: u32,
}

impl Turns {
    /// Returns the turns of `range`; `None` if it is empty.
    pub fn of(range: Range<u32>) -> Option<Self> {
        (range.start < range.end).then(|| Self {
            first: range.start,
            last: range.end - 1,
        })
    }

    /// Returns a range of one turn.
    #[doc(hidden)]
    pub fn only(turn: u32) -> Self {
        Self {
            first: turn,
            last: turn,
        }
    }

    /// Returns the turn after the last.
    pub fn end(self) -> u32 {
        self.last.saturating_add(1)
    }

    /// True if the range contains a turn.
    #[doc(hidden)]
    pub fn contains(self, turn: u32) -> bool {
        self.first <= turn && turn <= self.last
    }
}

/// The turns of a block's sections, which follow each other without gap or overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Turns at the start, kept unchanged.
    pub first: Option<Turns>,
    /// Turns replaced by a summary.
    pub compacted: Option<Turns>,
    /// Turns at the end, kept with long tool outputs cut.
    pub recent: Option<Turns>,
}

impl Layout {
    /// Returns the number of the turn after the last covered turn.
    pub fn end(&self) -> u32 {
        self.recent
            .or(self.compacted)
            .or(self.first)
            .map_or(0, Turns::end)
    }

    /// Returns the sections in order; an empty one is absent.
    #[doc(hidden)]
    pub fn sections(&self) -> [Option<Turns>; 3] {
        [self.first, self.compacted, self.recent]
    }

    /// Returns the index in [`Layout::sections`] of the section with a turn.
    #[doc(hidden)]
    pub fn section_of(&self, turn: u32) -> Option<usize> {
        let holds = |turns: Option<Turns>| turns.is_some_and(|turns| turns.contains(turn));
        self.sections().into_iter().position(holds)
    }

    /// True if a turn is replaced.
    #[doc(hidden)]
    pub fn replaces(&self, turn: u32) -> bool {
        self.compacted.is_some_and(|turns| turns.contains(turn))
    }
}
