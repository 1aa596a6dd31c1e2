//! Reads JSON Lines as tools really write them.
//!
//! A line is a stream of JSON values: it may contain several records. Blank lines count but contain no value. A value
//! that cannot be read is reported with its location, and reading continues after it; a record that follows a truncated
//! one on the same line is found ([`glued`]). A line over the limit is skipped without being held in memory.

use std::io;

use loopstore::model::MAX_JSON_DEPTH;
use memchr::{memchr, memchr2};

use super::glued::{Shapes, behind_cut};
use super::{MAX_RECORD_BYTES, ReadSeek};

/// The location of a record in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceLocation {
    /// The line, from 1.
    pub(crate) line: u64,
    /// The first byte.
    pub(crate) offset: u64,
    /// The number of bytes.
    pub(crate) len: usize,
}

/// The kind of a stretch of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinePart<'a> {
    /// One JSON value that is valid and not nested too deep.
    Value(&'a str),
    /// The rest of the line, which cannot be used, or a value that nests too deep.
    Unreadable {
        /// The bytes; empty if there are too many to hold.
        bytes: &'a [u8],
        /// The cause.
        reason: String,
        /// True if the file ends here: the writer may not have finished the line.
        cut: bool,
    },
}

/// Reads the values of a file one by one.
pub(crate) struct ValueReader<'a> {
    reader: &'a mut dyn ReadSeek,
    line: Vec<u8>,
    number: u64,
    /// The offset of `line` in the file.
    start: u64,
    /// The offset of the next line.
    next: u64,
    /// The number of bytes of `line` that were returned.
    cursor: usize,
    ended: bool,
    limit: usize,
    depth: usize,
    /// The keys of the records of the file, read when first needed.
    shapes: Option<Shapes>,
}

impl<'a> ValueReader<'a> {
    /// Returns a reader at the beginning of `reader`.
    pub(crate) fn new(reader: &'a mut dyn ReadSeek) -> io::Result<Self> {
        reader.rewind()?;
        Ok(Self {
            reader,
            line: Vec::new(),
            number: 0,
            start: 0,
            next: 0,
            cursor: 0,
            ended: false,
            limit: MAX_RECORD_BYTES,
            depth: MAX_JSON_DEPTH,
            shapes: None,
        })
    }

    /// Sets the maximum length of a line, in bytes, and the maximum depth of a value.
    pub(crate) fn with_limits(mut self, bytes: usize, depth: usize) -> Self {
        self.limit = bytes;
        self.depth = depth;
        self
    }

    #[cfg(test)]
    fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Returns the next value, `None` at the end of the file.
    pub(crate) fn next(&mut self) -> io::Result<Option<(SourceLocation, LinePart<'_>)>> {
        Ok(match self.find()? {
            ReadLine::Line => Some(self.value()?),
            ReadLine::TooLong => Some(self.too_long()),
            ReadLine::End => None,
        })
    }

