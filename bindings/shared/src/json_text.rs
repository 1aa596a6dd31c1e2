//! Strings of JSON, read and written piece by piece: characters without an escape are not handled byte by byte.

/// Returns the position of the first byte that needs an escape in a string of JSON: an ASCII character.
pub fn next_special(text: &str) -> Option<usize> {
    /// The number of bytes that are checked at once: the compiler compares all of them in a few instructions.
    const STEP: usize = 32;
    let is_special = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\';
    let (steps, rest) = text.as_bytes().as_chunks::<STEP>();
    for (nth, step) in steps.iter().enumerate() {
        if step.iter().fold(false, |any, byte| any | is_special(byte)) {
            return step.iter().position(is_special).map(|at| nth * STEP + at);
        }
    }
    let at = rest.iter().position(is_special);
    at.map(|at| steps.len() * STEP + at)
}

/// Returns the end of the string at the start of a text, after its closing quote, and `true` if it has escapes.
pub fn string_end(text: &str) -> Option<(usize, bool)> {
    let (mut at, mut has_escapes) = (1, false);
    loop {
        at += next_special(text.get(at..)?)?;
        match text.as_bytes().get(at)? {
            b'"' => return Some((at + 1, has_escapes)),
            b'\\' => {
                has_escapes = true;
                at += 2;
            }
            // JSON strings have no control characters.
            _ => return None,
        }
    }
}

/// Writes a string, as `serde_json` does.
pub fn write_string(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut rest = text;
    while let Some(at) = next_special(rest) {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            other => out.push_str(&format!("\\u{other:04x}")),
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_written_as_serde_writes_them() {
        let every: String = (0..0x250).filter_map(char::from_u32).collect();
        let long = "no quotes here, é and 😀 ".repeat(9);
        let ended = format!("{long}\n\"");
        for text in [
            "",
            "a",
            "\"",
            "\\",
            "\u{1}\u{1f}\u{7f}",
            &every,
            &long,
            &ended,
        ] {
            let mut out = String::new();
            write_string(&mut out, text);
            assert_eq!(out, serde_json::to_string(text).unwrap());
            let end = string_end(&format!("{out}\"x")).map(|(end, _)| end);
            assert_eq!(end, Some(out.len()));
        }
    }

    #[test]
    fn what_is_no_string_has_no_end() {
        for text in ["", "\"", "\"a", "\"\\\"", "\"\\", "\"é\n\"", "\"é\\é"] {
            assert_eq!(string_end(text), None);
        }
        assert_eq!(string_end(r#""\\" "#), Some((4, true)));
    }
}
