//! Readers that return the UTF-8 text of compressed files and of files in other encodings.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

use crate::SQLITE_MAGIC;
use crate::utf16::Utf16Reader;
#[cfg(feature = "zstd")]
use crate::zstd::ZstdReader;

/// The number of bytes from which the encoding of a file is detected.
pub(crate) const HEAD_BYTES: usize = 64;
/// The maximum size of a decompressed file: a few bytes can expand without end.
const MAX_DECOMPRESSED: u64 = 1 << 30;

/// The encoding of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Utf8,
    Utf16 { is_big_endian: bool },
    Utf32,
    Zstd,
    Gzip,
    Sqlite,
}

impl Encoding {
    /// Detects the encoding from the first bytes of a file.
    pub(crate) fn of(head: &[u8]) -> Self {
        match head {
            [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => Self::Utf32,
            [0xFF, 0xFE, ..] => Self::Utf16 {
                is_big_endian: false,
            },
            [0xFE, 0xFF, ..] => Self::Utf16 {
                is_big_endian: true,
            },
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Self::Zstd,
            [0x1F, 0x8B, 8, ..] => Self::Gzip,
            _ if head.starts_with(SQLITE_MAGIC) => Self::Sqlite,
            _ => Self::without_mark(head),
        }
    }

    /// Detects UTF-16 without a byte order mark: all of the first units are ASCII. A file that begins with
    /// zeros is not UTF-16: its blocks were never written.
    fn without_mark(head: &[u8]) -> Self {
        let mut units = head.chunks_exact(2).take(8);
        if units.len() < 2 {
            return Self::Utf8;
        }
        let is_ascii = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
        if units.clone().all(|unit| unit[1] == 0 && is_ascii(unit[0])) {
            return Self::Utf16 {
                is_big_endian: false,
            };
        }
        match units.all(|unit| unit[0] == 0 && is_ascii(unit[1])) {
            true => Self::Utf16 {
                is_big_endian: true,
            },
            false => Self::Utf8,
        }
    }

    /// True if the text must be decoded before it can be read.
    pub(crate) fn is_decoded(self) -> bool {
        !matches!(self, Self::Utf8 | Self::Sqlite)
    }
}

/// Returns a reader of the UTF-8 text in `reader`, which begins with `head` and may be compressed. Adds the
/// decoded encodings to `encodings`.
///
/// # Errors
/// If the file cannot be read, or its encoding is not supported.
pub(crate) fn text_in<'a>(
    head: &[u8],
    reader: Box<dyn BufRead + 'a>,
    encodings: &mut Vec<Encoding>,
) -> io::Result<Box<dyn BufRead + 'a>> {
    let encoding = Encoding::of(head);
    encodings.push(encoding);
    let unpacked: Box<dyn Read + 'a> = match encoding {
        Encoding::Utf8 | Encoding::Sqlite => return Ok(reader),
        Encoding::Utf16 { is_big_endian } => {
            let decoded = Utf16Reader::new(reader, is_big_endian);
            return Ok(Box::new(BufReader::new(decoded)));
        }
        Encoding::Utf32 => {
            return Err(unusable(
                "it is UTF-32; convert it to UTF-8 and import the result",
            ));
        }
        #[cfg(feature = "zstd")]
        Encoding::Zstd => Box::new(ZstdReader::new(reader)),
        #[cfg(not(feature = "zstd"))]
        Encoding::Zstd => {
            return Err(unusable(
                "it is compressed with zstd, which this build cannot read; unpack it with `zstd -d` and import the \
                 result",
            ));
        }
        Encoding::Gzip => Box::new(MultiGzDecoder::new(reader)),
    };
    if encodings.len() > 2 {
        return Err(unusable("it is compressed more than twice"));
    }
    let mut unpacked = BufReader::new(Limited {
        inner: unpacked,
        left: MAX_DECOMPRESSED,
    });
    let head = head_of(&mut unpacked)?;
    let whole = Cursor::new(head.clone()).chain(unpacked);
    text_in(&head, Box::new(whole), encodings)
}

/// Reads the bytes from which the encoding is detected.
pub(crate) fn head_of(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    reader.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn unusable(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A reader that fails after `left` bytes.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let most = MAX_DECOMPRESSED >> 30;
            unusable(&format!(
                "it holds more than {most} GiB; decompress it and import the result"
            ))
        })?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> io::Result<String> {
        let mut encodings = Vec::new();
        let head = &bytes[..bytes.len().min(HEAD_BYTES)];
        let mut text = String::new();
        text_in(head, Box::new(Cursor::new(bytes)), &mut encodings)?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn encodings_are_known_by_how_a_file_begins() {
        let utf16 = |is_big_endian| Encoding::Utf16 { is_big_endian };
        for (head, encoding) in [
            (&b""[..], Encoding::Utf8),
            (b"{", Encoding::Utf8),
            (b"\xEF\xBB\xBF{}", Encoding::Utf8),
            (b"\xFF\xFE{\0", utf16(false)),
            (b"\xFE\xFF\0{", utf16(true)),
            (b"{\0\"\0a\0", utf16(false)),
            (b"\0[\0{\0\n", utf16(true)),
            (b"\0\0\0\0{\"a\":1}", Encoding::Utf8),
            (b"\xFF\xFE\0\0{\0\0\0", Encoding::Utf32),
            (b"\x28\xB5\x2F\xFD", Encoding::Zstd),
            (b"\x1F\x8B\x08\0", Encoding::Gzip),
            (b"SQLite format 3\0", Encoding::Sqlite),
        ] {
            assert_eq!(Encoding::of(head), encoding, "{head:?}");
        }
    }

    #[test]
    fn compressed_text_of_other_encodings_is_read() {
        use flate2::{Compression, write::GzEncoder};
        use std::io::Write;
        let pack = |bytes: &[u8]| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            packed.write_all(bytes).unwrap();
            packed.finish().unwrap()
        };
        let utf16: Vec<u8> = "\u{feff}{\"é\":1}\n"
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect();
        assert_eq!(text(&pack(&utf16)).unwrap(), "{\"é\":1}\n");
        assert_eq!(text(&pack(&pack(b"{}"))).unwrap(), "{}");
        assert!(
            text(&pack(&pack(&pack(b"{}")))).is_err(),
            "no end of layers"
        );
    }

    #[test]
    fn what_a_few_bytes_can_hold_has_a_limit() {
        let mut reader = Limited {
            inner: io::repeat(b'x'),
            left: 100,
        };
        let error = reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(
            error.to_string().contains("holds more than 1 GiB"),
            "{error}"
        );
    }
}
