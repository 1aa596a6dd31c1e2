//! A file as a series of JSON values: the elements of its lists, or one value after another.
//!
//! Values are delimited by their brackets alone. An invalid value therefore affects no other value, a value that is too
//! long is never held in memory, and only one value is in memory at a time.

use std::collections::VecDeque;
use std::io::{self, SeekFrom};
use std::path::Path;

use super::fields::Fields;
use super::glued::is_glued;
use super::lines::{CUT_BEFORE_RECORD, LinePart, ValueReader};
use super::{ImportError, MAX_RECORD_BYTES, ReadSeek, Sink, Source, unread};

/// One value, or the reason why it cannot be used.
pub(super) struct StreamItem {
    /// The line on which the value begins, from 1.
    pub(super) line: u64,
    /// The number of the outermost list of the file that the value belongs to.
    pub(super) list: Option<u64>,
    /// The text of the value.
    pub(super) text: Result<String, &'static str>,
}

/// Reads a file value by value.
pub(super) struct JsonStream<'a> {
    path: &'a Path,
    reader: &'a mut dyn ReadSeek,
    line: u64,
    list: Option<u64>,
    lists: u64,
    queue: VecDeque<StreamItem>,
}

/// Follows brackets and quotes.
#[derive(Default)]
struct BracketScan {
    depth: u64,
    in_string: bool,
    escaped: bool,
}

impl BracketScan {
    /// Returns the offset at which the value ends, if it ends in `bytes`.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            if self.in_string {
                self.in_string = self.escaped || *byte != b'"';
                self.escaped = *byte == b'\\' && !self.escaped;
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    _ => continue,
                }
            }
            if self.depth == 0 && !self.in_string {
                return Some(at + 1);
            }
        }
        None
    }
}

impl<'a> JsonStream<'a> {
    /// Returns a stream at the start of the file.
    pub(super) fn new(source: &'a mut Source<'_>) -> Result<Self, ImportError> {
        let Source { path, reader } = source;
        let failed = unread(path);
        reader.seek(SeekFrom::Start(0)).map_err(failed)?;
        let head = reader.fill_buf().map_err(failed)?;
        if head.starts_with(b"\xEF\xBB\xBF") {
            reader.consume(3);
        }
        Ok(Self {
            path,
            reader: *reader,
            line: 1,
            list: None,
            lists: 0,
            queue: VecDeque::new(),
        })
    }

    /// Returns the next value.
    pub(super) fn next(&mut self) -> Result<Option<StreamItem>, ImportError> {
        if let Some(piece) = self.queue.pop_front() {
            return Ok(Some(piece));
        }
        self.read_next().map_err(unread(self.path))
    }

    fn fill(&mut self) -> io::Result<&[u8]> {
        while let Err(error) = self.reader.fill_buf() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        self.reader.fill_buf()
    }

    fn skip_byte(&mut self, byte: u8) {
        self.line += u64::from(byte == b'\n');
        self.reader.consume(1);
    }

