//! Amounts and ranges as people type them.

use loopstore::Time;

/// Reads a number of tokens: `8000`, `8k` (8,000), `1.5m` (1,500,000); digits may be grouped by `_` or `,`.
pub fn tokens(text: &str) -> Result<u64, String> {
    let expected = || format!("`{text}` is not a number of tokens; expected 8000, 8k or 1.5m");
    let plain: String = text.chars().filter(|c| !matches!(c, '_' | ',')).collect();
    let (digits, factor) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1_000),
        Some((at, 'm' | 'M')) => (&plain[..at], 1_000_000),
        _ => (&plain[..], 1),
    };
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_rest = digits.contains('.');
    if whole.is_empty() || !is_digits(digits.trim_matches('.').replace('.', "").as_str()) {
        return Err(expected());
    }
    if has_rest && (factor == 1 || rest.is_empty() || rest.len() > 3 || !is_digits(rest)) {
        return Err(expected());
    }
    let number = |text: &str| text.parse::<u64>().map_err(|_| expected());
    let whole = number(whole)?.checked_mul(factor).ok_or_else(expected)?;
    if rest.is_empty() {
        return Ok(whole);
    }
    let part = number(rest)? * factor / 10_u64.pow(rest.len() as u32);
    whole.checked_add(part).ok_or_else(expected)
}

/// Reads a number of bytes, as [`tokens`] reads tokens: `4000`, `4k` (4,000).
pub fn bytes(text: &str) -> Result<u64, String> {
    let expected = |_| format!("`{text}` is not a number of bytes; expected 4000 or 4k");
    tokens(text).map_err(expected)
}

/// As [`tokens`], but at least 1.
pub fn some_tokens(text: &str) -> Result<u64, String> {
    match tokens(text)? {
        0 => Err("expected at least 1".into()),
        tokens => Ok(tokens),
    }
}

/// Reads a range of turns with both ends included: `0..4`, `0..=4`, `0-4`, or `3` for one.
pub fn turns(text: &str) -> Result<(u32, u32), String> {
    let ends = ["..=", "..", "-"]
        .iter()
        .find_map(|between| text.split_once(between));
    let (first, last) = ends.unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) => Ok((first, last)),
        _ => Err(format!(
            "`{}` is not a range of turns; expected A..B, such as 0..4",
            super::text::line(text)
        )),
    }
}

/// The edge of the day or minute that a text without seconds denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The start of the day or minute.
    Start,
    /// The end of the day or minute.
    End,
}

/// Reads a date or a time: `2026-01-31`, `2026-01-31 12:00`, `2026-01-31T12:00:00Z`. Without a zone it is UTC.
pub fn time(text: &str, edge: Edge) -> Option<Time> {
    let rest = match (text.len(), edge) {
        (10, Edge::Start) => "T00:00:00",
        (10, Edge::End) => "T23:59:59.999999999",
        (16, Edge::Start) => ":00",
        (16, Edge::End) => ":59.999999999",
        _ => "",
    };
    let time = Time::from_text(text.replacen(' ', "T", 1) + rest);
    time.parse().is_some().then_some(time)
}

/// As [`time`], with a message for any other text.
pub fn parse_time(text: &str, edge: Edge) -> Result<Time, String> {
    time(text, edge).ok_or_else(|| {
        let given = super::text::line(text);
        format!("invalid time `{given}`; expected 2026-01-31 or 2026-01-31T12:00:00Z")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_people_type_them() {
        for (text, expected) in [
            ("0", 0),
            ("8000", 8_000),
            ("8k", 8_000),
            ("8K", 8_000),
            ("1.5m", 1_500_000),
            ("0.125k", 125),
            ("128_000", 128_000),
            ("128,000", 128_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(tokens(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "+8k",
            "8kk",
            "8 k",
            "1.5",
            "1.k",
            ".5k",
            "1.2345k",
            "1.2.3k",
            "8b",
            "99999999999999999999",
            "18446744073709551615k",
            "８k",
            "\u{1b}[31m",
        ] {
            assert!(tokens(text).is_err(), "{text}");
        }
        assert!(some_tokens("0").is_err());
    }

    #[test]
    fn turns_have_two_ends_or_one() {
        for (text, expected) in [
            ("0..4", (0, 4)),
            ("0..=4", (0, 4)),
            ("0-4", (0, 4)),
            ("7", (7, 7)),
        ] {
            assert_eq!(turns(text), Ok(expected), "{text}");
        }
        for text in ["", "..", "-", "-3", "1..", "a..b", "1..2..3", "1-2-3"] {
            assert!(turns(text).is_err(), "{text}");
        }
    }
}
