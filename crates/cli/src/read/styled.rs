//! Lines of text in several styles, wrapped to the width of a terminal.

use anstyle::{AnsiColor, Style};
use loopstore_terminal::text;

/// The style of a part of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// Words.
    #[default]
    Plain,
    /// Words of weight.
    Strong,
    /// Stressed words.
    Emphasis,
    /// Code.
    Code,
    /// A heading.
    Heading,
    /// Text about text, such as sizes and folded parts.
    Dim,
    /// A person.
    Person,
    /// An agent.
    Agent,
    /// A line that was added.
    Added,
    /// A line that was removed, and a failure.
    Removed,
}

impl Look {
    fn style(self) -> Style {
        let colour = |colour: AnsiColor| colour.on_default();
        match self {
            Self::Plain => Style::new(),
            Self::Strong => Style::new().bold(),
            Self::Emphasis => Style::new().italic(),
            Self::Code => colour(AnsiColor::Cyan),
            Self::Heading => Style::new().bold().underline(),
            Self::Dim => Style::new().dimmed(),
            Self::Person => colour(AnsiColor::Green).bold(),
            Self::Agent => colour(AnsiColor::Blue).bold(),
            Self::Added => colour(AnsiColor::Green),
            Self::Removed => colour(AnsiColor::Red),
        }
    }
}

/// A part of a line in one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The text, without control characters.
    pub text: String,
    /// The style.
    pub look: Look,
}

/// Returns a part of a line.
pub fn span(text: impl Into<String>, look: Look) -> Span {
    Span {
        text: text.into(),
        look,
    }
}

/// Returns a line with the escape sequences of its styles, or without.
pub fn draw(line: &[Span], is_coloured: bool) -> String {
    let mut out = String::new();
    for Span { text, look } in line {
        let style = match is_coloured && !text.trim().is_empty() {
            true => look.style(),
            false => Style::new(),
        };
        out.push_str(&format!("{style}{text}{style:#}"));
    }
    out.truncate(out.trim_end_matches(' ').len());
    out
}

/// Breaks a line into lines of at most `width` columns, at spaces where possible. The first begins with `first`, the
/// others with `rest`.
pub fn wrap(line: &[Span], width: Option<usize>, first: &str, rest: &str) -> Vec<Vec<Span>> {
    let chars = line
        .iter()
        .flat_map(|span| span.text.chars().map(|c| (c, span.look)));
    let mut lines: Vec<Vec<(char, Look)>> = Vec::new();
    let mut current: Vec<(char, Look)> = Vec::new();
    let mut used = 0;
    for (c, look) in chars {
        let prefix = if lines.is_empty() { first } else { rest };
        let room = width.map(|width| width.saturating_sub(text::columns(prefix)).max(10));
        let columns = text::columns(c.encode_utf8(&mut [0; 4]));
        if room.is_some_and(|room| used + columns > room) {
            let space = current.iter().rposition(|(c, _)| *c == ' ');
            // Spaces at the beginning are an indent.
            let space = space.filter(|at| current[..*at].iter().any(|(c, _)| *c != ' '));
            let after = match space {
                _ if c == ' ' => Vec::new(),
                Some(at) => {
                    let after = current.split_off(at + 1);
                    current.pop();
                    after
                }
                None => Vec::new(),
            };
            lines.push(std::mem::replace(&mut current, after));
            used = current
                .iter()
                .map(|(c, _)| text::columns(c.encode_utf8(&mut [0; 4])))
                .sum();
            if c == ' ' {
                continue;
            }
        }
        used += columns;
        current.push((c, look));
    }
    lines.push(current);
    let prefixed = |(at, chars): (usize, Vec<(char, Look)>)| {
        let prefix = if at == 0 { first } else { rest };
        let mut line = vec![span(prefix, Look::Dim)];
        for (c, look) in chars {
            match line.last_mut().filter(|last| at_end(last, look)) {
                Some(last) => last.text.push(c),
                None => line.push(span(c, look)),
            }
        }
        line
    };
    lines.into_iter().enumerate().map(prefixed).collect()
}

/// True if a part is of this style. The prefix of a line has a style of its own.
fn at_end(last: &Span, look: Look) -> bool {
    last.look == look
}

/// Returns a text as lines in one style, each wrapped, with `prefix` before it. Control characters are escaped.
pub fn plain(content: &str, look: Look, width: Option<usize>, prefix: &str) -> Vec<Vec<Span>> {
    let line = |line: &str| wrap(&[span(line, look)], width, prefix, prefix);
    clean(content).lines().flat_map(line).collect()
}

/// Returns a text without control characters and tabs.
pub fn clean(content: &str) -> String {
    text::clean(&content.replace("\r\n", "\n")).replace('\t', "    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(content: &str, width: usize, first: &str, rest: &str) -> Vec<String> {
        let lines = wrap(&[span(content, Look::Plain)], Some(width), first, rest);
        lines.iter().map(|line| draw(line, false)).collect()
    }

    #[test]
    fn lines_break_at_spaces_and_long_words_within() {
        assert_eq!(wrapped("one two three", 10, "", ""), ["one two", "three"]);
        assert_eq!(
            wrapped("one two four", 12, "- ", "  "),
            ["- one two", "  four"]
        );
        assert_eq!(wrapped("abcdefghijklm", 10, "", ""), ["abcdefghij", "klm"]);
        assert_eq!(wrapped("日本日本日本", 10, "", ""), ["日本日本日", "本"]);
        assert_eq!(wrapped("", 10, "  ", "  "), [""]);
        assert_eq!(
            wrapped("    indented words", 12, "", ""),
            ["    indented", "words"]
        );
        assert_eq!(wrapped("0123456789 x", 10, "", ""), ["0123456789", "x"]);
    }

    #[test]
    fn a_style_ends_where_its_text_ends() {
        let line = [span("a", Look::Strong), span("b", Look::Plain)];
        assert_eq!(draw(&line, true), "\u{1b}[1ma\u{1b}[0mb");
        assert_eq!(draw(&line, false), "ab");
    }

    #[test]
    fn nothing_in_a_text_steers_the_terminal() {
        let lines = plain("a\u{1b}[2J\r\n\tb\u{9b}", Look::Plain, Some(40), "");
        let lines: Vec<String> = lines.iter().map(|line| draw(line, false)).collect();
        assert_eq!(lines, ["a\\u{1b}[2J", "    b\\u{9b}"]);
    }
}
