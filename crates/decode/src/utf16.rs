//! A reader of UTF-16 as UTF-8.

use std::io::{self, BufRead, Read};

/// The number of bytes decoded at once.
const CHUNK_BYTES: usize = 32 << 10;

/// A reader that decodes UTF-16. A unit without its other half becomes U+FFFD; the byte order mark is left out.
pub(crate) struct Utf16Reader<R> {
    reader: R,
    is_big_endian: bool,
    is_begun: bool,
    /// The first byte of a unit.
    odd: Option<u8>,
    /// The first half of a pair.
    high: Option<u16>,
    text: Vec<u8>,
    /// The number of bytes of `text` that were read.
    taken: usize,
}

impl<R: BufRead> Utf16Reader<R> {
    pub(crate) fn new(reader: R, is_big_endian: bool) -> Self {
        Self {
            reader,
            is_big_endian,
            is_begun: false,
            odd: None,
            high: None,
            text: Vec::new(),
            taken: 0,
        }
    }

    /// Decodes the buffered bytes. Returns `false` at the end.
    fn decode(&mut self) -> io::Result<bool> {
        self.text.clear();
        self.taken = 0;
        let bytes = loop {
            match self.reader.fill_buf() {
                Ok(bytes) => break bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let bytes = &bytes[..bytes.len().min(CHUNK_BYTES)];
        let read = bytes.len();
        let mut units = Vec::with_capacity(read / 2 + 2);
        units.extend(self.high.take());
        for byte in bytes {
            let Some(first) = self.odd.take() else {
                self.odd = Some(*byte);
                continue;
            };
            units.push(match self.is_big_endian {
                true => u16::from_be_bytes([first, *byte]),
                false => u16::from_le_bytes([first, *byte]),
            });
        }
        self.reader.consume(read);
        let is_end = read == 0;
        match is_end {
            // Half a unit is one lost character.
            true => units.extend(self.odd.take().map(|_| 0xFFFD)),
            false => self.high = units.pop_if(|unit| (0xD800..0xDC00).contains(unit)),
        }
        let mut decoded = units.as_slice();
        if !self.is_begun && !decoded.is_empty() {
            self.is_begun = true;
            decoded = decoded.strip_prefix(&[0xFEFF]).unwrap_or(decoded);
        }
        for char in char::decode_utf16(decoded.iter().copied()) {
            let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.text
                .extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(!is_end || !self.text.is_empty())
    }
}

impl<R: BufRead> Read for Utf16Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.text.len() {
            if !self.decode()? {
                return Ok(0);
            }
        }
        let rest = &self.text[self.taken..];
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        self.taken += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn text_is_decoded_whatever_the_size_of_the_pieces() {
        let text = "\u{feff}{\"a\":\"é 😀 \u{feff}\"}\r\n";
        let mut units: Vec<u16> = text.encode_utf16().collect();
        units.extend([0xD83D, u16::from(b'x'), 0xDE00]);
        for is_big_endian in [false, true] {
            let bytes = |unit: u16| match is_big_endian {
                true => unit.to_be_bytes(),
                false => unit.to_le_bytes(),
            };
            let mut bytes: Vec<u8> = units.iter().flat_map(|unit| bytes(*unit)).collect();
            bytes.push(7);
            for size in [1, 2, 3, 5, 1000] {
                let pieces = BufReader::with_capacity(size, &bytes[..]);
                let mut found = String::new();
                let mut reader = Utf16Reader::new(pieces, is_big_endian);
                reader.read_to_string(&mut found).unwrap();
                let whole = "{\"a\":\"é 😀 \u{feff}\"}\r\n\u{fffd}x\u{fffd}\u{fffd}";
                assert_eq!(found, whole, "{size}");
            }
        }
    }
}
