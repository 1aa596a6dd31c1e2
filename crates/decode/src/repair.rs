//! Repairs of JSON text that no parser accepts: halves of surrogate pairs, bytes that are not UTF-8, zeros of
//! blocks that were never written, control characters within strings.

use std::borrow::Cow;

use crate::surrogates;

/// A kind of damage in JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// Half of a surrogate pair.
    Surrogate,
    /// Bytes that are not UTF-8.
    Encoding,
    /// Zeros of blocks that were never written.
    Zeros,
    /// Control characters within strings.
    Control,
}

impl Damage {
    /// Returns a description of the repair.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Surrogate => "half of a surrogate pair, replaced by U+FFFD",
            Self::Encoding => "not UTF-8, replaced by U+FFFD",
            Self::Zeros => "zero bytes, read as spaces",
            Self::Control => "a control character within a string, escaped",
        }
    }
}

/// The repairs of one kind in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The damage that was repaired.
    pub damage: Damage,
    /// The line of the first repair, from 1.
    pub line: u64,
    /// The number of repairs.
    pub count: u64,
}

/// Repairs a text piece by piece. A piece ends at the end of a line, or at a position that is not within an escape or
/// a character.
#[derive(Default)]
pub struct Repairer {
    /// The number of complete lines so far.
    lines: u64,
    within: ScanPosition,
    found: Vec<Repair>,
}

/// The position in a line at which a piece begins.
#[derive(Clone, Copy, Default)]
struct ScanPosition {
    in_string: bool,
    escaped: bool,
}

impl Repairer {
    /// Returns the repairs.
    pub fn into_repairs(self) -> Vec<Repair> {
        self.found
    }

    /// Returns true if the next piece needs no repair.
    pub(crate) fn is_clean(&mut self, piece: &[u8]) -> bool {
        let before = self.within;
        let is_plain = simdutf8::basic::from_utf8(piece).is_ok_and(|text| {
            let has_lone = || surrogates::may_hold(piece) && surrogates::replace_lone(text).1 > 0;
            !(has_control(piece) || has_lone())
        });
        // A tab is white space between values, and invalid within a string.
        let has_tab = memchr::memchr(b'\t', piece).is_some();
        is_plain && !(self.pass(piece, has_tab) && has_tab && has_tab_in_string(piece, before))
    }

    /// Passes a piece that is not changed. Returns true if it may have tabs in strings.
    fn pass(&mut self, piece: &[u8], has_tab: bool) -> bool {
        let last = memchr::memrchr(b'\n', piece).map_or(0, |end| end + 1);
        if last > 0 {
            self.within = ScanPosition::default();
        }
        for byte in &piece[last..] {
            self.within.step(*byte);
        }
        has_tab
    }

    /// Repairs the next piece, and returns the repaired text.
    pub fn repair<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        let before = self.within;
        if self.is_clean(piece) {
            self.lines += memchr::memchr_iter(b'\n', piece).count() as u64;
            return Cow::Borrowed(piece);
        }
        self.within = before;
        let mut repaired = Vec::with_capacity(piece.len());
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line(line, &mut repaired);
            if line.ends_with(b"\n") {
                self.lines += 1;
                self.within = ScanPosition::default();
            }
        }
        Cow::Owned(repaired)
    }

    fn line(&mut self, line: &[u8], repaired: &mut Vec<u8>) {
        let mut text = String::with_capacity(line.len());
        let mut bad = 0;
        for chunk in line.utf8_chunks() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                bad += 1;
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.note(Damage::Encoding, bad);
        let (text, lone) = match surrogates::replace_lone(&text) {
            (Cow::Owned(mended), lone) => (mended, lone),
            (Cow::Borrowed(_), lone) => (text, lone),
        };
        self.note(Damage::Surrogate, lone);
        let (mut zeros, mut controls) = (0, 0);
        for byte in text.bytes() {
            match byte {
                0 => {
                    zeros += 1;
                    repaired.push(b' ');
                }
                // A text sequence of JSON separates its records by a control character.
                _ if is_control(byte) && !self.within.in_string => repaired.push(b' '),
                _ if (is_control(byte) || byte == b'\t') && self.within.in_string => {
                    controls += 1;
                    repaired.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                }
                _ => repaired.push(byte),
            }
            self.within.step(byte);
        }
        self.note(Damage::Zeros, zeros);
        self.note(Damage::Control, controls);
    }

    fn note(&mut self, damage: Damage, count: u64) {
        if count == 0 {
            return;
        }
        match self.found.iter_mut().find(|found| found.damage == damage) {
            Some(found) => found.count += count,
            None => self.found.push(Repair {
                damage,
                line: self.lines + 1,
                count,
            }),
        }
    }
}