    /// Returns the result of `read` for the next line, `None` at the end of the file. `read` must fail on a text that
    /// is not one JSON value; then the line is returned as by [`ValueReader::next`]. So a valid line is parsed only
    /// once.
    pub(crate) fn next_as<T, E>(
        &mut self,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> io::Result<Option<(SourceLocation, Result<T, LinePart<'_>>)>> {
        Ok(match self.find()? {
            ReadLine::Line => Some(match self.whole(read) {
                Some((place, made)) => (place, Ok(made)),
                None => {
                    let (place, found) = self.value()?;
                    (place, Err(found))
                }
            }),
            ReadLine::TooLong => {
                let (place, found) = self.too_long();
                Some((place, Err(found)))
            }
            ReadLine::End => None,
        })
    }

    /// Seeks to a location.
    fn find(&mut self) -> io::Result<ReadLine> {
        while self.rest().iter().all(u8::is_ascii_whitespace) {
            match self.read_line()? {
                ReadLine::Line => {}
                other => return Ok(other),
            }
        }
        Ok(ReadLine::Line)
    }

    fn too_long(&self) -> (SourceLocation, LinePart<'_>) {
        let place = SourceLocation {
            line: self.number,
            offset: self.start,
            len: 0,
        };
        let found = LinePart::Unreadable {
            bytes: &[],
            reason: format!("longer than {} bytes", self.limit),
            cut: self.ended,
        };
        (place, found)
    }

    /// Returns the rest of the line as one value, if `read` accepts it.
    fn whole<T, E>(
        &mut self,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<(SourceLocation, T)> {
        let rest = std::str::from_utf8(self.rest()).ok()?;
        let text = rest.trim_ascii();
        if depth(text.as_bytes()) > self.depth {
            return None;
        }
        let made = read(text).ok()?;
        let from = self.cursor + rest.len() - rest.trim_ascii_start().len();
        let place = SourceLocation {
            line: self.number,
            offset: self.start + from as u64,
            len: text.len(),
        };
        self.cursor = self.line.len();
        Some((place, made))
    }

    fn rest(&self) -> &[u8] {
        self.line.get(self.cursor..).unwrap_or_default()
    }

    /// Returns the next value of a line that is not blank.
    fn value(&mut self) -> io::Result<(SourceLocation, LinePart<'_>)> {
        let blank = self
            .rest()
            .iter()
            .take_while(|b| b.is_ascii_whitespace())
            .count();
        let from = self.cursor + blank;
        let (to, problem) = match read_value(&self.line[from..]) {
            Ok((len, depth)) if depth <= self.depth => (from + len, None),
            Ok((len, _)) => (
                from + len,
                Some(format!("nested deeper than {} levels", self.depth)),
            ),
            Err(error) => match self.behind_cut(from, &error)? {
                Some(to) => (to, Some(CUT_BEFORE_RECORD.to_owned())),
                None => (self.line.len(), Some(error.reason())),
            },
        };
        self.cursor = to;
        let bytes = self.line[from..to].trim_ascii_end();
        let place = SourceLocation {
            line: self.number,
            offset: self.start + from as u64,
            len: bytes.len(),
        };
        let found = match (problem, std::str::from_utf8(bytes)) {
            (None, Ok(text)) => LinePart::Value(text),
            (problem, _) => {
                let reason = problem.unwrap_or_else(|| "not UTF-8".into());
                LinePart::Unreadable {
                    bytes,
                    reason,
                    cut: self.ended && to == self.line.len(),
                }
            }
        };
        Ok((place, found))
    }

    /// Returns the offset in the line of a record that follows the record truncated at `from`.
    fn behind_cut(&mut self, from: usize, error: &BadValue) -> io::Result<Option<usize>> {
        if error.is_eof && self.ended {
            // The writer may not have finished it.
            return Ok(None);
        }
        if error.is_eof && self.shapes.is_none() {
            self.shapes = Some(self.read_shapes()?);
        }
        let shapes = self.shapes.as_ref();
        let at = behind_cut(&self.line[from..], error, shapes);
        Ok(at.map(|at| from + at))
    }

    /// Reads the keys of the records at the beginning of the file.
    fn read_shapes(&mut self) -> io::Result<Shapes> {
        let here = self.reader.stream_position()?;
        self.reader.rewind()?;
        let shapes = Shapes::read(&mut *self.reader);
        self.reader.seek(io::SeekFrom::Start(here))?;
        shapes
    }

    /// Reads the next line without its line ending.
    fn read_line(&mut self) -> io::Result<ReadLine> {
        self.line.clear();
        self.cursor = 0;
        self.start = self.next;
        let mut too_long = false;
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                self.ended = true;
                break;
            }
            let end = memchr(b'\n', buffer);
            let part = &buffer[..end.unwrap_or(buffer.len())];
            too_long |= self.line.len() + part.len() > self.limit;
            if too_long {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            self.next += used as u64;
            if end.is_some() {
                break;
            }
        }
        if self.next == self.start {
            return Ok(ReadLine::End);
        }
        self.number += 1;
        if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
            self.cursor = 3;
        }
        Ok(if too_long {
            ReadLine::TooLong
        } else {
            ReadLine::Line
        })
    }
}

enum ReadLine {
    Line,
    TooLong,
    End,
}

/// The reason for a truncated record with another record after it on the line.
pub(super) const CUT_BEFORE_RECORD: &str =
    "cut off within a JSON value; the record behind it on the line is read";

/// An error: bytes do not begin with a JSON value.
pub(super) struct BadValue {
    /// True if more bytes could make the value valid.
    pub(super) is_eof: bool,
    /// The offset of the first invalid byte.
    pub(super) at: usize,
    message: String,
}

impl BadValue {
    fn reason(&self) -> String {
        match self.is_eof {
            true => "cut off within a JSON value".into(),
            false => format!("not JSON: {}", self.message),
        }
    }
}

/// Returns the length of the JSON value at the beginning of a line, and its depth.
pub(super) fn read_value(bytes: &[u8]) -> Result<(usize, usize), BadValue> {
    let mut values =
        serde_json::Deserializer::from_slice(bytes).into_iter::<&serde_json::value::RawValue>();
    match values.next() {
        Some(Ok(value)) => Ok((value.get().len(), depth(value.get().as_bytes()))),
        Some(Err(error)) => Err(BadValue {
            is_eof: error.is_eof(),
            at: error.column().saturating_sub(1),
            message: error.to_string(),
        }),
        None => Err(BadValue {
            is_eof: true,
            at: 0,
            message: String::new(),
        }),
    }
}

