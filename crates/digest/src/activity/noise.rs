//! Removes what only a terminal needs from tool output: colours, line numbers, progress, times.

use std::borrow::Cow;
use std::ops::Range;

use super::tables::output;

/// The number of consecutive lines of one kind whose noise is removed; fewer may be coincidence.
const ALIKE: usize = 3;

/// Returns `text` without escape sequences, overwritten lines, consecutive line numbers, progress, times before
/// lines, and the columns of `ls -l`. The rest is unchanged.
pub fn clean(text: &str) -> Cow<'_, str> {
    let is_raw = memchr::memchr2(b'\x1b', b'\r', text.as_bytes()).is_some();
    let shown = match is_raw {
        true => on_screen(text),
        false => Cow::Borrowed(text),
    };
    let noise = noise_of(&shown);
    match noise.is_empty() {
        true => shown,
        false => Cow::Owned(without(&shown, &noise)),
    }
}

fn without(text: &str, noise: &[Range<usize>]) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    for range in noise {
        kept.push_str(&text[at..range.start]);
        at = range.end;
    }
    kept.push_str(&text[at..]);
    kept
}

/// Returns the text that a terminal shows: no escape sequences, and only the last state of an overwritten line.
fn on_screen(text: &str) -> Cow<'_, str> {
    let mut shown = String::with_capacity(text.len());
    let mut line = 0;
    let mut rest = text;
    while let Some(at) = rest.find(['\x1b', '\r', '\n']) {
        shown.push_str(&rest[..at]);
        let behind = &rest[at..];
        rest = if let Some(next) = behind.strip_prefix('\n') {
            shown.push('\n');
            line = shown.len();
            next
        } else if behind.starts_with('\r') {
            let next = behind.trim_start_matches('\r');
            // `\r` before `\n` or at the end of the text overwrites nothing.
            if next.starts_with('\n') {
                shown.push_str(&behind[..behind.len() - next.len()]);
            } else if !next.is_empty() {
                shown.truncate(line);
            }
            next
        } else {
            &behind[escape(behind)..]
        };
    }
    shown.push_str(rest);
    match shown.len() == text.len() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(shown),
    }
}

/// Returns the length of the escape sequence at the beginning of `text`, in bytes.
fn escape(text: &str) -> usize {
    let bytes = text.as_bytes();
    let whole = match bytes.get(1) {
        Some(b'[') => bytes[2..]
            .iter()
            .position(|b| (0x40..=0x7e).contains(b))
            .map(|at| at + 3),
        // A title or a link ends with a bell or another escape.
        Some(b']') => {
            let end = memchr::memchr2(0x07, 0x1b, &bytes[2..]).map(|at| at + 2);
            end.map(|at| {
                at + 1 + usize::from(bytes[at] == 0x1b && bytes.get(at + 1) == Some(&b'\\'))
            })
        }
        Some(b) if b.is_ascii() => Some(2),
        _ => Some(1),
    };
    // Without an end there is no sequence, and only the escape character is removed.
    whole.filter(|length| *length <= 4_096).unwrap_or(1)
}

#[derive(Clone, Copy, PartialEq)]
enum LineKind<'a> {
    /// A line number and its separator.
    Numbered(u64, &'a str),
    Timed,
    Listed,
    /// Progress, with the first word of the line.
    Progress(&'a str),
}

/// Consecutive lines of one kind.
#[derive(Default)]
struct LineRun<'a> {
    last: Option<LineKind<'a>>,
    ranges: Vec<Range<usize>>,
}

impl<'a> LineRun<'a> {
    fn end(&mut self, noise: &mut Vec<Range<usize>>) {
        if self.ranges.len() >= ALIKE {
            // The last state of progress is kept.
            if matches!(self.last, Some(LineKind::Progress(_))) {
                self.ranges.pop();
            }
            noise.append(&mut self.ranges);
        }
        self.ranges.clear();
        self.last = None;
    }

