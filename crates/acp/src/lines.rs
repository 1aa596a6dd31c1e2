//! Lines of a stream that arrives in pieces.

use memchr::memchr;

/// The longest line that is read.
pub(crate) const MAX_LINE: usize = 64 << 20;

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line without its end.
    Whole(&'a [u8]),
    /// A line that is longer than [`MAX_LINE`], or of which bytes are missing.
    Skipped(SkippedLine),
}

/// The reason that a line is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkippedLine {
    TooLong,
    Incomplete,
}

/// Collects the lines of one stream.
#[derive(Default)]
pub(crate) struct LineReader {
    held: Vec<u8>,
    skips: Option<SkippedLine>,
}

impl LineReader {
    /// Adds bytes, and calls `each` with each line that they end.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(at) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..at], &bytes[at + 1..]);
            self.end_line(line, &mut each);
            bytes = rest;
        }
        self.hold(bytes);
    }

    /// Marks bytes of the stream as missing.
    pub fn skip(&mut self) {
        self.held = Vec::new();
        self.skips = Some(SkippedLine::Incomplete);
    }

    /// Ends the stream: its last line may have no end.
    pub fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.held.is_empty() || self.skips.is_some() {
            self.end_line(&[], &mut each);
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.skips.is_some() {
            return;
        }
        if self.held.len() + bytes.len() > MAX_LINE {
            self.held = Vec::new();
            self.skips = Some(SkippedLine::TooLong);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self, last: &[u8], each: &mut impl FnMut(Line<'_>)) {
        if self.held.is_empty() && self.skips.is_none() && last.len() <= MAX_LINE {
            each(Line::Whole(last));
            return;
        }
        self.hold(last);
        match self.skips.take() {
            Some(skipped) => each(Line::Skipped(skipped)),
            None => each(Line::Whole(&self.held)),
        }
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = LineReader::default();
        let mut found = Vec::new();
        let mut each = |line: Line<'_>| {
            found.push(match line {
                Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
                Line::Skipped(why) => format!("{why:?}"),
            });
        };
        for piece in pieces {
            match piece {
                [0] => reader.skip(),
                _ => reader.feed(piece, &mut each),
            }
        }
        reader.finish(&mut each);
        found
    }

    #[test]
    fn lines_are_whole_wherever_the_stream_is_cut() {
        assert_eq!(lines(&[b"ab\ncd\n", b"ef"]), ["ab", "cd", "ef"]);
        assert_eq!(lines(&[b"a", b"b", b"\n\nc\n"]), ["ab", "", "c"]);
        assert_eq!(lines(&[]), [""; 0]);
    }

    #[test]
    fn a_line_with_a_gap_and_a_giant_line_are_skipped_and_the_next_one_is_read() {
        let gap: &[u8] = &[0];
        assert_eq!(lines(&[b"ab", gap, b"cd\nef\n"]), ["Incomplete", "ef"]);
        assert_eq!(lines(&[b"ab\n", gap]), ["ab", "Incomplete"]);
        let giant = vec![b'x'; MAX_LINE / 2 + 1];
        assert_eq!(lines(&[&giant, &giant, b"y\nz\n"]), ["TooLong", "z"]);
    }
}
