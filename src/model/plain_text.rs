//! JSON as words, for readers of text.

use serde::de::IgnoredAny;

use super::json::Json;

impl Json {
    /// Returns the names and values of JSON without its punctuation: `path: src/a.rs, line: 3`. What only a
    /// provider can read (`encrypted_content`, `encrypted_stdout`) is left out.
    pub(crate) fn plain_text(&self) -> String {
        let text = self.as_str();
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        // Where the last string begins, and whether it names what is encrypted.
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
                    is_encrypted = c == ':' && out[last..].starts_with("encrypted_");
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
}

/// Adds the string that `text` begins with, and returns its length in the text.
fn string(text: &str, out: &mut String) -> usize {
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    if let Some(Ok(string)) = strings.next() {
        out.push_str(&string);
        return strings.byte_offset();
    }
    // Half of a surrogate pair: no text, but JSON.
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
    fn what_is_no_string_ends_with_the_text() {
        for (text, length) in [("\"abc", 4), ("\"a\\ud800b\",1", 10), ("\"é\",1", 4)] {
            assert_eq!(string(text, &mut String::new()), length, "{text}");
        }
    }
}