/// Returns the depth of valid JSON.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut at) = (0usize, 0usize, 0usize);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(json, at),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Returns the end of the string whose text begins at `at`. Strings make up most of a record.
fn string_end(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if json.get(at - 1) == Some(&b'"') {
            return at;
        }
        at += 1;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn all(bytes: &[u8], limit: usize) -> Vec<(u64, u64, String)> {
        let mut cursor = Cursor::new(bytes.to_vec());
        let mut lines = ValueReader::new(&mut cursor).unwrap().with_limit(limit);
        let mut out = Vec::new();
        while let Some((place, found)) = lines.next().unwrap() {
            let text = match found {
                LinePart::Value(text) => {
                    let from = place.offset as usize;
                    assert_eq!(&bytes[from..from + place.len], text.as_bytes());
                    text.to_owned()
                }
                LinePart::Unreadable { reason, cut, .. } => {
                    format!("!{reason}{}", if cut { " (cut)" } else { "" })
                }
            };
            out.push((place.line, place.offset, text));
        }
        out
    }

    #[test]
    fn glued_values_blank_lines_and_a_missing_newline_are_read() {
        let found = all(b"\xef\xbb\xbf{\"a\":1}{\"b\": 2} [3]\r\n\n  \n 4", 100);
        let texts: Vec<_> = found.iter().map(|(l, o, t)| (*l, *o, t.as_str())).collect();
        assert_eq!(
            texts,
            [
                (1, 3, "{\"a\":1}"),
                (1, 10, "{\"b\": 2}"),
                (1, 19, "[3]"),
                (4, 29, "4")
            ]
        );
    }

    #[test]
    fn what_cannot_be_read_is_reported_and_the_rest_goes_on() {
        let found = all(b"{\"a\":\nnonsense\n{\"a\":\"\xff\"}\n{}x\n{\"long\":\"....................\"}\n1\n{\"cut", 20);
        let texts: Vec<_> = found
            .iter()
            .map(|(l, _, t)| (*l, &t[..t.len().min(9)]))
            .collect();
        assert_eq!(
            texts,
            [
                (1, "!cut off "),
                (2, "!not JSON"),
                (3, "!not JSON"),
                (4, "{}"),
                (4, "!not JSON"),
                (5, "!longer t"),
                (6, "1"),
                (7, "!cut off ")
            ]
        );
        assert!(!found[0].2.ends_with("(cut)") && found[7].2.ends_with("(cut)"));
    }

    #[test]
    fn lines_that_read_as_one_value_come_as_that_and_others_as_always() {
        let read = |text: &str| serde_json::from_str::<Vec<u8>>(text);
        let bytes = b"\xef\xbb\xbf[1]\n  [2, 3] \r\n[4][5]\n{}\n[[]]\n[6\n[\xff]\n\n[7]";
        for limit in [100, 7] {
            let (mut plain, mut made) = (Cursor::new(bytes), Cursor::new(bytes));
            let mut plain = ValueReader::new(&mut plain).unwrap().with_limits(limit, 1);
            let mut made = ValueReader::new(&mut made).unwrap().with_limits(limit, 1);
            let mut all = Vec::new();
            while let Some((place, found)) = plain.next().unwrap() {
                let (made_place, made) = made.next_as(read).unwrap().unwrap();
                assert_eq!(made_place, place);
                match made {
                    Ok(numbers) => {
                        let text = match found {
                            LinePart::Value(text) => text,
                            LinePart::Unreadable { reason, .. } => panic!("{reason}"),
                        };
                        assert_eq!(read(text).unwrap(), numbers);
                        all.extend(numbers);
                    }
                    Err(made) => assert_eq!(made, found),
                }
            }
            assert!(made.next_as(read).unwrap().is_none());
            assert_eq!(
                all,
                if limit == 100 {
                    vec![1, 2, 3, 5, 7]
                } else {
                    vec![1, 5, 7]
                }
            );
        }
    }

    #[test]
    fn deep_nesting_is_refused_without_recursion() {
        let nested = |n: usize| format!("{}{}\n1\n", "[".repeat(n), "]".repeat(n));
        assert_eq!(
            all(nested(MAX_JSON_DEPTH).as_bytes(), 1 << 20)[0].2.len(),
            256
        );
        let deep = all(nested(100_000).as_bytes(), 1 << 20);
        assert!(deep[0].2.starts_with("!nested deeper"));
        assert_eq!(deep[1].2, "1");
        assert_eq!(depth(br#"["[[\"[", "\\", []]"#), 2);
    }
}
