//! The beginning of a file, decoded and repaired, by which its format is recognised.
//!
//! The first fields of a document may fill the whole head. Then the keys of the later fields are appended to the head
//! as `"key":0`, so that formats can still be distinguished.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use super::decode::{Repairer, TextFile, is_json_text, open_text};

/// The number of bytes of a file that are examined.
const HEAD_BYTES: u64 = 64 << 10;
/// The number of later keys that are examined.
const MAX_KEYS: usize = 100;
/// Longer keys belong to no known format.
const MAX_KEY_BYTES: usize = 100;

/// The beginning of a file.
pub(super) struct FileHead {
    pub(super) bytes: Vec<u8>,
    /// The path of the file, without the ending of a compressed one.
    pub(super) path: PathBuf,
    pub(super) is_sqlite: bool,
}

/// Reads the head of a file.
pub(super) fn sniff(path: &Path) -> io::Result<FileHead> {
    let TextFile {
        mut text,
        path,
        is_sqlite,
    } = open_text(path, HEAD_BYTES as usize)?;
    let mut bytes = Vec::new();
    if let Err(error) = (&mut text).take(HEAD_BYTES).read_to_end(&mut bytes)
        && bytes.is_empty()
    {
        return Err(error);
    }
    if !is_sqlite {
        if is_json_text(&bytes) {
            bytes = Repairer::default().repair(&bytes).into_owned();
        }
        bytes = with_later_keys(bytes, &mut *text)?;
    }
    Ok(FileHead {
        bytes,
        path,
        is_sqlite,
    })
}

/// Appends the keys of the first value that come after the head.
fn with_later_keys(mut head: Vec<u8>, reader: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut scan = FirstValueScan::default();
    scan.take(&head);
    if !scan.is_cut_object() {
        return Ok(head);
    }
    scan.close(&mut head);
    scan.keys_wanted = true;
    loop {
        // Unreadable data has no keys.
        let buffer = reader.fill_buf().unwrap_or_default();
        if buffer.is_empty() || scan.levels.is_empty() || scan.keys.len() >= MAX_KEYS {
            break;
        }
        let read = buffer.len();
        scan.take(buffer);
        reader.consume(read);
    }
    for key in &scan.keys {
        head.extend_from_slice(b",\"");
        head.extend_from_slice(key);
        head.extend_from_slice(b"\":0");
    }
    head.push(b'}');
    Ok(head)
}

/// Follows brackets and strings of the first value.
#[derive(Default)]
struct FirstValueScan {
    levels: Vec<u8>,
    began: bool,
    in_string: bool,
    escaped: bool,
    /// True if the next string at the outermost level is a key.
    at_key: bool,
    key: Option<Vec<u8>>,
    keys_wanted: bool,
    keys: Vec<Vec<u8>>,
}

impl FirstValueScan {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.began && self.levels.is_empty() {
                return;
            }
            match self.in_string {
                true => self.in_text(*byte),
                false => self.between(*byte),
            }
        }
    }

    fn in_text(&mut self, byte: u8) {
        let ends = byte == b'"' && !self.escaped;
        self.escaped = byte == b'\\' && !self.escaped;
        if ends {
            self.in_string = false;
            let key = self.key.take().filter(|key| key.len() <= MAX_KEY_BYTES);
            self.keys.extend(key.filter(|_| self.keys_wanted));
        } else if let Some(key) = self.key.as_mut().filter(|key| key.len() <= MAX_KEY_BYTES) {
            key.push(byte);
        }
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_string = true;
                self.began = true;
                let outermost = self.levels.len() == 1;
                self.key = (outermost && std::mem::take(&mut self.at_key)).then(Vec::new);
            }
            b'{' | b'[' => {
                self.began = true;
                self.levels.push(byte);
                self.at_key = self.levels.len() == 1;
            }
            b'}' | b']' => drop(self.levels.pop()),
            b',' => self.at_key = self.levels.len() == 1,
            _ => {}
        }
    }

    /// True if the bytes end within an object.
    fn is_cut_object(&self) -> bool {
        self.levels.first() == Some(&b'{')
    }

    /// Closes all open brackets except the outermost object.
    fn close(&self, head: &mut Vec<u8>) {
        if self.escaped {
            head.push(b'\\');
        }
        if self.in_string {
            head.push(b'"');
        }
        if self.key.is_some() {
            head.extend_from_slice(b":0");
        }
        for level in self.levels.iter().skip(1).rev() {
            head.push(if *level == b'{' { b'}' } else { b']' });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_outline::KeyOutline;
    use super::*;

    fn head_of(text: &str) -> Vec<u8> {
        let path = std::env::temp_dir().join(format!(
            "loopstore-head-{}",
            loopstore_model::clock::new_uuid()
        ));
        std::fs::write(&path, text).unwrap();
        let head = sniff(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        head.bytes
    }

    #[test]
    fn a_small_file_is_its_own_head() {
        for text in ["", "{\"a\":1}\n{", "[1", "{\"a\":\"b\"}"] {
            assert_eq!(head_of(text), text.as_bytes());
        }
    }

    #[test]
    fn keys_behind_a_long_field_are_seen() {
        for filler in ["x", "\\\"", "é", "\\\\"] {
            for more in 0..4 {
                let long = filler.repeat(HEAD_BYTES as usize) + &"y".repeat(more);
                let text = format!(
                    "{{\"messages\":[{{\"role\":\"{long}\"}}],\"tools\":{{\"x\":1}},\"cost\":2}}"
                );
                let outline = KeyOutline::of(&head_of(&text));
                for key in ["messages[].role", "tools", "cost"] {
                    assert!(outline.has(key), "{filler} {more} {key}");
                }
                assert!(!outline.has("x"));
            }
        }
    }
}
