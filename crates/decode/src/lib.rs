//! The text of a file: decompressed, as UTF-8, and free of damage that no parser of JSON reads.
//!
//! [`Decoded`] reads a seekable file. A file of undamaged UTF-8 text is read in place; the text of any other file is
//! first copied into memory or into an unnamed file. [`TextFile`] decodes a file while it is read. [`repaired`]
//! repairs a text in memory.
//!
//! The crate depends on no format of transcripts and no store. It repairs JSON text without parsing it.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod encoding;
mod pieces;
mod repair;
mod spool;
mod surrogates;
mod utf16;
#[cfg(feature = "zstd")]
mod zstd;

use std::io::{self, BufRead, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

use self::encoding::{Encoding, head_of, text_in};
use self::pieces::TextPieces;
pub use self::repair::{Damage, Repair, Repairer, repaired};
use self::spool::{SpoolWriter, TextSpool};
pub use self::surrogates::replace_lone;

/// The first bytes of an SQLite file.
pub const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// The number of lines that decide if a text is JSON.
const LINES: usize = 20;

/// A buffered reader that can seek.
pub trait ReadSeek: BufRead + Seek + Send {}
impl<T: BufRead + Read + Seek + Send> ReadSeek for T {}

/// The text of a file: the file itself if it is undamaged UTF-8 text, else a decoded copy.
pub struct Decoded {
    copy: Option<TextSpool>,
    path: Option<PathBuf>,
    repairs: Vec<Repair>,
    was_utf16: bool,
    cut: Option<String>,
}

impl Decoded {
    /// Reads a file, and copies its text if the text has to be decoded. With `repairs`, damaged JSON is repaired in
    /// the copy.
    ///
    /// # Errors
    /// If the file cannot be read. The kind is [`io::ErrorKind::InvalidData`] if the encoding is not supported or no
    /// part of the file can be decompressed.
    pub fn read(path: &Path, reader: &mut dyn ReadSeek, repairs: bool) -> io::Result<Self> {
        let mut decoded = Self {
            copy: None,
            path: None,
            repairs: Vec::new(),
            was_utf16: false,
            cut: None,
        };
        reader.rewind()?;
        let head = head_of(reader)?;
        reader.rewind()?;
        let encoding = Encoding::of(&head);
        if encoding == Encoding::Sqlite {
            return Ok(decoded);
        }
        if !encoding.is_decoded() {
            let is_fine = !repairs || is_clean(reader)?;
            reader.rewind()?;
            if is_fine {
                return Ok(decoded);
            }
        }
        decoded.copy(&head, reader, repairs)?;
        if matches!(encoding, Encoding::Zstd | Encoding::Gzip) {
            decoded.path = Some(unpacked_path(path));
        }
        Ok(decoded)
    }

    fn copy(&mut self, head: &[u8], reader: &mut dyn ReadSeek, repairs: bool) -> io::Result<()> {
        let mut encodings = Vec::new();
        let mut text = text_in(head, Box::new(reader), &mut encodings)?;
        let (mut repairer, mut copy) = (Repairer::default(), SpoolWriter::new());
        let mut pieces = TextPieces::new(&mut text);
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
        self.repairs = repairer.into_repairs();
        self.copy = Some(copy.finish()?);
        Ok(())
    }

    /// Returns the repairs of the text.
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    /// True if the file was UTF-16.
    pub fn was_utf16(&self) -> bool {
        self.was_utf16
    }

    /// Returns the reason that the text ends before the end of the file; `None` if the text is complete.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Returns the path, without the extension of a compressed file, and a reader of the text.
    pub fn text<'a>(
        &'a mut self,
        path: &'a Path,
        reader: &'a mut dyn ReadSeek,
    ) -> (&'a Path, &'a mut dyn ReadSeek) {
        let path = self.path.as_deref().unwrap_or(path);
        let reader: &mut dyn ReadSeek = match &mut self.copy {
            Some(copy) => copy,
            None => reader,
        };
        (path, reader)
    }
}

fn is_clean(reader: &mut dyn ReadSeek) -> io::Result<bool> {
    let mut reader: &mut dyn Read = &mut ReadOnly(reader);
    let (mut repairer, mut pieces) = (Repairer::default(), TextPieces::new(&mut reader));
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

/// True if a text that begins with these bytes is JSON: one of its first lines begins like a document or a record.
/// Other text may contain sequences that are damage only in JSON.
pub fn is_json_text(head: &[u8]) -> bool {
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

/// Returns the path of a file without the extension of a compressed file.
pub fn unpacked_path(path: &Path) -> PathBuf {
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

/// Returns a reader that decodes `reader`, whose text begins with `head`.
///
/// # Errors
/// If the encoding of the text is not supported.
pub fn decoded<'a>(
    head: &[u8],
    reader: Box<dyn BufRead + 'a>,
) -> io::Result<Box<dyn BufRead + 'a>> {
    text_in(
        &head[..head.len().min(encoding::HEAD_BYTES)],
        reader,
        &mut Vec::new(),
    )
}

/// A text file that is decoded while it is read, and not repaired.
pub struct TextFile {
    /// The reader of the text.
    pub text: Box<dyn BufRead>,
    /// The path, without the extension of a compressed file.
    pub path: PathBuf,
    /// True if `text` contains an SQLite database.
    pub is_sqlite: bool,
}

impl TextFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If the file cannot be read, or its encoding is not supported.
    pub fn new(path: &Path, mut reader: impl BufRead + 'static) -> io::Result<Self> {
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
    use std::io::BufReader;

    use super::*;

    fn read(bytes: &[u8], name: &str) -> (String, PathBuf, Vec<Repair>) {
        let mut reader = BufReader::with_capacity(7, Cursor::new(bytes));
        let path = Path::new(name);
        let mut decoded = Decoded::read(path, &mut reader, true).unwrap();
        let repairs = decoded.repairs().to_vec();
        let (path, reader) = decoded.text(path, &mut reader);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (text, path.to_owned(), repairs)
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
