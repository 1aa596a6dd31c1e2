//! The pieces of a text, each of which can be repaired on its own.

use std::io::{self, Read};

/// The number of bytes read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// The length in bytes at which a piece is cut if it has no better place for a cut.
const MAX_PIECE: usize = 64 << 20;
/// The length of the longest escape: a pair of surrogates, each as `\ud83d`.
const LONGEST_ESCAPE: usize = 12;

/// The pieces of a text.
pub(crate) struct TextPieces<'a> {
    reader: &'a mut dyn Read,
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that were returned.
    given: usize,
    is_ended: bool,
}

impl<'a> TextPieces<'a> {
    pub(crate) fn new(reader: &'a mut dyn Read) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            given: 0,
            is_ended: false,
        }
    }

    /// Returns the next piece; `None` at the end. Bytes that were read before an error are returned before it.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.buffer.drain(..self.given);
        self.given = 0;
        while !self.is_ended {
            let before = self.buffer.len();
            let read = self
                .reader
                .take(CHUNK_BYTES as u64)
                .read_to_end(&mut self.buffer);
            match read {
                Ok(read) => self.is_ended = read < CHUNK_BYTES,
                Err(error) if self.buffer.is_empty() => return Err(error),
                // The next call fails again.
                Err(_) => {
                    self.given = self.buffer.len();
                    return Ok(Some(&self.buffer));
                }
            }
            let cut = match self.is_ended {
                true => Some(self.buffer.len()),
                false => cut(&self.buffer, before),
            };
            if let Some(cut) = cut.filter(|cut| *cut > 0) {
                self.given = cut;
                break;
            }
        }
        match self.given {
            0 => Ok(None),
            given => Ok(Some(&self.buffer[..given])),
        }
    }
}

/// Returns the position of a cut; `None` if more bytes are needed to find one. The first `looked` bytes are
/// known to have none.
fn cut(bytes: &[u8], looked: usize) -> Option<usize> {
    if let Some(end) = memchr::memrchr(b'\n', &bytes[looked..]) {
        return Some(looked + end + 1);
    }
    let mut plain = 0;
    for at in (looked.saturating_sub(LONGEST_ESCAPE)..bytes.len()).rev() {
        plain = match bytes[at] {
            b'\\' | 0x80.. => 0,
            _ => plain + 1,
        };
        if plain == LONGEST_ESCAPE {
            return Some(at + LONGEST_ESCAPE);
        }
    }
    (bytes.len() >= MAX_PIECE).then_some(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_text_and_part_no_escape_and_no_character() {
        let escapes = "\\ud83d\\ude00".repeat(CHUNK_BYTES / 8);
        let chars = "é😀".repeat(CHUNK_BYTES / 4);
        let lines = format!("{{}}\n{}\n", "x".repeat(3 * CHUNK_BYTES));
        for text in [
            "",
            "x",
            &escapes,
            &format!("{escapes}{chars} plain plain"),
            &chars,
            &lines,
        ] {
            let mut reader = text.as_bytes();
            let mut pieces = TextPieces::new(&mut reader);
            let mut whole = Vec::new();
            while let Some(piece) = pieces.next().unwrap() {
                assert!(!piece.is_empty() && std::str::from_utf8(piece).is_ok());
                let tail = &piece[piece.len().saturating_sub(LONGEST_ESCAPE)..];
                whole.extend_from_slice(piece);
                let is_end = piece.ends_with(b"\n") || whole.len() == text.len();
                assert!(is_end || !tail.contains(&b'\\'));
            }
            assert_eq!(whole, text.as_bytes());
        }
    }
}
