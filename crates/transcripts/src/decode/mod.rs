//! The text of a transcript: decompressed, as UTF-8, and free of damage that no parser of JSON reads.
//!
//! Every importer reads through [`read_transcript`], so that none needs to know what a file went through. A
//! file that is fine is read where it is; of any other a copy is made first, in memory or in a file without
//! a name. The same repairs apply to the lines of `append` ([`JsonLines`]) and to JSON in the columns of
//! databases ([`repaired`]).

mod encoding;
mod json_lines;
mod pieces;
mod repair;
mod spool;
mod surrogates;
mod utf16;
#[cfg(feature = "zstd")]
mod zstd;

use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use loopstore_locks::SharedFile;

use self::encoding::{Encoding, head_of, text_in};
pub use self::json_lines::{JsonLine, JsonLines};
use self::pieces::Pieces;
pub(super) use self::repair::{Repair, Repairer, repaired};
use self::spool::{Spool, SpoolWriter};
pub(super) use self::surrogates::replace_lone;

use super::{ImportError, Importer, ReadSeek, Sink, Source, unread};

/// Lines that are looked at to see whether a text is JSON.
const LINES: usize = 20;

/// Reads a transcript into a sink as an import does: what is compressed or in another encoding is decoded,
/// and JSON that is damaged is repaired. The sink is told of each repair.
///
/// # Errors
/// If the source cannot be read, the importer finds no transcript in it, or the sink refuses.
pub fn read_transcript(
    importer: &dyn Importer,
    source: &mut Source<'_>,
    sink: &mut dyn Sink,
) -> Result<(), ImportError> {
    let mut decoded = Decoded::of(source)?;
    decoded.report(sink);
    let read = importer.import(&mut decoded.source(source), sink);
    match (read, &decoded.cut) {
        // What the sink was told is lost with the file.
        (Err(ImportError::NoTranscript(reason)), Some(cut)) => {
            Err(ImportError::NoTranscript(format!("{reason} before {cut}")))
        }
        (read, _) => read,
    }
}

/// A source that can be read by an importer.
pub(super) struct Decoded {
    /// The text, if the file does not have it as it must be.
    copy: Option<Spool>,
    /// The path of the text, without the ending of a compressed file.
    path: Option<PathBuf>,
    notes: Vec<Repair>,
    /// How the text was encoded, if that is worth a word.
    was_utf16: bool,
    /// Why the text ends before its end.
    cut: Option<String>,
}

impl Decoded {
    /// Looks at a source, and copies what has to be decoded or repaired.
    pub(super) fn of(source: &mut Source<'_>) -> Result<Self, ImportError> {
        Self::read(source, true)
    }

    /// Looks at a source that is only decoded: every byte of its text counts.
    pub(super) fn without_repairs(source: &mut Source<'_>) -> Result<Self, ImportError> {
        Self::read(source, false)
    }

    fn read(source: &mut Source<'_>, repairs: bool) -> Result<Self, ImportError> {
        let path = source.path;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData => ImportError::NoTranscript(error.to_string()),
            _ => unread(path)(error),
        };
        let mut decoded = Self {
            copy: None,
            path: None,
            notes: Vec::new(),
            was_utf16: false,
            cut: None,
        };
        let reader = &mut *source.reader;
        reader.rewind().map_err(failed)?;
        let head = head_of(reader).map_err(failed)?;
        reader.rewind().map_err(failed)?;
        let encoding = Encoding::of(&head);
        if encoding == Encoding::Sqlite {
            return Ok(decoded);
        }
        if !encoding.is_decoded() {
            let is_fine = !repairs || is_clean(reader).map_err(failed)?;
            reader.rewind().map_err(failed)?;
            if is_fine {
                return Ok(decoded);
            }
        }
        decoded.copy(&head, reader, repairs).map_err(failed)?;
        if matches!(encoding, Encoding::Zstd | Encoding::Gzip) {
            decoded.path = Some(unpacked_path(path));
        }
        Ok(decoded)
    }

    fn copy(&mut self, head: &[u8], reader: &mut dyn ReadSeek, repairs: bool) -> io::Result<()> {
        let mut encodings = Vec::new();
        let mut text = text_in(head, Box::new(reader), &mut encodings)?;
        let (mut repairer, mut copy) = (Repairer::default(), SpoolWriter::new());
        let mut pieces = Pieces::new(&mut text);
        let (mut is_begun, mut is_json) = (false, false);
        loop {
            let piece = match pieces.next() {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) if is_begun => {
                    self.cut = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(error),
            };
            if !std::mem::replace(&mut is_begun, true) {
                is_json = repairs && is_json_text(piece);
            }
            match is_json {
                true => copy.write_all(&repairer.repair(piece))?,
                false => copy.write_all(piece)?,
            }
        }
        self.was_utf16 = encodings
            .iter()
            .any(|one| matches!(one, Encoding::Utf16 { .. }));
        self.notes = repairer.into_repairs();
        self.copy = Some(copy.finish()?);
        Ok(())
    }

    /// Tells a sink what was done.
    pub(super) fn report(&self, sink: &mut dyn Sink) {
        if self.was_utf16 {
            sink.repaired(None, 1, "read as UTF-16");
        }
        for note in &self.notes {
            sink.repaired(Some(note.line), note.count, note.damage.reason());
        }
        if let Some(reason) = &self.cut {
            sink.skip(
                None,
                format!("the file was read as far as it goes: {reason}"),
            );
        }
    }

    /// Returns the source to read in place of the one that was looked at.
    pub(super) fn source<'a>(&'a mut self, source: &'a mut Source<'_>) -> Source<'a> {
        Source {
            path: self.path.as_deref().unwrap_or(source.path),
            reader: match &mut self.copy {
                Some(copy) => copy,
                None => &mut *source.reader,
            },
        }
    }
}