    fn read_next(&mut self) -> io::Result<Option<StreamItem>> {
        while let Some(byte) = self.fill()?.first().copied() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b',' => self.skip_byte(byte),
                b'[' if self.list.is_none() => {
                    self.list = Some(self.lists);
                    self.lists += 1;
                    self.skip_byte(byte);
                }
                b']' if self.list.is_some() => {
                    self.list = None;
                    self.skip_byte(byte);
                }
                b'{' | b'[' | b'"' => return self.value().map(Some),
                _ => return self.word().map(Some),
            }
        }
        let unclosed = self.list.take();
        Ok(unclosed.map(|list| self.piece(self.line, Some(list), Err("the list is cut off"))))
    }

    fn piece(
        &self,
        line: u64,
        list: Option<u64>,
        text: Result<String, &'static str>,
    ) -> StreamItem {
        StreamItem { line, list, text }
    }

    fn value(&mut self) -> io::Result<StreamItem> {
        // A document is not a record: the limit applies to each of its messages.
        let limit = if self.list.is_some() {
            MAX_RECORD_BYTES
        } else {
            usize::MAX
        };
        let (line, list) = (self.line, self.list);
        let (mut scan, mut bytes, mut too_long) = (BracketScan::default(), Vec::new(), false);
        loop {
            let chunk = self.fill()?;
            if chunk.is_empty() {
                return self.cut_off(line, &bytes);
            }
            let end = scan.end(chunk);
            let taken = end.unwrap_or(chunk.len());
            too_long |= bytes.len() + taken > limit;
            match too_long {
                true => bytes = Vec::new(),
                false => bytes.extend_from_slice(&chunk[..taken]),
            }
            let lines = chunk[..taken].iter().filter(|byte| **byte == b'\n').count();
            self.line += lines as u64;
            self.reader.consume(taken);
            if end.is_some() {
                break;
            }
        }
        if list.is_none() && is_garbled(&bytes) {
            self.read_line_end(&mut bytes)?;
            if let Some(first) = self.as_lines(line, &bytes)? {
                return Ok(first);
            }
        }
        let text = match too_long {
            true => Err("longer than 64 MiB"),
            false => String::from_utf8(bytes).map_err(|_| "not UTF-8 text"),
        };
        Ok(self.piece(line, list, text))
    }

    /// Reads the rest of a line.
    fn read_line_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        while let chunk = self.fill()?
            && !chunk.is_empty()
        {
            let end = memchr::memchr(b'\n', chunk);
            let taken = end.unwrap_or(chunk.len());
            bytes.extend_from_slice(&chunk[..taken]);
            self.reader.consume(taken);
            if end.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the bytes of a truncated value as lines of JSON, if they are lines: the values after the truncated one are
    /// whole. Returns the first value and queues the others.
    fn as_lines(&mut self, line: u64, bytes: &[u8]) -> io::Result<Option<StreamItem>> {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let is_whole = |line: &[u8]| {
            line.starts_with(b"{") && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
        };
        let is_glued = lines.next().is_some_and(is_glued);
        if !is_glued && !lines.any(is_whole) {
            return Ok(None);
        }
        let mut bytes = io::Cursor::new(bytes);
        let mut values = ValueReader::new(&mut bytes)?;
        while let Some((place, found)) = values.next()? {
            let text = match found {
                LinePart::Value(text) => Ok(text.to_owned()),
                LinePart::Unreadable { reason, .. } if reason == CUT_BEFORE_RECORD => {
                    Err(CUT_BEFORE_RECORD)
                }
                LinePart::Unreadable { .. } => Err("cut off"),
            };
            self.queue.push_back(StreamItem {
                line: line + place.line - 1,
                list: None,
                text,
            });
        }
        Ok(self.queue.pop_front())
    }

    /// Returns the item for a file that ends within a value.
    fn cut_off(&mut self, line: u64, bytes: &[u8]) -> io::Result<StreamItem> {
        let list = self.list.take();
        let lines = match list {
            Some(_) => None,
            None => self.as_lines(line, bytes)?,
        };
        Ok(lines.unwrap_or_else(|| self.piece(line, list, Err("cut off"))))
    }

    /// Reads a value that is neither an object nor a list nor a string.
    fn word(&mut self) -> io::Result<StreamItem> {
        let (line, list, mut bytes) = (self.line, self.list, Vec::new());
        while let Some(byte) = self.fill()?.first().copied() {
            let ends = byte.is_ascii_whitespace() || b",[]{}\"".contains(&byte);
            if ends && !bytes.is_empty() {
                break;
            }
            if bytes.len() < 100 {
                bytes.push(byte);
            }
            self.skip_byte(byte);
        }
        let text = String::from_utf8(bytes).map_err(|_| "not UTF-8 text");
        Ok(self.piece(line, list, text))
    }
}

/// True if a value spans several lines, one of which begins like a record, and is not valid JSON: a record was
/// truncated within a string, so that the following records were read as its rest.
fn is_garbled(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"\n{").is_some()
        && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err()
}

/// Consecutive values of one list, in a file without a document around them.
pub(super) struct LooseItems<T> {
    list: Option<u64>,
    items: Vec<T>,
}

impl<T> LooseItems<T> {
    pub(super) fn new() -> Self {
        Self {
            list: None,
            items: Vec::new(),
        }
    }

    /// Adds a value of a list. If `list` differs from the list before, returns the values of that list.
    pub(super) fn add(&mut self, list: Option<u64>, item: T) -> Option<Vec<T>> {
        let ended = match self.list == list {
            true => None,
            false => self.take(),
        };
        self.list = list;
        self.items.push(item);
        ended
    }

    /// Removes and returns the values, if there are any.
    pub(super) fn take(&mut self) -> Option<Vec<T>> {
        (!self.items.is_empty()).then(|| std::mem::take(&mut self.items))
    }
}

/// An object of a file.
pub(super) struct JsonDocument<'a> {
    pub(super) text: &'a str,
    pub(super) fields: Fields<'a>,
    /// The line on which the object begins, from 1.
    pub(super) line: u64,
    /// The number of the object among the values of the file, from 0.
    pub(super) nth: u64,
}

