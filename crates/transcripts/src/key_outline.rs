//! The keys at the beginning of a JSON file: enough to distinguish formats.

use std::collections::BTreeSet;

/// Deeper keys are not collected.
const MAX_DEPTH: usize = 4;

/// The keys of the first JSON value of a file, as paths such as `loops[].loop_id`.
pub(super) struct KeyOutline(BTreeSet<String>);

enum OutlineLevel {
    List,
    Object(String),
}

impl KeyOutline {
    /// Reads the first JSON value as far as `head` contains it. A head that is not JSON, or not in UTF-8, has no keys.
    pub(super) fn of(head: &[u8]) -> Self {
        let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
        let mut outline = Self(BTreeSet::new());
        let (mut levels, mut at, mut key_next) = (Vec::new(), 0, false);
        while let Some(byte) = head.get(at) {
            at += 1;
            match byte {
                b'{' => levels.push(OutlineLevel::Object(String::new())),
                b'[' => levels.push(OutlineLevel::List),
                b'}' | b']' => drop(levels.pop()),
                b'"' => {
                    let end = string_end(head, at);
                    if let (true, Some(OutlineLevel::Object(key))) = (key_next, levels.last_mut()) {
                        *key = String::from_utf8_lossy(&head[at..end]).into_owned();
                        outline.note(&levels);
                    }
                    at = end + 1;
                }
                _ => {}
            }
            if levels.is_empty() && !byte.is_ascii_whitespace() {
                break;
            }
            let in_object = matches!(levels.last(), Some(OutlineLevel::Object(_)));
            key_next = in_object
                && (matches!(byte, b'{' | b',') || key_next && byte.is_ascii_whitespace());
        }
        outline
    }

    /// True if the key at `path` was seen.
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains(path)
    }

    fn note(&mut self, levels: &[OutlineLevel]) {
        if levels.len() > MAX_DEPTH {
            return;
        }
        let mut path = String::new();
        for level in levels {
            match level {
                OutlineLevel::List => path.push_str("[]"),
                OutlineLevel::Object(key) if path.is_empty() => path.push_str(key),
                OutlineLevel::Object(key) => path = format!("{path}.{key}"),
            }
        }
        self.0.insert(path);
    }
}

/// Returns the index of the closing quote of a string whose content begins at `at`.
fn string_end(head: &[u8], mut at: usize) -> usize {
    while at < head.len() && head[at] != b'"' {
        at += if head[at] == b'\\' { 2 } else { 1 };
    }
    at.min(head.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths_whatever_the_layout() {
        let outline =
            KeyOutline::of(b"\xEF\xBB\xBF \n{ \"a\" : {\"b\":[ {\"c\":\"d, {\"} ] }\n,\"e\" :[1");
        let paths: Vec<&str> = outline.0.iter().map(String::as_str).collect();
        assert_eq!(paths, ["a", "a.b", "a.b[].c", "e"]);
        assert!(KeyOutline::of(b"[{\"role\":1}]").has("[].role"));
    }

    #[test]
    fn only_the_first_value_counts_and_junk_has_no_keys() {
        assert!(!KeyOutline::of(b"{\"a\":1}\n{\"b\":1}").has("b"));
        for junk in [
            &b"x{\"a\":1}"[..],
            b"\xFF\xFE{\0\"\0",
            b"",
            b"{\"",
            b"}{\"a\":1}",
            b"\"\\",
        ] {
            assert!(!KeyOutline::of(junk).has("a"));
        }
        KeyOutline::of(&b"[".repeat(65_536));
    }
}
