//! Records that follow a truncated record on the same line: a program died while it wrote a line, and the next one
//! appended to the truncated line.

use std::collections::HashSet;
use std::io::{self, BufRead, Read};

use super::fields::Fields;
use super::lines::{BadValue, read_value};

/// The distance before an error at which a record may begin, in bytes: its first quote may have closed a string of the
/// truncated record.
const BEFORE_ERROR: usize = 8;
/// The number of bytes of a file that are examined for the keys of its records.
const SHAPES_BYTES: u64 = 1 << 20;

/// The keys of the records of a file.
#[derive(Debug, Default)]
pub(super) struct Shapes(HashSet<String>);

impl Shapes {
    /// Reads the keys of the records at the beginning of a file that are alone on their lines.
    pub(super) fn read(reader: &mut dyn BufRead) -> io::Result<Self> {
        let mut shapes = Self::default();
        let mut text = Vec::new();
        reader.take(SHAPES_BYTES).read_to_end(&mut text)?;
        for line in text.split(|byte| *byte == b'\n') {
            shapes.add(line);
        }
        Ok(shapes)
    }

    /// Adds the keys of a record.
    pub(super) fn add(&mut self, line: &[u8]) {
        let keys = keys_of(line).unwrap_or_default();
        self.0.extend(keys);
    }

    /// True if most keys of a record are known, and more than one is.
    fn has(&self, record: &[u8]) -> bool {
        let keys = keys_of(record).unwrap_or_default();
        let known = keys.iter().filter(|key| self.0.contains(*key)).count();
        known >= 2 && known * 4 >= keys.len() * 3
    }
}

fn keys_of(record: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(record).ok()?;
    let fields = Fields::parse(text.trim()).ok()?;
    Some(fields.iter().map(|(key, _)| key.to_owned()).collect())
}

/// Returns the offset in `line` of a record that follows a truncated one. An object inside a damaged record does not
/// count: more of that record follows it.
///
/// If the whole line could be the beginning of one value (the truncation is at a place where a value may follow), a
/// record is recognised by its keys.
pub(super) fn behind_cut(line: &[u8], error: &BadValue, shapes: Option<&Shapes>) -> Option<usize> {
    if error.is_eof {
        let at = last_object(line)?;
        return shapes?.has(&line[at..]).then_some(at);
    }
    let (mut begin, mut bad) = (0, error.at);
    loop {
        let at = next_object(line, begin + 1, bad)?;
        let Some(wrong) = wrong_from(line, at) else {
            return Some(at);
        };
        // This record may be truncated too.
        begin = at;
        bad = wrong.max(at + 1);
    }
}

/// True if a record certainly follows a truncated one.
pub(super) fn is_glued(line: &[u8]) -> bool {
    read_value(line).is_err_and(|error| !error.is_eof && behind_cut(line, &error, None).is_some())
}

/// Returns the offset nearest to the error, not before `first`, at which an object begins: just before the error, else
/// after it.
fn next_object(line: &[u8], first: usize, error: usize) -> Option<usize> {
    let near = error.saturating_sub(BEFORE_ERROR).max(first);
    let before = line
        .get(near..(error + 1).min(line.len()))
        .unwrap_or_default();
    if let Some(at) = memchr::memrchr(b'{', before) {
        return Some(near + at);
    }
    let after = (error + 1).max(first);
    memchr::memchr(b'{', line.get(after..)?).map(|at| after + at)
}

/// Returns the offset at which the value that begins at `at` becomes invalid; `None` if it ends with the line or
/// another record follows.
fn wrong_from(line: &[u8], at: usize) -> Option<usize> {
    match read_value(&line[at..]) {
        Ok((len, _)) => {
            let rest = line[at + len..].trim_ascii_start();
            match rest.first() {
                None | Some(b'{') => None,
                Some(_) => Some(line.len() - rest.len()),
            }
        }
        Err(error) if error.is_eof => Some(line.len()),
        Err(error) => Some(at + error.at),
    }
}

/// Returns the offset of the object that ends with the line.
fn last_object(line: &[u8]) -> Option<usize> {
    let line = line.trim_ascii_end();
    let (mut open, mut last, mut in_string, mut escaped) = (Vec::new(), None, false, false);
    for (at, byte) in line.iter().enumerate() {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = *byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => open.push(at),
            b'}' | b']' => last = open.pop().map(|begin| (begin, at)),
            _ => {}
        }
    }
    let (begin, end) = last?;
    (end + 1 == line.len() && line[begin] == b'{').then_some(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str =
        r#"{"type":"user","id":"u2","message":{"content":[{"type":"text","text":"{x} \"two\""}]}}"#;

    fn found(line: &str) -> Option<usize> {
        let mut shapes = Shapes::default();
        shapes.add(RECORD.as_bytes());
        let error = read_value(line.as_bytes()).err()?;
        behind_cut(line.as_bytes(), &error, Some(&shapes))
    }

    #[test]
    fn a_record_is_found_behind_one_that_is_cut_anywhere() {
        let first = RECORD.replace("u2", "u1");
        for cut in 1..first.len() {
            for between in ["", "   "] {
                let line = format!("{}{between}{RECORD}", &first[..cut]);
                assert_eq!(found(&line), Some(line.len() - RECORD.len()), "{line}");
            }
        }
    }

    #[test]
    fn several_are_found_behind_several() {
        let line = format!(r#"{{"a":"x{{"type":"y{RECORD} {RECORD}"#);
        assert_eq!(found(&line), Some(line.len() - 2 * RECORD.len() - 1));
        let line = format!(r#"{{"a":tr{RECORD}{{"type":"y{RECORD}"#);
        assert_eq!(found(&line), Some(7));
    }

    #[test]
    fn objects_within_a_damaged_record_are_no_records() {
        for line in [
            r#"{"type":"user","id":1,"message":{"content":[{"type":"text","text":"x"}"#,
            r#"{"type":"user",,"message":{"content":[{"type":"text","id":"x"}]}}"#,
            r#"{"type" "user","message":{"type":"text","id":"x"}}"#,
            r#"lo"}]}}"#,
            "{",
            "",
            "nonsense {",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn hostile_lines_take_no_time() {
        for line in [
            "{\"a\":".repeat(200_000),
            "{\"a\"{".repeat(200_000),
            "{".repeat(500_000),
        ] {
            let begun = std::time::Instant::now();
            let _ = found(&line);
            assert!(begun.elapsed().as_secs() < 20);
        }
    }
}