fn is_clean(reader: &mut dyn ReadSeek) -> io::Result<bool> {
    let mut reader: &mut dyn Read = &mut ReadOnly(reader);
    let (mut repairer, mut pieces) = (Repairer::default(), Pieces::new(&mut reader));
    let mut is_begun = false;
    while let Some(piece) = pieces.next()? {
        if !std::mem::replace(&mut is_begun, true) && !is_json_text(piece) {
            return Ok(true);
        }
        if !repairer.is_clean(piece) {
            return Ok(false);
        }
    }
    Ok(true)
}

struct ReadOnly<'a>(&'a mut dyn ReadSeek);

impl Read for ReadOnly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// True if a text that begins like this is JSON: one of its first lines begins as a document or a record
/// does. Text of another kind may spell what would be damage in JSON.
pub(super) fn is_json_text(head: &[u8]) -> bool {
    let begin = |line: &[u8]| {
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        line.iter()
            .copied()
            .find(|byte| *byte != 0 && !byte.is_ascii_whitespace())
    };
    let mut lines = head.split(|byte| *byte == b'\n').filter_map(begin);
    let first = lines.next();
    if first == Some(b'#') {
        return false;
    }
    first
        .into_iter()
        .chain(lines.take(LINES))
        .any(|byte| matches!(byte, b'{' | b'[' | b'"' | 0x1E))
}

/// Returns the path of a compressed file without the ending that says so.
pub(super) fn unpacked_path(path: &Path) -> PathBuf {
    let is_packed = path.extension().is_some_and(|end| {
        ["zst", "zstd", "gz"]
            .iter()
            .any(|one| end.eq_ignore_ascii_case(one))
    });
    match is_packed {
        true => path.with_extension(""),
        false => path.to_owned(),
    }
}

/// A file as text.
pub(super) struct TextFile {
    pub(super) text: Box<dyn BufRead>,
    /// The path without the ending of a compressed file.
    pub(super) path: PathBuf,
    /// True if `text` is a SQLite database.
    pub(super) is_sqlite: bool,
}

impl TextFile {
    /// Opens a file. Its text is decoded while it is read, but not repaired.
    pub(super) fn open(path: &Path, buffer: usize) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(buffer, SharedFile::open(path)?);
        let head = head_of(&mut reader)?;
        let mut encodings = Vec::new();
        let whole = Cursor::new(head.clone()).chain(reader);
        let text = text_in(&head, Box::new(whole), &mut encodings)?;
        let is_packed = |one: &Encoding| matches!(one, Encoding::Zstd | Encoding::Gzip);
        Ok(Self {
            text,
            path: match encodings.iter().any(is_packed) {
                true => unpacked_path(path),
                false => path.to_owned(),
            },
            is_sqlite: encodings.last() == Some(&Encoding::Sqlite),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], name: &str) -> (String, PathBuf, Vec<Repair>) {
        let mut reader = BufReader::with_capacity(7, Cursor::new(bytes));
        let mut source = Source {
            path: Path::new(name),
            reader: &mut reader,
        };
        let mut decoded = Decoded::of(&mut source).unwrap();
        let notes = decoded.notes.clone();
        let source = decoded.source(&mut source);
        let mut text = String::new();
        source.reader.read_to_string(&mut text).unwrap();
        (text, source.path.to_owned(), notes)
    }

    #[test]
    fn what_is_fine_is_read_where_it_is() {
        for text in [
            "",
            "{\"a\":1}\r\n{\"b\":\"\\ud83d\\ude00\"}",
            "\u{feff}[1]",
            "# \\ud83d \0",
        ] {
            let (found, path, notes) = read(text.as_bytes(), "x.jsonl");
            assert_eq!(
                (found.as_str(), path.as_path()),
                (text, Path::new("x.jsonl"))
            );
            assert!(notes.is_empty());
        }
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn a_compressed_file_has_the_name_of_its_text() {
        let packed = ruzstd::encoding::compress_to_vec(
            &b"{\"a\":\"\\ud83d\"}\n"[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let (text, path, notes) = read(&packed, "r-1.jsonl.zst");
        assert_eq!(text, "{\"a\":\"\\ufffd\"}\n");
        assert_eq!(path, Path::new("r-1.jsonl"));
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn utf16_is_repaired_as_utf8_is() {
        let units = "[{\"a\":\"\\ude00\"}]".encode_utf16();
        let bytes: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
        assert_eq!(read(&bytes, "x").0, "[{\"a\":\"\\ufffd\"}]");
    }
}
