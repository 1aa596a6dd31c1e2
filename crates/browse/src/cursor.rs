//! Cursors of lists and texts, and the keys that move them.

use loopstore_terminal::text;

use super::state::KeyPress;

/// A position in a list: the selected row, and the first visible row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The selected row.
    pub at: usize,
    /// The first visible row.
    pub top: usize,
}

impl Cursor {
    /// Moves within `count` rows of which `height` are visible. Returns true if the key moves the cursor.
    pub fn press(&mut self, key: KeyPress, count: usize, height: usize) -> bool {
        let page = height.max(1);
        self.at = match key {
            KeyPress::Up | KeyPress::Char('k') => self.at.saturating_sub(1),
            KeyPress::Down | KeyPress::Char('j') => self.at.saturating_add(1),
            KeyPress::PageUp => self.at.saturating_sub(page),
            KeyPress::PageDown => self.at.saturating_add(page),
            KeyPress::Home | KeyPress::Char('g') => 0,
            KeyPress::End | KeyPress::Char('G') => usize::MAX,
            _ => return false,
        };
        self.clamp(count, height);
        true
    }

    /// Selects a row, and scrolls it to the middle.
    pub fn jump(&mut self, at: usize, count: usize, height: usize) {
        self.at = at;
        self.top = at.saturating_sub(height / 2);
        self.clamp(count, height);
    }

    /// Limits both positions to the list, and scrolls the selected row into view.
    pub fn clamp(&mut self, count: usize, height: usize) {
        let height = height.max(1);
        self.at = self.at.min(count.saturating_sub(1));
        self.top = self.top.min(count.saturating_sub(height)).min(self.at);
        self.top = self.top.max((self.at + 1).saturating_sub(height));
    }
}

/// The meaning of a line, which selects its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Plain text.
    #[default]
    Plain,
    /// A heading.
    Head,
    /// Kept unchanged.
    Kept,
    /// Truncated.
    Cut,
    /// Covered by a summary.
    Summary,
    /// Removed.
    Gone,
    /// Less important.
    Faint,
}

/// A text that is read line by line, wrapped to the current width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pane {
    text: Vec<(String, Tone)>,
    width: usize,
    /// The first wrapped line of each part.
    starts: Vec<usize>,
    /// The wrapped lines.
    pub lines: Vec<(String, Tone)>,
    /// The first visible line.
    pub top: usize,
}

impl Pane {
    /// Returns a pane with a text; each part may have several lines.
    pub fn new(parts: Vec<(String, Tone)>) -> Self {
        Self {
            text: parts,
            ..Self::default()
        }
    }

    /// Wraps the lines again if the width has changed.
    pub fn fit(&mut self, width: usize, height: usize) {
        if self.width != width {
            self.width = width;
            (self.lines, self.starts) = (Vec::new(), Vec::new());
            for (text, tone) in &self.text {
                self.starts.push(self.lines.len());
                let lines = text.split('\n').flat_map(|line| wrap(line, width));
                self.lines.extend(lines.map(|line| (line, *tone)));
            }
        }
        self.top = self.top.min(self.lines.len().saturating_sub(height.max(1)));
    }

    /// Scrolls to the beginning of a part.
    pub fn show_part(&mut self, part: usize, height: usize) {
        self.top = self.starts.get(part).copied().unwrap_or(self.top);
        self.fit(self.width, height);
    }

    /// Scrolls. Returns true if the key scrolls.
    pub fn press(&mut self, key: KeyPress, height: usize) -> bool {
        let page = height.max(2) - 1;
        self.top = match key {
            KeyPress::Up | KeyPress::Char('k') => self.top.saturating_sub(1),
            KeyPress::Down | KeyPress::Char('j') => self.top.saturating_add(1),
            KeyPress::PageUp => self.top.saturating_sub(page),
            KeyPress::PageDown | KeyPress::Char(' ') => self.top.saturating_add(page),
            KeyPress::Home | KeyPress::Char('g') => 0,
            KeyPress::End | KeyPress::Char('G') => usize::MAX,
            _ => return false,
        };
        self.fit(self.width, height);
        true
    }
}

/// Wraps a line into pieces of at most `width` columns, at a space if that leaves at least half a line.
fn wrap(line: &str, width: usize) -> Vec<String> {
    use unicode_width::UnicodeWidthChar;
    let width = width.max(1);
    let (mut pieces, mut piece, mut used) = (Vec::new(), String::new(), 0);
    for c in text::clean(line).replace('\t', "    ").chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns > width && !piece.is_empty() {
            let at = piece.rfind(' ').filter(|at| *at * 2 > piece.len());
            let rest = at.map_or(String::new(), |at| piece.split_off(at + 1));
            used = text::columns(&rest);
            pieces.push(std::mem::replace(&mut piece, rest));
        }
        piece.push(c);
        used += columns;
    }
    pieces.push(piece);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_stays_in_its_list_and_in_sight() {
        let mut cursor = Cursor::default();
        for (key, at, top) in [
            (KeyPress::Up, 0, 0),
            (KeyPress::PageDown, 3, 1),
            (KeyPress::End, 9, 7),
            (KeyPress::Down, 9, 7),
            (KeyPress::PageUp, 6, 6),
            (KeyPress::Char('g'), 0, 0),
        ] {
            assert!(cursor.press(key, 10, 3));
            assert_eq!((cursor.at, cursor.top), (at, top), "{key:?}");
        }
        assert!(!cursor.press(KeyPress::Tab, 10, 3));
        cursor.jump(9, 10, 4);
        cursor.clamp(2, 4);
        assert_eq!(cursor, Cursor { at: 1, top: 0 });
        cursor.press(KeyPress::End, 0, 0);
        assert_eq!(cursor, Cursor::default());
    }

    #[test]
    fn lines_break_at_spaces_and_within_long_words() {
        assert_eq!(wrap("one two three", 8), ["one two ", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("日本語", 4), ["日本", "語"]);
        assert_eq!(wrap("日本", 1), ["日", "本"]);
        assert_eq!(wrap("", 0), [""]);
        assert_eq!(wrap("a\u{1b}[31m", 20), ["a\\u{1b}[31m"]);
    }

    #[test]
    fn a_pane_keeps_its_place_when_it_becomes_larger_than_its_text() {
        let text = "one\ntwo\nthree\nfour".to_owned();
        let mut pane = Pane::new(vec![(text, Tone::Plain)]);
        pane.fit(10, 2);
        assert!(pane.press(KeyPress::End, 2));
        assert_eq!(pane.top, 2);
        pane.fit(10, 9);
        assert_eq!(pane.top, 0);
    }
}
