//! Markdown on a terminal: headings, lists, quotes, code and stress. Any other markup stays as it is.
//!
//! A line of the text stays a line, so that nothing is joined that an agent set apart; long lines are wrapped, except
//! those of code and tables.

use super::styled::{Look, Span, clean, span, wrap};

/// Returns a text as styled lines, each with `prefix` before it.
pub fn lines(content: &str, width: Option<usize>, prefix: &str) -> Vec<Vec<Span>> {
    let content = clean(content);
    let mut fence: Option<Fence> = None;
    let mut out = Vec::new();
    for line in content.lines() {
        match (&fence, Fence::of(line)) {
            (Some(open), Some(mark)) if mark.closes(open) => fence = None,
            (Some(_), _) => {
                out.push(vec![
                    span(format!("{prefix}  "), Look::Dim),
                    span(line, Look::Code),
                ]);
            }
            (None, Some(mark)) => fence = Some(mark),
            (None, None) => out.extend(block(line, width, prefix)),
        }
    }
    out
}

/// The line before or after code.
struct Fence {
    mark: char,
    count: usize,
    has_info: bool,
}

impl Fence {
    fn of(line: &str) -> Option<Self> {
        let line = line.trim();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let count = line.chars().take_while(|c| *c == mark).count();
        let info = line[count..].trim();
        // Backticks behind backticks are code within a line.
        (count >= 3 && !info.contains('`')).then_some(Self {
            mark,
            count,
            has_info: !info.is_empty(),
        })
    }

    fn closes(&self, open: &Self) -> bool {
        self.mark == open.mark && self.count >= open.count && !self.has_info
    }
}

/// Returns the lines of a line outside code.
fn block(line: &str, width: Option<usize>, prefix: &str) -> Vec<Vec<Span>> {
    let bare = line.trim_start();
    let indent = &line[..line.len() - bare.len()];
    if let Some(heading) = heading(bare) {
        return wrap(&[span(heading, Look::Heading)], width, prefix, prefix);
    }
    if bare.starts_with('|') {
        return vec![vec![span(prefix, Look::Dim), span(line, Look::Plain)]];
    }
    if is_rule(bare) {
        return vec![vec![span(format!("{prefix}{}", "─".repeat(20)), Look::Dim)]];
    }
    if let Some(quote) = bare.strip_prefix('>') {
        let bar = format!("{prefix}{indent}│ ");
        return wrap(&inline(quote.trim_start()), width, &bar, &bar);
    }
    if let Some((mark, item)) = item(bare) {
        let first = format!("{prefix}{indent}{mark} ");
        let rest = format!("{prefix}{indent}{} ", " ".repeat(mark.chars().count()));
        return wrap(&inline(item), width, &first, &rest);
    }
    let prefix = format!("{prefix}{indent}");
    wrap(&inline(bare), width, &prefix, &prefix)
}

fn heading(line: &str) -> Option<&str> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let text = line[level..].strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| text.trim())
}

/// True for a line of at least three equal marks.
fn is_rule(line: &str) -> bool {
    let marks: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    let is_of = |mark| marks.len() >= 3 && marks.chars().all(|c| c == mark);
    ['-', '*', '_'].into_iter().any(is_of)
}

/// Returns the mark of an item of a list, and its text.
fn item(line: &str) -> Option<(String, &str)> {
    for mark in ["- [ ] ", "- [x] ", "- ", "* ", "+ "] {
        if let Some(text) = line.strip_prefix(mark) {
            let mark = match mark {
                "- [ ] " => "☐",
                "- [x] " => "☑",
                _ => "•",
            };
            return Some((mark.to_owned(), text.trim_start()));
        }
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = line.split_at(digits);
    let end = rest.chars().next().filter(|c| matches!(c, '.' | ')'))?;
    let text = rest[1..].strip_prefix(' ')?;
    (1..=4)
        .contains(&digits)
        .then(|| (format!("{number}{end}"), text.trim_start()))
}

/// Returns a line with its code and stressed words.
fn inline(line: &str) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut rest = line;
    let mut plain = String::new();
    // The character before `rest`.
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let marked = match c {
            '`' => code(rest),
            '*' | '_' => stressed(rest, before),
            _ => None,
        };
        let length = match marked {
            Some((inner, look, length)) => {
                if !plain.is_empty() {
                    spans.push(span(std::mem::take(&mut plain), Look::Plain));
                }
                spans.push(span(inner, look));
                length
            }
            None => {
                // A row of backticks that nothing closes is no beginning of a shorter one.
                let ticks = rest.bytes().take_while(|byte| *byte == b'`').count();
                let length = ticks.max(c.len_utf8());
                plain.push_str(&rest[..length]);
                length
            }
        };
        before = rest[..length].chars().last();
        rest = &rest[length..];
    }
    if !plain.is_empty() {
        spans.push(span(plain, Look::Plain));
    }
    spans
}

