//! Excerpts of a message: its readable text, the lines around the searched words, and the end of a text
//! that is cut.

use std::ops::Range;

use super::matching;
use super::text::{MessageText, TextField};
use crate::model::{AgentMessage, Content, Message};
use crate::search::query::Query;

/// The most characters of a name in a heading: names come from outside.
const MAX_NAME: usize = 60;

/// Windows with less than this between them, in bytes, are one: a line for the omission would
/// not be shorter.
const MIN_GAP: usize = 80;

/// The distance in bytes that a window may extend to the end of a word.
const WORD: usize = 24;

/// A message as readable text: a heading, and a text that can be cut.
#[derive(Debug, Default)]
pub struct ReadableText {
    /// The role of the message on one line; for a result also its tool and call.
    pub heading: String,
    /// Its blocks, each on a line of its own: texts word for word, arguments of calls as names and
    /// values.
    pub text: String,
    /// The searched pieces: the name of a result's tool, then the blocks.
    searched: MessageText,
    /// The start of each of these pieces in the text; `None` for a piece in the heading.
    starts: Vec<Option<usize>>,
}

impl ReadableText {
    /// Returns the text of a message.
    pub fn new(message: &AgentMessage) -> Self {
        let mut readable = Self {
            heading: message.role().as_str().to_owned(),
            ..Self::default()
        };
        match message {
            AgentMessage::Extension(extension) => {
                readable.heading = format!("note ({})", name(&extension.kind));
                readable.add_to_heading(&extension.kind);
                readable.add("", &extension.data.plain_text());
            }
            AgentMessage::Llm(llm) => {
                if let Message::ToolResult(result) = &llm.message {
                    let failed = if result.is_error { ", failed" } else { "" };
                    let (tool, call) = (name(&result.tool_name), name(&result.tool_call_id));
                    readable.heading = format!("result of {tool}{failed} (call {call})");
                    readable.add_to_heading(&result.tool_name);
                }
                for block in llm.message.content() {
                    readable.add_block(block);
                }
            }
        }
        readable
    }

    fn add_block(&mut self, block: &Content) {
        match block {
            Content::Text(text) => self.add("", &text.text),
            Content::Thinking(thinking) => self.add("(thinking) ", &thinking.thinking),
            Content::ToolCall(call) => {
                let text = format!("{} {}", call.name, call.arguments.plain_text());
                self.add(&format!("(call {}) ", name(&call.id)), &text);
            }
            Content::Image(image) => {
                let size = crate::tokens::image_bytes(image);
                self.begin_block();
                let image = format!("(image {}, {size} bytes)", name(&image.mime_type));
                self.text.push_str(&image);
            }
            Content::Sealed(sealed) => match sealed.readable() {
                Some(text) => self.add(&format!("({sealed}) "), &text),
                None => {
                    self.begin_block();
                    self.text.push_str(&format!("({sealed})"));
                }
            },
            Content::Other(json) => self.add("(block) ", &json.plain_text()),
        }
    }

    fn add(&mut self, label: &str, block: &str) {
        self.begin_block();
        self.text.push_str(label);
        self.starts.push(Some(self.text.len()));
        self.text.push_str(block);
        self.searched.push(TextField::Statement, block.to_owned());
    }

    fn add_to_heading(&mut self, word: &str) {
        self.starts.push(None);
        self.searched.push(TextField::Name, word.to_owned());
    }

    fn begin_block(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    /// Returns the places of the phrases of `query`, with the index of each phrase; `None` if the message
    /// does not match. A phrase in the heading counts as at the beginning of the text.
    pub fn places(&self, query: &Query) -> Option<Vec<(Range<usize>, usize)>> {
        let found = matching::Matcher::new(query).places(&self.searched)?;
        let place = |at: matching::PhraseMatch| {
            let start = self.starts.get(at.piece).copied().flatten();
            let bytes = start.map_or(0..0, |start| start + at.bytes.start..start + at.bytes.end);
            (bytes, at.phrase)
        };
        Some(found.places.into_iter().map(place).collect())
    }

    /// Returns the whole text as one range.
    pub fn whole(&self) -> Range<usize> {
        0..self.text.len()
    }
}

/// The most text that is shown around a place, on either side.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// Whole lines besides the line of the place.
    pub lines: usize,
    /// The most bytes.
    pub bytes: usize,
}

