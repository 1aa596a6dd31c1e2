//! JSON as text for people: as words, or without the parts that only a provider can read.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use super::json::Json;

impl Json {
    /// Returns the names and values of JSON without its punctuation: `path: src/a.rs, line: 3`. Texts that only a
    /// provider can read (`encrypted_content`, the `fingerprint` of a program) are left out.
    #[doc(hidden)]
    pub fn plain_text(&self) -> String {
        let text = self.as_str();
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        // The beginning of the last string, and whether it is the name of an encrypted value.
        let (mut last, mut is_encrypted) = (0, false);
        while let Some(c) = text[at..].chars().next() {
            let length = match c {
                '"' => {
                    last = out.len();
                    let length = string(&text[at..], &mut out);
                    if std::mem::take(&mut is_encrypted) {
                        out.truncate(last);
                    }
                    length
                }
                _ => {
                    is_encrypted = c == ':' && is_sealed(&out[last..], text);
                    match c {
                        '{' | '[' => {}
                        '}' | ']' => {}
                        ':' => out.push_str(": "),
                        ',' => out.push_str(", "),
                        c => out.push(c),
                    }
                    c.len_utf8()
                }
            };
            at += length;
        }
        out
    }

    /// Returns the JSON with each text that only a provider can read (`encrypted_content`, the `fingerprint` of a
    /// program) replaced by its size.
    ///
    /// ```
    /// use loopstore_model::Json;
    ///
    /// let item = Json::parse(r#"{"type":"search","encrypted_content":"gAAAAA"}"#)?;
    /// assert_eq!(item.readable(), r#"{"type":"search","encrypted_content":"(sealed, 6 bytes)"}"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn readable(&self) -> Cow<'_, str> {
        let text = self.as_str();
        let (mut out, mut shown) = (String::new(), 0);
        let (mut name, mut is_hidden) = (String::new(), false);
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            if c == '"' {
                name.clear();
                let length = string(&text[at..], &mut name);
                if std::mem::take(&mut is_hidden) {
                    out.push_str(&text[shown..at]);
                    out.push_str(&format!("\"(sealed, {} bytes)\"", name.len()));
                    shown = at + length;
                }
                at += length;
            } else {
                is_hidden = c == ':' && is_sealed(&name, text);
                at += c.len_utf8();
            }
        }
        match shown {
            0 => Cow::Borrowed(text),
            _ => Cow::Owned(out + &text[shown..]),
        }
    }
}

/// True if only a provider can read the value of a name.
fn is_sealed(name: &str, text: &str) -> bool {
    name.starts_with("encrypted_") || name == "fingerprint" && text.contains("\"program\"")
}

/// Adds the string at the beginning of `text` to `out`, and returns its length in `text`.
fn string(text: &str, out: &mut String) -> usize {
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    if let Some(Ok(string)) = strings.next() {
        out.push_str(&string);
        return strings.byte_offset();
    }
    // Half of a surrogate pair is valid JSON, but no text.
    let mut any = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let is_one = matches!(any.next(), Some(Ok(_)));
    let end = if is_one {
        any.byte_offset()
    } else {
        text.len()
    };
    out.push_str(&text[..end]);
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_names_and_values() {
        let json = r#"{"path":"src/\"a\".rs","lines":[1.50,2],"text":"a\nb","on":true,"no":{}}"#;
        let json = Json::parse(json).unwrap();
        let plain = json.plain_text();
        assert_eq!(
            plain,
            "path: src/\"a\".rs, lines: 1.50, 2, text: a\nb, on: true, no: "
        );
    }

    #[test]
    fn what_is_encrypted_is_left_out() {
        let json = r#"{"encrypted_content":"gAAA","url":"encrypted_x","encrypted_index":[1,"b"]}"#;
        let json = Json::parse(json).unwrap();
        let expected = "encrypted_content: , url: encrypted_x, encrypted_index: 1, b";
        assert_eq!(json.plain_text(), expected);
    }

    #[test]
    fn people_see_the_size_of_what_is_sealed_and_all_the_rest() {
        let readable = |json: &str| Json::parse(json).unwrap().readable().into_owned();
        let program = r#"{"type":"program","code":"a: \"b\"","fingerprint":"fp\u00e9","id":"p"}"#;
        let expected =
            r#"{"type":"program","code":"a: \"b\"","fingerprint":"(sealed, 4 bytes)","id":"p"}"#;
        assert_eq!(readable(program), expected);
        // A host's fingerprint is anybody's, and what is no text has nothing to hide.
        for whole in [
            r#"{"type":"host","fingerprint":"ab:cd"}"#,
            r#"{"encrypted_index":[1,"b"],"x":{"url":"encrypted_x"}}"#,
            r#"["encrypted_content","b"]"#,
        ] {
            assert_eq!(readable(whole), whole);
        }
        let nested = r#"[{"encrypted_stdout":"gA"},{"encrypted_content":""}]"#;
        let expected = r#"[{"encrypted_stdout":"(sealed, 2 bytes)"},{"encrypted_content":"(sealed, 0 bytes)"}]"#;
        assert_eq!(readable(nested), expected);
    }

    #[test]
    fn what_is_no_string_ends_with_the_text() {
        for (text, length) in [("\"abc", 4), ("\"a\\ud800b\",1", 10), ("\"é\",1", 4)] {
            assert_eq!(string(text, &mut String::new()), length, "{text}");
        }
    }
}
