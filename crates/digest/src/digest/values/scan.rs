//! Finds values in plain text with their labels: names, paths, numbers, quoted strings.

use super::shape::{Shape, is_value};

/// A value found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScannedValue<'a> {
    /// The value as it is written in the text.
    pub(crate) value: &'a str,
    /// The name before it (`name: value`, `name=value`).
    pub(crate) label: Option<&'a str>,
    /// True if the value is quoted.
    pub(crate) quoted: bool,
}

/// Opening and closing quotes.
const QUOTES: [(char, char); 7] = [
    ('`', '`'),
    ('"', '"'),
    ('\'', '\''),
    ('“', '”'),
    ('「', '」'),
    ('«', '»'),
    ('‘', '’'),
];

/// Calls `each` with every value of `text`. Plain words are skipped.
pub(crate) fn scan<'a>(text: &'a str, each: &mut dyn FnMut(ScannedValue<'a>)) {
    for line in text.lines() {
        named_line(line, each);
        quoted(line, each);
        tokens(line, each);
    }
}

/// Reports the value of a line that is a name and a value of several words.
fn named_line<'a>(line: &'a str, each: &mut dyn FnMut(ScannedValue<'a>)) {
    let rest = line.trim_start_matches(|c: char| c.is_whitespace() || c == '-' || c == '*');
    let Some(at) = memchr::memchr2(b':', b'=', rest.as_bytes()) else {
        return;
    };
    if rest[at..].starts_with("://") {
        return;
    }
    let (label, value) = (rest[..at].trim_end(), rest[at + 1..].trim());
    let names = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | ' ');
    if !label.is_empty()
        && label.chars().count() <= 30
        && label.chars().all(names)
        && value.contains(' ')
        && !is_clause(value)
        && is_value(value)
    {
        let label = Some(label);
        each(ScannedValue {
            value,
            label,
            quoted: false,
        });
    }
}

/// The most words of a value; more are a sentence.
const MOST_WORDS: usize = 8;

/// True if the text after a word and a colon is a sentence: `Note: it was not built.`
fn is_clause(text: &str) -> bool {
    text.ends_with(['.', '!', '?']) || text.split_whitespace().count() > MOST_WORDS
}

fn quoted<'a>(line: &'a str, each: &mut dyn FnMut(ScannedValue<'a>)) {
    let is_plain = line.is_ascii();
    if is_plain && memchr::memchr3(b'`', b'"', b'\'', line.as_bytes()).is_none() {
        return;
    }
    for (open, close) in QUOTES {
        if is_plain && !open.is_ascii() {
            continue;
        }
        let mut from = 0;
        while let Some(start) = line[from..].find(open).map(|at| from + at) {
            let inside = start + open.len_utf8();
            let opens = !line[..start].ends_with(char::is_alphanumeric);
            let Some(end) = line[inside..].find(close).map(|at| inside + at) else {
                break;
            };
            if opens && is_value(&line[inside..end]) {
                each(ScannedValue {
                    value: &line[inside..end],
                    label: label_before(&line[..start]),
                    quoted: true,
                });
            }
            from = if opens {
                end + close.len_utf8()
            } else {
                inside
            };
        }
    }
}

/// Returns the name right before a `:` or `=` that ends `text`.
fn label_before(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let text = text.strip_suffix([':', '='])?;
    let text = text.trim_end().trim_end_matches(['"', '\'', '`']);
    let names = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let start = text
        .char_indices()
        .rev()
        .take_while(|(_, c)| names(*c))
        .last()?
        .0;
    let label = &text[start..];
    (label.len() <= 40 && label.chars().any(char::is_alphabetic)).then_some(label)
}

fn tokens<'a>(line: &'a str, each: &mut dyn FnMut(ScannedValue<'a>)) {
    let mut rest = line;
    while let Some(start) = rest.find(is_token_char) {
        let token = &rest[start..];
        let end = token_end(token);
        let value = trimmed(&token[..end]);
        let is_plain = value.bytes().all(|byte| byte.is_ascii_lowercase());
        if !is_plain && is_value(value) && Shape::of(value) != Shape::Word {
            let before = line.len() - rest.len() + start;
            let label = label_before(&line[..before]);
            // `src/a.rs:12: text` is a position in a listing, not a value with a name.
            let is_place =
                label.is_some_and(|l| l.contains('.')) && Shape::of(value) == Shape::Number;
            if !is_place {
                each(ScannedValue {
                    value,
                    label,
                    quoted: false,
                });
            }
        }
        rest = &token[end..];
    }
}

/// True if a token may contain the character. Scripts without case often have no spaces either, so a run of their
/// letters is no name.
fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '_' | '.' | '-' | '/' | '@' | '+' | '~' | '$' | '#')
        || (!c.is_ascii() && (c.is_lowercase() || c.is_uppercase()))
}

fn token_end(token: &str) -> usize {
    let end = token.find(|c| !is_token_char(c)).unwrap_or(token.len());
    if !token[end..].starts_with("://") {
        return end;
    }
    let stops = |c: char| c.is_whitespace() || c.is_control() || "\"'<>`\\)]}".contains(c);
    token.find(stops).unwrap_or(token.len())
}

fn trimmed(token: &str) -> &str {
    token
        .trim_start_matches(['-', '+', '@', '#'])
        .trim_end_matches(['.', '-', '+', '@', '#', '~', '$', ',', ';', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(Option<&str>, &str)> {
        let mut found = Vec::new();
        scan(text, &mut |f| found.push((f.label, f.value)));
        found
    }

    #[test]
    fn names_go_with_their_values() {
        assert_eq!(
            values("(id=A17B, n: 4711)"),
            [(Some("id"), "A17B"), (Some("n"), "4711")]
        );
        assert_eq!(
            values(r#"{"path": "src/main.rs"}"#),
            [
                (None, "path"),
                (Some("path"), "src/main.rs"),
                (None, "src/main.rs")
            ]
        );
        assert!(values("Note: the build was not run.").is_empty());
        assert_eq!(
            values("- Branch: fix the build")[0],
            (Some("Branch"), "fix the build")
        );
    }

    #[test]
    fn tokens_end_where_names_end() {
        assert_eq!(
            values("see (src/a.rs), v1.2.3."),
            [(None, "src/a.rs"), (None, "v1.2.3")]
        );
        assert_eq!(
            values("at https://a.example/b?c=d&e, or x@y.example!"),
            [(None, "https://a.example/b?c=d&e"), (None, "x@y.example")]
        );
        assert_eq!(values("订单号WQ150的航班"), [(None, "WQ150")]);
        assert_eq!(values("it's a dog's life"), []);
        assert_eq!(values("「注文番号」"), [(None, "注文番号")]);
    }
}