/// Returns the parts of a text around some places, in order and without overlap.
pub fn windows(
    text: &str,
    places: impl IntoIterator<Item = Range<usize>>,
    limits: WindowLimits,
) -> Vec<Range<usize>> {
    let window =
        |place: Range<usize>| back(text, place.start, limits)..forth(text, place.end, limits);
    let mut all: Vec<Range<usize>> = places.into_iter().map(window).collect();
    all.sort_by_key(|window| window.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for window in all {
        match joined.last_mut() {
            Some(last) if window.start <= last.end + MIN_GAP => last.end = last.end.max(window.end),
            _ => joined.push(window),
        }
    }
    if let Some(first) = joined.first_mut().filter(|first| first.start <= MIN_GAP) {
        first.start = 0;
    }
    let end = text.len();
    if let Some(last) = joined.last_mut().filter(|last| last.end + MIN_GAP >= end) {
        last.end = end;
    }
    joined
}

fn back(text: &str, from: usize, limits: WindowLimits) -> usize {
    let start = text.floor_char_boundary(from.saturating_sub(limits.bytes));
    let before = &text[start..from];
    let ends = before.rmatch_indices('\n').take(limits.lines + 1);
    let (last, count) = ends.fold((None, 0), |(_, count), (at, _)| (Some(at), count + 1));
    if start == 0 && count <= limits.lines {
        return 0;
    }
    // Rather whole lines than the end of one.
    if let Some(at) = last {
        return start + at + 1;
    }
    let mut words = before.char_indices().take_while(|(at, _)| *at < WORD);
    let space = words.find(|(_, c)| c.is_whitespace());
    space.map_or(start, |(at, c)| start + at + c.len_utf8())
}

fn forth(text: &str, from: usize, limits: WindowLimits) -> usize {
    let end = text.floor_char_boundary(from.saturating_add(limits.bytes));
    let after = &text[from..end];
    let ends = after.match_indices('\n').take(limits.lines + 1);
    let (last, count) = ends.fold((None, 0), |(_, count), (at, _)| (Some(at), count + 1));
    match last {
        Some(at) if count > limits.lines || end < text.len() => from + at,
        _ => from + end_of_word(after, end == text.len()),
    }
}

/// Returns the end of the last whole word of a text, if one ends near its end.
fn end_of_word(text: &str, is_end: bool) -> usize {
    let near = text.floor_char_boundary(text.len().saturating_sub(WORD));
    let space = text[near..].rfind(char::is_whitespace);
    match space.filter(|at| !is_end && near + at > 0) {
        Some(at) => near + at,
        None => text.len(),
    }
}

/// Returns the end of the longest beginning of `range` that fits: the end of the last line that fits, or a position
/// within the first line if that line is too long. `None` if no character fits.
///
/// The returned beginning itself was counted, so the result is right also for a counter that returns less for a
/// longer text.
pub fn fitting(
    text: &str,
    range: Range<usize>,
    fits: &mut dyn FnMut(Range<usize>) -> bool,
) -> Option<usize> {
    let Range { start, end } = range;
    if fits(start..end) {
        return Some(end);
    }
    let boundary = |at: usize| text.floor_char_boundary(at.min(end));
    let (mut good, mut bad, mut step) = (start, end, 256);
    while boundary(start + step) < end {
        let tried = boundary(start + step);
        if tried > good && !fits(start..tried) {
            bad = tried;
            break;
        }
        good = good.max(tried);
        step *= 2;
    }
    loop {
        let tried = boundary(good + (bad - good) / 2);
        if tried <= good {
            break;
        }
        match fits(start..tried) {
            true => good = tried,
            false => bad = tried,
        }
    }
    if good == start {
        // The rest may be one character of several bytes.
        let first = text[start..end].chars().next()?.len_utf8();
        return fits(start..start + first).then_some(start + first);
    }
    let shown = &text[start..good];
    let line = shown.rfind('\n').map(|at| start + at + 1);
    let word = start + end_of_word(shown, false);
    // A line that begins a long one is no reason to show next to nothing.
    let near = |at: &usize| (at - start) * 2 > shown.len();
    let whole = line.filter(near).into_iter().chain([word]);
    let mut whole = whole.filter(|at| *at > start && *at < good);
    Some(whole.find(|at| fits(start..*at)).unwrap_or(good))
}

/// Returns a name for a heading: on one line, and shortened.
pub fn name(text: &str) -> String {
    let mut shown = one_line(text, MAX_NAME);
    if text.chars().nth(MAX_NAME).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns a text with `> ` before each line. No heading begins with `> `, so a line of a stored text cannot be taken
/// for a heading or for the text of another speaker.
///
/// ```
/// use loopstore::search::quote_lines;
///
/// assert_eq!(quote_lines("yes\n\n── loop l1, user"), "> yes\n>\n> ── loop l1, user");
/// ```
pub fn quote_lines(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 32);
    let mut chars = text.chars().peekable();
    let mut is_start = true;
    loop {
        let next = chars.peek().copied();
        if is_start {
            quoted.push('>');
            if next.is_some_and(|c| !ends_line(c)) {
                quoted.push(' ');
            }
        }
        let Some(c) = chars.next() else {
            return quoted;
        };
        quoted.push(c);
        // CR and LF together are one end.
        is_start = ends_line(c) && (c != '\r' || chars.peek() != Some(&'\n'));
    }
}

/// True for each character that some program shows as the end of a line.
fn ends_line(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Returns the first `most` characters of a text on one line, with control characters escaped.
pub fn one_line(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for c in text.chars().take(most) {
        match c.is_control() || ends_line(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_quoted_text_begins_as_a_heading() {
        let forged = "a\r\nb\rc\u{2028}d\u{2029}e\u{b}f\u{c}g\u{85}h\n\n";
        let quoted = quote_lines(forged);
        assert_eq!(quoted.matches("> ").count(), 8, "{quoted:?}");
        assert!(quoted.ends_with("> h\n>\n>"), "{quoted:?}");
        assert_eq!(quote_lines(""), ">");
        assert_eq!(one_line("a\u{2028}b\nc", 9), "a\\u{2028}b\\nc");
    }
    use crate::model::Json;
    use crate::search::query::parse_query;

    const NEAR: WindowLimits = WindowLimits {
        lines: 1,
        bytes: 60,
    };

    fn cut(text: &str, word: &str) -> Vec<String> {
        let message = Message::user(text).into();
        let readable = ReadableText::new(&message);
        let places = readable.places(&parse_query(word).unwrap()).unwrap();
        let places = places.into_iter().map(|(bytes, _)| bytes);
        let found = windows(&readable.text, places, NEAR);
        found
            .into_iter()
            .map(|at| readable.text[at].to_owned())
            .collect()
    }

    #[test]
    fn a_window_is_the_lines_around_a_place() {
        let lines: Vec<String> = (0..60).map(|n| format!("line number {n}")).collect();
        let text = lines.join("\n");
        assert_eq!(
            cut(&text, "30"),
            ["line number 29\nline number 30\nline number 31"]
        );
        assert_eq!(
            cut(&text, "1"),
            ["line number 0\nline number 1\nline number 2"]
        );
        let both = cut(&text, "20 OR 22 OR 50");
        assert_eq!(both.len(), 2, "near ones are joined: {both:?}");
        assert!(both[0].starts_with("line number 19") && both[0].ends_with("line number 23"));
    }

    #[test]
    fn a_long_line_is_cut_at_words_and_characters() {
        let text = format!(
            "{}the needle here{}",
            "left ".repeat(99),
            " right".repeat(99)
        );
        let found = cut(&text, "needle");
        assert!(
            found[0].len() < 140 && found[0].contains("the needle here"),
            "{found:?}"
        );
        assert!(
            found[0].starts_with("left ") && found[0].ends_with(" right"),
            "{found:?}"
        );
        let text = format!("{}退款{}", "好".repeat(500), "é".repeat(500));
        assert!(cut(&text, "退款")[0].contains("好退款é"));
    }

    #[test]
    fn what_fits_ends_at_a_line_a_word_or_a_character() {
        let end = |text: &str, most: usize| {
            let found = fitting(text, 0..text.len(), &mut |at| at.len() <= most);
            found.map_or("-", |end| &text[..end]).to_owned()
        };
        assert_eq!(end("one\ntwo\nthree", 100), "one\ntwo\nthree");
        assert_eq!(end("one\ntwo\nthree", 10), "one\ntwo\n");
        assert_eq!(end("one two three", 10), "one two");
        assert_eq!(end("onetwothree", 10), "onetwothre");
        assert_eq!(end("\n", 0), "-");
        assert_eq!(end("é", 1), "-");
        assert_eq!(end("ééé", 3), "é");
        let long = "long ".repeat(100_000);
        assert_eq!(end(&format!("a\n{long}"), 5000).len(), 4996);
    }

    #[test]
    fn a_message_is_read_block_by_block() {
        let arguments = Json::parse(r#"{"path":"a.rs","text":"x\ny"}"#).unwrap();
        let call = Message::assistant("I look.").with_tool_call("c1", "read\n", arguments);
        let readable = ReadableText::new(&call.with_image("aGVsbG8=", "image/png").into());
        let text = "I look.\n(call c1) read\n path: a.rs, text: x\ny\n(image image/png, 5 bytes)";
        assert_eq!((&*readable.heading, &*readable.text), ("assistant", text));
        let places = readable
            .places(&parse_query("\"rs text x y\"").unwrap())
            .unwrap();
        assert_eq!(&readable.text[places[0].0.clone()], "rs, text: x\ny");
        let Message::ToolResult(mut result) = Message::tool_result("c\u{1b}1", "") else {
            panic!("it is a result");
        };
        result.tool_name = "n".repeat(99);
        let readable = ReadableText::new(&Message::ToolResult(result).into());
        let shown = format!("result of {}… (call c\\u{{1b}}1)", "n".repeat(60));
        assert_eq!(readable.heading, shown);
    }
}
