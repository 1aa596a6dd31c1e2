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

/// Reads a date or a time: `2026-01-31`, `2026-01-31 12:00`, `2026-01-31T12:00:00Z`, `today`, `yesterday`, `now`, or how
/// long ago it was: `7d`, `12h`. Without a zone it is UTC.
pub fn time(text: &str, edge: Edge) -> Option<Time> {
    time_at(text, edge, Time::now().millis().unwrap_or_default())
}

/// The milliseconds of a day.
const DAY: i64 = 24 * 60 * 60_000;

fn time_at(text: &str, edge: Edge, now: i64) -> Option<Time> {
    let day = now - now.rem_euclid(DAY);
    let of_day = |begin: i64| match edge {
        Edge::Start => begin,
        Edge::End => begin + DAY - 1,
    };
    let millis = match text {
        "now" => Some(now),
        "today" => Some(of_day(day)),
        "yesterday" => Some(of_day(day - DAY)),
        // An id may begin with zeros.
        _ if text.starts_with('0') => None,
        _ => duration(text).ok().map(|before| now - before),
    };
    if let Some(millis) = millis {
        return Time::from_millis(millis);
    }
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
        format!(
            "invalid time `{given}`; expected 2026-01-31, 2026-01-31T12:00:00Z, yesterday, or 7d for seven days ago"
        )
    })
}

/// The maximum duration in days: a thousand years.
const MOST_DAYS: i64 = 365_250;

/// Reads a duration in milliseconds: a number with s, m, h, d, w or y, such as `30d`.
pub fn duration(text: &str) -> Result<i64, String> {
    let wrong = || {
        let given = super::text::line(text);
        format!(
            "`{given}` is not a duration; expected a number with s, m, h, d, w or y, such as 30d"
        )
    };
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let seconds: i64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => DAY / 1_000,
        "w" => 7 * DAY / 1_000,
        "y" => 365 * DAY / 1_000,
        _ => return Err(wrong()),
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let millis = number
        .checked_mul(seconds)
        .and_then(|seconds| seconds.checked_mul(1_000));
    millis
        .filter(|millis| *millis <= MOST_DAYS * DAY)
        .ok_or_else(|| "more than a thousand years".to_owned())
}

/// Reads an age in milliseconds: a duration, or the date or time since which it counts.
pub fn age(text: &str) -> Result<i64, String> {
    age_at(text, Time::now().millis().unwrap_or_default())
}

fn age_at(text: &str, now: i64) -> Result<i64, String> {
    let wrong = match duration(text) {
        Ok(age) => return Ok(age),
        Err(wrong) => wrong,
    };
    let since = time_at(text, Edge::Start, now).and_then(|time| time.millis());
    let since = since.ok_or_else(|| match text.starts_with(|c: char| c.is_ascii_digit()) {
        true if wrong.starts_with("more") => wrong,
        _ => format!("{wrong}, or a date"),
    })?;
    let age = now.checked_sub(since).filter(|age| *age >= 0);
    age.ok_or_else(|| format!("{} is in the future", super::text::line(text)))
}

/// Reads a number of seconds: `90`, `90s`, `2m`.
pub fn seconds(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let millis = duration(text).map_err(|_| {
        let given = super::text::line(text);
        format!("`{given}` is not a duration; expected seconds, or a number with s, m, h or d")
    })?;
    Ok(millis.unsigned_abs() / 1_000)
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
    fn a_duration_is_a_number_and_a_unit() {
        assert_eq!(duration("30d"), Ok(30 * DAY));
        assert_eq!(duration("90m"), Ok(90 * 60 * 1000));
        assert_eq!(duration("0d"), Ok(0));
        for bad in [
            "",
            "d",
            "30",
            "-1d",
            "1.5d",
            "30 d",
            "30days",
            "١d",
            "1d; DROP TABLE",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        for huge in ["99999999999999999999d", "9223372036854775807y", "1001y"] {
            assert!(duration(huge).is_err(), "{huge}");
        }
    }

    #[test]
    fn times_are_dates_words_or_durations() {
        // 2026-11-28 13:20:00 UTC
        let now = 1_795_872_000_000;
        for (text, edge, expected) in [
            ("now", Edge::Start, Some(now)),
            ("7d", Edge::End, Some(now - 7 * DAY)),
            ("90s", Edge::Start, Some(now - 90_000)),
            ("today", Edge::Start, Some(1_795_824_000_000)),
            ("yesterday", Edge::Start, Some(1_795_824_000_000 - DAY)),
            ("yesterday", Edge::End, Some(1_795_824_000_000 - 1)),
            ("2026-11-28", Edge::Start, Some(1_795_824_000_000)),
            // The beginning of an id of a run.
            ("0190d", Edge::Start, None),
            ("7", Edge::Start, None),
            ("-7d", Edge::Start, None),
            ("7 d", Edge::Start, None),
            ("tomorrow", Edge::Start, None),
            ("", Edge::Start, None),
        ] {
            let found = time_at(text, edge, now).and_then(|time| time.millis());
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(age_at("2w", now), Ok(14 * DAY));
        assert_eq!(age_at("2026-11-27", now), Ok(now - 1_795_824_000_000 + DAY));
        assert_eq!(age_at("yesterday", now), Ok(now - 1_795_824_000_000 + DAY));
        for bad in [
            "",
            "d",
            "30",
            "30x",
            "2026-11-29",
            "9999999y",
            "99999999999999999999d",
            "soon",
        ] {
            assert!(age_at(bad, now).is_err(), "{bad}");
        }
        assert_eq!((seconds("90"), seconds("2m")), (Ok(90), Ok(120)));
        assert!(seconds("2x").is_err() && seconds("-1").is_err());
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