/// Calls `read` with each object of a file and reports all other values. Returns true if `read` found a conversation in
/// any object.
pub(super) fn documents(
    source: &mut Source<'_>,
    sink: &mut dyn Sink,
    read: &mut dyn FnMut(JsonDocument<'_>, &mut dyn Sink) -> Result<bool, ImportError>,
) -> Result<bool, ImportError> {
    let (mut any, mut nth) = (false, 0);
    let mut stream = JsonStream::new(source)?;
    while let Some(item) = stream.next()? {
        let line = item.line;
        let text = item.text.map_err(str::to_owned);
        let document = text.as_ref().map_err(String::clone).and_then(|text| {
            let fields = Fields::parse(text)?;
            Ok(JsonDocument {
                text,
                fields,
                line,
                nth,
            })
        });
        match document {
            Ok(document) => any |= read(document, sink)?,
            Err(reason) => sink.skip(Some(line), reason),
        }
        nth += 1;
    }
    Ok(any)
}

/// Finds the line of the file on which a part of a value begins.
pub(super) struct LineCounter<'a> {
    text: &'a str,
    /// The line on which the value begins.
    pub(super) first: u64,
    /// The offset of the last lookup: parts are mostly looked up in order.
    at: usize,
    line: u64,
}

impl<'a> LineCounter<'a> {
    /// Counts the lines of `text`, which begins on line `first`.
    pub(super) fn new(text: &'a str, first: u64) -> Self {
        Self {
            text,
            first,
            at: 0,
            line: first,
        }
    }

    /// Returns the line on which `part`, a slice of the text, begins.
    pub(super) fn of(&mut self, part: &str) -> u64 {
        let at = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        if at < self.at {
            (self.at, self.line) = (0, self.first);
        }
        let between = self.text.as_bytes().get(self.at..at).unwrap_or_default();
        self.line += between.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.at = at;
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    type LinePart = (u64, Option<u64>, Result<String, &'static str>);

    fn pieces(bytes: &[u8], buffer: usize) -> Vec<LinePart> {
        let mut reader = BufReader::with_capacity(buffer, Cursor::new(bytes));
        let mut source = Source {
            path: Path::new("x"),
            reader: &mut reader,
        };
        let mut pieces = JsonStream::new(&mut source).unwrap();
        let mut found = Vec::new();
        while let Some(piece) = pieces.next().unwrap() {
            found.push((piece.line, piece.list, piece.text));
        }
        found
    }

    fn ok(line: u64, list: Option<u64>, text: &str) -> LinePart {
        (line, list, Ok(text.into()))
    }

    #[test]
    fn lists_lines_and_glued_values_come_apart() {
        let text = b"\xEF\xBB\xBF\n[{\"a\":\"]}\\\"\"},\n [1], x]\n{}{\"b\":[\n]}\n[\"\\\\\"]";
        for buffer in [3, 4, 1000] {
            assert_eq!(
                pieces(text, buffer),
                [
                    ok(2, Some(0), "{\"a\":\"]}\\\"\"}"),
                    ok(3, Some(0), "[1]"),
                    ok(3, Some(0), "x"),
                    ok(4, None, "{}"),
                    ok(4, None, "{\"b\":[\n]}"),
                    ok(6, Some(1), "\"\\\\\""),
                ]
            );
        }
    }

    #[test]
    fn what_is_cut_off_is_said() {
        assert_eq!(
            pieces(b"[{},", 9),
            [
                ok(1, Some(0), "{}"),
                (1, Some(0), Err("the list is cut off"))
            ]
        );
        assert_eq!(pieces(b"[{}, {", 9)[1], (1, Some(0), Err("cut off")));
        let lines = pieces(b"{\"a\":\"x\n{\"b\":2}\n{\"c\n", 9);
        assert_eq!(
            lines,
            [
                (1, None, Err("cut off")),
                ok(2, None, "{\"b\":2}"),
                (3, None, Err("cut off"))
            ]
        );
        assert_eq!(pieces(b"", 9), []);
        assert_eq!(pieces(b"}", 9), [ok(1, None, "}")]);
    }

    #[test]
    fn a_line_that_is_cut_off_does_not_take_along_what_follows() {
        let lines = pieces(b"{\"a\":\"x}\n{\"b\":\"y}z\"}\n{\"c\":[3]}\n{\"d\":4}\n", 9);
        assert_eq!(
            lines,
            [
                (1, None, Err("cut off")),
                ok(2, None, "{\"b\":\"y}z\"}"),
                ok(3, None, "{\"c\":[3]}"),
                ok(4, None, "{\"d\":4}"),
            ]
        );
        let glued = pieces(b"{\"a\":\"x{\"b\":\"y\"}\n{\"c\":3}", 9);
        assert_eq!(
            glued,
            [
                (1, None, Err(CUT_BEFORE_RECORD)),
                ok(1, None, "{\"b\":\"y\"}"),
                ok(2, None, "{\"c\":3}"),
            ]
        );
    }

    #[test]
    fn invalid_utf8_is_named() {
        assert_eq!(
            pieces(b"[\"\xE9\"]", 9),
            [(1, Some(0), Err("not UTF-8 text"))]
        );
    }

    #[test]
    fn nesting_needs_no_stack() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(
            pieces(format!("{{\"a\":{deep}}}").as_bytes(), 8192).len(),
            1
        );
    }
}