impl ScanPosition {
    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.in_string = self.escaped || byte != b'"';
            self.escaped = byte == b'\\' && !self.escaped;
        } else {
            self.in_string = byte == b'"';
        }
    }
}

/// True for a character that JSON allows nowhere.
fn is_control(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')
}

/// Returns true if a piece has such a character. Checks every byte without an early exit, so that the loop is
/// vectorised.
fn has_control(piece: &[u8]) -> bool {
    piece
        .iter()
        .fold(false, |found, byte| found | is_control(*byte))
}

fn has_tab_in_string(piece: &[u8], mut within: ScanPosition) -> bool {
    piece.iter().any(|byte| {
        if *byte == b'\n' {
            within = ScanPosition::default();
        }
        let found = *byte == b'\t' && within.in_string;
        within.step(*byte);
        found
    })
}

/// Repairs a JSON text, and returns the text and the repairs.
pub fn repaired(text: &[u8]) -> (Cow<'_, str>, Vec<Repair>) {
    let mut repairer = Repairer::default();
    let text = match repairer.repair(text) {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    };
    (text, repairer.into_repairs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> (String, Vec<(Damage, u64, u64)>) {
        let (text, repairs) = repaired(text);
        let repairs = repairs.iter().map(|one| (one.damage, one.line, one.count));
        (text.into_owned(), repairs.collect())
    }

    #[test]
    fn each_damage_is_repaired_and_counted_from_its_first_line() {
        for (text, repaired, repairs) in [
            (&b"{\"a\":\"b\"}\n"[..], "{\"a\":\"b\"}\n", vec![]),
            (b"{\t\"a\":\t1}\r\n", "{\t\"a\":\t1}\r\n", vec![]),
            (
                br#""\ud83d\ude00 \u00e9""#,
                r#""\ud83d\ude00 \u00e9""#,
                vec![],
            ),
            (
                b"{}\n\"\\ud83d\"\n\"\\ude00\"",
                "{}\n\"\\ufffd\"\n\"\\ufffd\"",
                vec![(Damage::Surrogate, 2, 2)],
            ),
            (
                b"\"a\xE9b\xF0\x9F\x98\"",
                "\"a\u{fffd}b\u{fffd}\"",
                vec![(Damage::Encoding, 1, 2)],
            ),
            (
                b"\0\0{\"a\":1}\0\n",
                "  {\"a\":1} \n",
                vec![(Damage::Zeros, 1, 3)],
            ),
            (b"\x1e{\"a\":1}\n", " {\"a\":1}\n", vec![]),
            (
                b"{\"a\":\t\"x\ty\x1b[0m\\\"\t\"}",
                "{\"a\":\t\"x\\u0009y\\u001b[0m\\\"\\u0009\"}",
                vec![(Damage::Control, 1, 3)],
            ),
            // The end of a line ends a string that was cut.
            (b"{\"a\n\t1\n", "{\"a\n\t1\n", vec![]),
        ] {
            assert_eq!(of(text), (repaired.to_owned(), repairs));
        }
    }

    #[test]
    fn a_line_in_pieces_is_repaired_as_a_whole() {
        let text = b"{\"a\":\"x\\\"\ty\",\t\"b\":\"\\\\\"\t,\"c\":\"\t\"}\n\t1";
        let (whole, repairs) = of(text);
        for at in 0..text.len() {
            let mut repairer = Repairer::default();
            let mut found = repairer.repair(&text[..at]).into_owned();
            found.extend_from_slice(&repairer.repair(&text[at..]));
            assert_eq!(String::from_utf8_lossy(&found), whole, "{at}");
            let count: u64 = repairer.into_repairs().iter().map(|one| one.count).sum();
            assert_eq!(count, repairs[0].2);
        }
    }
}
