//! Expressions of gitleaks, changed to end where the secret ends.

use regex::bytes::{Regex, RegexBuilder};

/// The most bytes of a compiled expression.
const MAX_COMPILED: usize = 64 << 20;

/// The end that gitleaks requires after most secrets; it includes neither `&`, `)` nor a comma.
const TERMINATOR: &str = r#"(?:[\x60'"\s;]|\\[nr]|$)"#;

/// Returns the compiled expression; `None` if it is invalid.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    // Without Unicode, the expressions are small and have the same meaning as in gitleaks.
    let build = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        builder.unicode(false).size_limit(MAX_COMPILED).build().ok()
    };
    // In Go, a brace that is no repetition is literal.
    build(pattern).or_else(|| build(&with_plain_braces(pattern)))
}

/// Returns the expression that accepts any character outside of the secret's alphabet after it, where the original
/// requires a space, a quote or an end.
pub(super) fn with_own_end(pattern: &str) -> String {
    let Some(body) = pattern.strip_suffix(TERMINATOR) else {
        return pattern.to_owned();
    };
    let classes = classes(last_group(body)).concat();
    match classes.is_empty() {
        true => format!("{body}(?:[^A-Za-z0-9_]|$)"),
        false => format!("{body}(?:(?i:[^{classes}])|\\\\[nr]|$)"),
    }
}

/// Returns the group at the end of an expression; the whole expression if there is none.
fn last_group(pattern: &str) -> &str {
    let (mut open, mut last) = (Vec::new(), None);
    for token in tokens(pattern) {
        match &pattern[token.clone()] {
            "(" => open.push(token.start),
            ")" => last = open.pop().map(|start| (start, token.end)),
            _ => {}
        }
    }
    match last {
        Some((start, end)) if end == pattern.len() => &pattern[start..],
        _ => pattern,
    }
}

/// Returns the character classes of an expression as text.
fn classes(pattern: &str) -> Vec<String> {
    let tokens = tokens(pattern);
    let classes = tokens.filter_map(|token| match &pattern[token] {
        // A negated class is left out: its excluded characters may end the secret.
        class if class.starts_with('[') && !class.starts_with("[^") => Some(class.to_owned()),
        class @ (r"\w" | r"\d") => Some(format!("[{class}]")),
        _ => None,
    });
    classes.collect()
}

/// Splits an expression into characters, escapes and classes.
fn tokens(pattern: &str) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let rest = &pattern[start..];
        let first = rest.chars().next()?;
        at += match first {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '[' => class_length(rest),
            _ => first.len_utf8(),
        };
        Some(start..at)
    })
}

/// Returns the length of the class at the beginning of a text.
fn class_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    let mut depth = 1;
    chars.next_if(|(_, c)| *c == '^');
    chars.next_if(|(_, c)| *c == ']');
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            // `[[:alnum:]]`
            '[' if chars.peek().is_some_and(|(_, c)| *c == ':') => depth += 1,
            ']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Escapes each opening brace that is no repetition.
fn with_plain_braces(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut is_escaped = false;
    for (at, c) in pattern.char_indices() {
        let counts = pattern[at + c.len_utf8()..].starts_with(|c: char| c.is_ascii_digit());
        if c == '{' && !is_escaped && !counts {
            out.push('\\');
        }
        out.push(c);
        is_escaped = c == '\\' && !is_escaped;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_of_a_secret_ends_it() {
        let end = |body: &str| {
            let whole = with_own_end(&format!("{body}{TERMINATOR}"));
            whole[body.len()..].to_owned()
        };
        assert_eq!(end(r"\b(AIza[\w-]{35})"), r"(?:(?i:[^[\w-]])|\\[nr]|$)");
        assert_eq!(
            end(r#"[x](p[^/]|[\w.=-]{2}|[]a][a-z+/]+={0,3})"#),
            r"(?:(?i:[^[\w.=-][]a][a-z+/]])|\\[nr]|$)"
        );
        assert_eq!(end("(abc)"), "(?:[^A-Za-z0-9_]|$)");
        assert_eq!(with_own_end("ghp_[0-9]{3}"), "ghp_[0-9]{3}");
        let key = compile(&with_own_end(&format!(r"\b(k_[a-z]{{3}}){TERMINATOR}"))).unwrap();
        for text in [
            "k_abc", "k_abc&x", "(k_abc)", "k_abc.", "k_abc<", "k_abc|", "k_abc-",
        ] {
            assert!(key.is_match(text.as_bytes()), "{text}");
        }
        for text in ["k_abcd", "k_abcD", "xk_abc"] {
            assert!(!key.is_match(text.as_bytes()), "{text}");
        }
    }
}
