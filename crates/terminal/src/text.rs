//! Numbers, times and foreign text in a form for people.

use std::borrow::Cow;

use loopstore::Time;
use loopstore::failpoints::{self, Failpoint};
use loopstore_export::visible;
use unicode_width::UnicodeWidthChar;

/// Returns the text with escapes such as `\u{1b}` for control characters and invisible characters, except line ends
/// and tabs.
pub fn clean(text: &str) -> Cow<'_, str> {
    match failpoints::is_active(Failpoint::RawEscape) {
        true => Cow::Borrowed(text),
        false => visible(text),
    }
}

/// Returns the text on one line: line ends and tabs are shown as `\n` and `\t`.
pub fn line(text: &str) -> String {
    clean(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Returns the last part of a folder's path.
pub fn folder(path: &str) -> &str {
    let path = path.trim_end_matches(['/', '\\']);
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Returns a word for a shell: unchanged, or in quotes.
pub fn quoted(word: &str) -> String {
    match is_plain(word) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// True if a word needs no quotes in a command line.
pub fn is_plain(word: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || "-_./:@+,=%".contains(c);
    !word.is_empty() && word.chars().all(fits) && !word.starts_with('-')
}

/// Returns the number of columns of a line.
pub fn columns(line: &str) -> usize {
    line.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Cuts a line to a number of columns, with `…` in place of the rest.
pub fn fit(line: &str, width: usize) -> Cow<'_, str> {
    if columns(line) <= width {
        return Cow::Borrowed(line);
    }
    let (mut out, mut used) = (String::new(), 1);
    for c in line.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(c);
    }
    if width > 0 {
        out.push('…');
    }
    Cow::Owned(out)
}

/// Writes a number with separators of thousands: `12,345`.
pub fn number(number: impl TryInto<i128>) -> String {
    let Ok(number) = number.try_into() else {
        return String::new();
    };
    let digits = number.unsigned_abs().to_string();
    let mut out = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Writes a number with its noun: `1 turn`, `2 turns`.
pub fn count(count: impl TryInto<i128>, one: &str) -> String {
    let Ok(count) = count.try_into() else {
        return String::new();
    };
    let end = if count == 1 { "" } else { "s" };
    format!("{} {one}{end}", number(count))
}

/// Writes a size: `512 bytes`, `1.5 KiB`.
pub fn bytes(bytes: u64) -> String {
    let mut size = bytes as f64;
    if size < 1024.0 {
        return format!("{bytes} bytes");
    }
    for unit in ["KiB", "MiB", "GiB"] {
        size /= 1024.0;
        if size < 1024.0 {
            return format!("{size:.1} {unit}");
        }
    }
    format!("{:.1} TiB", size / 1024.0)
}

/// Writes a time to the second in UTC. Any other text is unchanged.
pub fn time(text: &str) -> String {
    match Time::from_text(text).parse() {
        Some(time) => time.format("%Y-%m-%d %H:%M:%S").to_string(),
        None => line(text),
    }
}

/// Writes turns: `3`, `0-9`.
pub fn turns(first: impl Into<i64>, last: impl Into<i64>) -> String {
    let (first, last) = (first.into(), last.into());
    if first == last {
        return first.to_string();
    }
    format!("{first}-{last}")
}

/// Returns the first `most` lines, and a line with the number of further lines.
pub fn at_most(lines: impl ExactSizeIterator<Item = String>, most: usize) -> Vec<String> {
    let more = lines.len().saturating_sub(most);
    let mut shown: Vec<String> = lines.take(most).collect();
    if more > 0 {
        shown.push(format!("and {} more; --json lists all", number(more)));
    }
    shown
}

/// Writes the share of `part` in `whole`: `18 %`.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    format!("{:.0} %", part as f64 * 100.0 / whole as f64)
}

/// Writes the number of replaced secrets of each type.
pub fn secrets(counts: &std::collections::BTreeMap<String, u64>) -> String {
    let all: u64 = counts.values().sum();
    if all == 0 {
        return "no new secrets".into();
    }
    let each = counts
        .iter()
        .map(|(kind, count)| format!("{kind} {}", number(*count)));
    let each: Vec<String> = each.collect();
    format!("{} replaced: {}", count(all, "secret"), each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_shown() {
        assert_eq!(clean("a\u{1b}[31mb\r\n\tc"), "a\\u{1b}[31mb\\u{d}\n\tc");
        assert_eq!(clean("\u{9b}2J\u{202e}"), "\\u{9b}2J\\u{202e}");
        assert_eq!(line("a\nb\0"), "a\\nb\\u{0}");
    }

    #[test]
    fn a_folder_is_named_by_its_last_part() {
        for (path, name) in [
            ("/a/b", "b"),
            ("/a/b/", "b"),
            ("C:\\a\\b c", "b c"),
            ("b", "b"),
            ("/", ""),
        ] {
            assert_eq!(folder(path), name);
        }
    }

    #[test]
    fn lines_are_cut_by_columns() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("ab", 0), "");
    }

    #[test]
    fn numbers_sizes_and_times_are_readable() {
        assert_eq!(number(1_234_567_u64), "1,234,567");
        assert_eq!(number(-1000_i64), "-1,000");
        assert_eq!(number(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(count(1_u64, "turn"), "1 turn");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
        assert_eq!(time("2026-01-02T03:04:05.678+02:00"), "2026-01-02 01:04:05");
        assert_eq!(time("soon\n"), "soon\\n");
    }
}