    fn continues(&self, kind: LineKind<'a>) -> bool {
        match (self.last, kind) {
            (Some(LineKind::Numbered(last, by)), LineKind::Numbered(next, with)) => {
                next == last + 1 && by == with
            }
            (Some(last), kind) => last == kind,
            (None, _) => true,
        }
    }
}

fn noise_of(text: &str) -> Vec<Range<usize>> {
    let mut noise = Vec::new();
    let mut run = LineRun::default();
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
    for end in ends.chain([text.len()]) {
        let line = &text[start..end];
        match kind_of(line) {
            Some((kind, range)) => {
                if !run.continues(kind) {
                    run.end(&mut noise);
                }
                run.last = Some(kind);
                run.ranges.push(start + range.start..start + range.end);
            }
            None => run.end(&mut noise),
        }
        start = end;
    }
    run.end(&mut noise);
    noise
}

/// Returns the kind of a line, and the range of its noise.
fn kind_of(line: &str) -> Option<(LineKind<'_>, Range<usize>)> {
    let bytes = line.as_bytes();
    let first = *bytes.iter().find(|b| **b != b' ')?;
    if first.is_ascii_digit() || first == b'[' {
        let found = time(bytes).map(|end| (LineKind::Timed, 0..end));
        if let Some(found) = found.or_else(|| numbered(line)) {
            return Some(found);
        }
    }
    if matches!(first, b'-' | b'd' | b'l')
        && let Some(name) = listed(line)
    {
        return Some((LineKind::Listed, 0..name));
    }
    progress(line).map(|word| (LineKind::Progress(word), 0..line.len()))
}

fn numbered(line: &str) -> Option<(LineKind<'_>, Range<usize>)> {
    let from = line.len() - line.trim_start_matches(' ').len();
    let digits = line[from..].bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=7).contains(&digits) {
        return None;
    }
    let behind = &line[from + digits..];
    let mark = output::NUMBER_MARKS
        .iter()
        .find(|mark| behind.starts_with(**mark))?;
    let number = line[from..from + digits].parse().ok()?;
    // `| ` and `|` before an empty line are one separator.
    let name = mark.trim();
    let name = match name {
        "" => "\t",
        // A search separates matches by `:` and the lines around them by `-`.
        "-" => ":",
        name => name,
    };
    Some((
        LineKind::Numbered(number, name),
        0..from + digits + mark.len(),
    ))
}

/// Returns the end of a time at the beginning of a line, including the spaces after it.
fn time(line: &[u8]) -> Option<usize> {
    let open = usize::from(line.first() == Some(&b'['));
    let text = &line[open..];
    let shape = |text: &[u8], shape: &[u8]| {
        text.len() >= shape.len()
            && text.iter().zip(shape).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                form => byte == form,
            })
    };
    let mut at = 0;
    if shape(text, b"0000-00-00") || shape(text, b"0000/00/00") {
        at = 10;
        if !matches!(text.get(at), Some(b'T' | b' ')) {
            return None;
        }
        at += 1;
    }
    if !shape(&text[at..], b"00:00:00") {
        return None;
    }
    at += 8;
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'Z' | b'+');
    at += text[at..]
        .iter()
        .take_while(|byte| is_part(byte))
        .take(16)
        .count();
    if open == 1 {
        at += usize::from(text.get(at) == Some(&b']'));
    }
    at += text[at..].iter().take_while(|byte| **byte == b' ').count();
    (at < text.len()).then_some(open + at)
}

/// Returns the position of the name in a row of `ls -l`.
fn listed(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let rights = bytes.get(1..10)?;
    if !rights.iter().all(|byte| b"rwxsStT-".contains(byte)) {
        return None;
    }
    // Rights, links, owner, group, size, month, day, time or year: eight columns before the name.
    let mut at = 0;
    for _ in 0..8 {
        at += bytes[at..].iter().position(|byte| *byte == b' ')?;
        at += bytes[at..].iter().position(|byte| *byte != b' ')?;
    }
    Some(at)
}