/// Returns the code at the beginning of a text, and the number of bytes with its marks.
fn code(text: &str) -> Option<(&str, Look, usize)> {
    let count = text.bytes().take_while(|byte| *byte == b'`').count();
    let mark = &text[..count];
    let inner = &text[count..];
    let mut from = 0;
    // The next row of as many backticks.
    while let Some(at) = inner[from..].find(mark) {
        let at = from + at;
        let row = inner[at..].bytes().take_while(|byte| *byte == b'`').count();
        if row == count {
            return (at > 0).then(|| (&inner[..at], Look::Code, 2 * count + at));
        }
        from = at + row;
    }
    None
}

/// Returns the stressed words at the beginning of a text, and the number of bytes with their marks. Marks within a word
/// are part of it.
fn stressed(text: &str, before: Option<char>) -> Option<(&str, Look, usize)> {
    if before.is_some_and(char::is_alphanumeric) {
        return None;
    }
    let marks = [
        ("**", Look::Strong),
        ("__", Look::Strong),
        ("*", Look::Emphasis),
        ("_", Look::Emphasis),
    ];
    let (mark, look) = marks.into_iter().find(|(mark, _)| text.starts_with(mark))?;
    let inner = &text[mark.len()..];
    let end = inner.find(mark)?;
    let words = &inner[..end];
    let tail = &inner[end + mark.len()..];
    let after = tail.chars().next();
    // `__init__.py` is a name.
    let is_name = mark.starts_with('_')
        && tail
            .strip_prefix('.')
            .is_some_and(|more| more.starts_with(char::is_alphanumeric));
    let is_word = !is_name
        && !words.is_empty()
        && !words.starts_with([' ', '*', '_'])
        && !words.ends_with([' ', '*', '_'])
        && !words.contains('`')
        && !after.is_some_and(|c| c.is_alphanumeric() || c == '*' || c == '_');
    is_word.then_some((words, look, 2 * mark.len() + end))
}

#[cfg(test)]
mod tests {
    use super::super::styled::draw;
    use super::*;

    fn drawn(content: &str) -> Vec<String> {
        let lines = lines(content, Some(40), "");
        lines.iter().map(|line| draw(line, false)).collect()
    }

    #[test]
    fn blocks_are_drawn_without_their_marks() {
        let content = "# Plan\n\n- one\n  * two\n3. three\n- [x] done\n> quoted\n---\n```rust\n# code\n```\n| a | b |";
        assert_eq!(
            drawn(content),
            [
                "Plan",
                "",
                "• one",
                "  • two",
                "3. three",
                "☑ done",
                "│ quoted",
                "────────────────────",
                "  # code",
                "| a | b |",
            ]
        );
    }

    #[test]
    fn long_items_hang_and_code_is_not_wrapped() {
        let long = "word ".repeat(12);
        assert_eq!(
            drawn(&format!("- {}", long.trim())),
            [
                "• word word word word word word word",
                "  word word word word word",
            ]
        );
        let code = drawn(&format!("```\n{long}\n```"));
        assert_eq!(code.len(), 1);
    }

    #[test]
    fn stress_and_code_have_their_looks() {
        let looks = |line: &str| {
            let spans = inline(line);
            let spans = spans.into_iter().map(|span| (span.text, span.look));
            spans.collect::<Vec<_>>()
        };
        let of = |text: &str, look| (text.to_owned(), look);
        assert_eq!(
            looks("a **b c** `d*e` *f*"),
            [
                of("a ", Look::Plain),
                of("b c", Look::Strong),
                of(" ", Look::Plain),
                of("d*e", Look::Code),
                of(" ", Look::Plain),
                of("f", Look::Emphasis),
            ]
        );
        assert_eq!(looks("``a`b``"), [of("a`b", Look::Code)]);
    }

    #[test]
    fn marks_that_are_none_stay() {
        for line in [
            "snake_case_name",
            "2*3*4",
            "a * b * c",
            "**",
            "`",
            "``` not `code",
            "__init__.py",
            "#tag",
            "1.5 times",
            "*",
            "",
        ] {
            assert_eq!(drawn(&format!("{line}\nx"))[0], line);
        }
        // A fence that nobody closes.
        assert_eq!(drawn("```\na"), ["  a"]);
    }
}
