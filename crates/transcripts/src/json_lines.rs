//! Reads JSON that arrives line by line, as from another program.

use std::io::{self, BufRead, Read};

use loopstore_decode::{decoded, repaired};

use crate::lines::{CUT_BEFORE_RECORD, LinePart, ValueReader};

/// Reads lines of JSON as imports read a transcript: in UTF-8 or UTF-16, with the same repairs.
///
/// ```
/// use loopstore_transcripts::JsonLines;
///
/// let mut lines = JsonLines::new(&b"{\"a\":\"half \\ud83d\"}\n"[..], 1 << 20);
/// let line = lines.next_line()?.unwrap();
/// assert_eq!(line.text, "{\"a\":\"half \\ufffd\"}");
/// assert_eq!(line.repairs, ["half of a surrogate pair, replaced by U+FFFD"]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct JsonLines<'a> {
    reader: LinesReader<'a>,
    number: u64,
    limit: u64,
}

enum LinesReader<'a> {
    /// Nothing has been read yet.
    New(Option<Box<dyn BufRead + 'a>>),
    Open(Box<dyn BufRead + 'a>),
}

/// A line that is not blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonLine {
    /// The number of the line, from 1.
    pub number: u64,
    /// The repaired text.
    pub text: String,
    /// A description of each repair.
    pub repairs: Vec<String>,
}

impl<'a> JsonLines<'a> {
    /// Returns a reader of lines of at most `limit` bytes.
    pub fn new(reader: impl BufRead + 'a, limit: u64) -> Self {
        Self {
            reader: LinesReader::New(Some(Box::new(reader))),
            number: 0,
            limit,
        }
    }

    /// Returns the number of lines that were read.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next line, `None` at the end. Does not wait for more input than the line.
    ///
    /// # Errors
    /// If the reader fails, a line is longer than the limit, or the encoding is not known.
    pub fn next_line(&mut self) -> io::Result<Option<JsonLine>> {
        loop {
            let limit = self.limit;
            let reader = self.reader.open()?;
            let mut line = Vec::new();
            reader.take(limit + 1).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if line.len() as u64 > limit {
                let reason = format!("the line has more than {} MiB", limit >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            let line = match self.number {
                1 => line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line),
                _ => &line,
            };
            let (text, repairs) = repaired(line);
            if text.trim().is_empty() {
                continue;
            }
            let repairs = repairs.iter().map(|one| match one.count {
                1 => one.damage.reason().to_owned(),
                count => format!("{} ({count} times)", one.damage.reason()),
            });
            return Ok(Some(JsonLine {
                number: self.number,
                text: text.trim_ascii_end().to_owned(),
                repairs: repairs.collect(),
            }));
        }
    }
}

impl<'a> LinesReader<'a> {
    fn open(&mut self) -> io::Result<&mut Box<dyn BufRead + 'a>> {
        if let Self::New(reader) = self {
            let mut reader = reader
                .take()
                .ok_or_else(|| io::Error::other("the encoding is not known"))?;
            // The bytes available now must suffice: the writer may wait for an answer to its first line.
            let head = reader.fill_buf()?;
            let head = head.to_vec();
            *self = Self::Open(decoded(&head, reader)?);
        }
        match self {
            Self::Open(reader) => Ok(reader),
            Self::New(_) => Err(io::Error::other("the encoding is not known")),
        }
    }
}

impl JsonLine {
    /// Returns the JSON values of the line, and the parts of the line that are not JSON, such as a truncated record
    /// with a complete one after it.
    ///
    /// # Errors
    /// The unreadable rest of the line, if no value follows it.
    pub fn values(&self) -> Result<(Vec<String>, Vec<String>), String> {
        let (mut values, mut skipped) = (Vec::new(), Vec::new());
        let failed = |error: io::Error| error.to_string();
        let mut line = io::Cursor::new(self.text.as_bytes());
        let mut parts = ValueReader::new(&mut line).map_err(failed)?;
        while let Some((_, part)) = parts.next().map_err(failed)? {
            match part {
                LinePart::Value(text) => values.push(text.to_owned()),
                LinePart::Unreadable { bytes, reason, .. } if reason == CUT_BEFORE_RECORD => {
                    skipped.push(format!("{} bytes {CUT_BEFORE_RECORD}", bytes.len()));
                }
                LinePart::Unreadable { reason, .. } => return Err(reason),
            }
        }
        Ok((values, skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_values_and_what_was_cut_off_before_them() {
        let mut lines = JsonLines::new(
            &b"\xEF\xBB\xBF\0\0{\"a\":\"x{\"b\":1} {\"c\":2}\r\n\n{\"c\n"[..],
            100,
        );
        let line = lines.next_line().unwrap().unwrap();
        assert_eq!((line.number, line.repairs.len()), (1, 1));
        let (values, skipped) = line.values().unwrap();
        assert_eq!(
            (values.as_slice(), skipped.len()),
            (&["{\"b\":1}".to_owned(), "{\"c\":2}".into()][..], 1)
        );
        let line = lines.next_line().unwrap().unwrap();
        assert_eq!(line.number, 3);
        assert!(line.values().is_err());
        assert_eq!(lines.next_line().unwrap(), None);
    }

    #[test]
    fn long_lines_and_other_encodings() {
        assert!(JsonLines::new(&b"[1234567]\n"[..], 5).next_line().is_err());
        let utf16: Vec<u8> = "\u{feff}[1]\r\n[2]"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let mut lines = JsonLines::new(&utf16[..], 100);
        assert_eq!(lines.next_line().unwrap().unwrap().text, "[1]");
        assert_eq!(lines.next_line().unwrap().unwrap().text, "[2]");
    }
}