/// Returns the first word of a progress line; `None` for other lines.
fn progress(line: &str) -> Option<&str> {
    let line = line.trim();
    if line.len() > 400 || line.ends_with("%]") {
        return None;
    }
    let first = line.chars().next()?;
    let has_share = || {
        let mut shares = memchr::memchr_iter(b'%', line.as_bytes());
        shares.any(|at| at > 0 && line.as_bytes()[at - 1].is_ascii_digit())
    };
    let is_bar = |c: char| output::BARS.contains(&c);
    let bar = || {
        let mut longest = (0, 0);
        for c in line.chars() {
            longest.1 = if is_bar(c) { longest.1 + 1 } else { 0 };
            longest.0 = longest.0.max(longest.1);
        }
        longest.0 >= 5
    };
    let word = line
        .split(|c: char| !c.is_alphabetic())
        .next()
        .unwrap_or("");
    let is_spinner = ('\u{2801}'..='\u{28ff}').contains(&first);
    let moves = output::PROGRESS.iter().any(|part| word.contains(part));
    (is_spinner || has_share() && (moves || bar())).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_noise_is_borrowed() {
        for text in [
            "",
            "plain\ntext\n",
            "1: one\n2: two\n",
            "7:a\n9:b\n12:c\n",
            "100% of all\n50%\n",
            "a\r\nb\r\n",
            "- [ ] a\n- [x] b\n- [ ] c\n",
        ] {
            assert!(
                matches!(clean(text), Cow::Borrowed(same) if same == text),
                "{text:?}"
            );
        }
    }

    #[test]
    fn colours_and_overwritten_lines_go() {
        assert_eq!(clean("\x1b[1;31merror\x1b[0m: x"), "error: x");
        assert_eq!(clean("10%\r50%\r100%\nnext\r\n"), "100%\nnext\r\n");
        assert_eq!(clean("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07"), "link");
        assert_eq!(clean("end \x1b["), "end [");
        assert_eq!(clean("é\x1bé"), "éé");
    }

    #[test]
    fn numbers_before_lines_go_where_they_run_on() {
        assert_eq!(clean("   9→a\n  10→\n  11→ b\n"), "a\n\n b\n");
        assert_eq!(clean("1:a\n2:b\n3:c"), "a\nb\nc");
        assert_eq!(clean("x\n1\ta\n2\tb\n3\tc\ny"), "x\na\nb\nc\ny");
        assert_eq!(clean("1 | a\n2 |\n3 | c\n"), "a\n\nc\n");
    }

    #[test]
    fn times_progress_and_listings_go() {
        let log = "2026-01-01T10:00:00.5Z a\n2026-01-01T10:00:01.5Z b\n2026-01-01T10:00:02Z c\n";
        assert_eq!(clean(log), "a\nb\nc\n");
        assert_eq!(
            clean("[10:00:00] a\n[10:00:01] b\n[10:00:02] c\n"),
            "a\nb\nc\n"
        );
        let bars = "Downloading x 10%\nDownloading x 60%\nDownloading x 99%\ndone\n";
        assert_eq!(clean(bars), "Downloading x 99%\ndone\n");
        let rows = "total 8\ndrwxr-xr-x 6 root root 4096 Jul 17 01:31 .git\n-rw-r--r-- 1 root root   34 Jul 17 01:31 a b.rs\n-rw-r--r--@ 1 user  staff  309 Jan 15 2025 c\n";
        assert_eq!(clean(rows), "total 8\n.git\na b.rs\nc\n");
    }

    #[test]
    fn hostile_text_is_taken() {
        let long = "x".repeat(4 << 20);
        assert!(matches!(clean(&long), Cow::Borrowed(_)));
        let escapes = "\x1b[".repeat(100_000);
        assert!(clean(&escapes).len() <= escapes.len());
        assert_eq!(clean("\0\n\0\n"), "\0\n\0\n");
    }
}
