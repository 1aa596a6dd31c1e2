//! One answer of `expand`: its messages, and the parts of long ones that fit.

use std::ops::{ControlFlow, Range};

use loopstore::TokenCounter;
use loopstore::extend::search::Query;
use loopstore::internal::{ReadableText, WindowLimits, fitting, windows};
use loopstore::model::{
    AgentMessage, AssistantMessage, Content, Message, ToolResultMessage, UserMessage,
};
use loopstore::search::{SearchError, quote_lines};

use super::{CutMessage, Expanded, MessageOffset, ShownMessage, ShownPart};

/// The text that is shown around the words of a query.
const AROUND: WindowLimits = WindowLimits {
    lines: 3,
    bytes: 400,
};

/// The length in bytes up to which a message that matches the query is shown whole.
const SHORT: usize = 1000;

/// The length in bytes of the smallest part of a text that is shown.
const LEAST: usize = 32;

/// The tokens of a message in an answer.
#[derive(Clone, Copy)]
struct MessageCost {
    /// The tokens of the message.
    tokens: u64,
    /// The larger of these tokens and those of its text.
    most: u64,
}

impl MessageCost {
    fn of(tokens: u64) -> Self {
        let most = tokens;
        Self { tokens, most }
    }
}

pub(super) struct ExpandedPage<'a> {
    counter: &'a dyn TokenCounter,
    query: Option<Query>,
    most: Option<u64>,
    from: Option<MessageOffset>,
    spent: u64,
    done: Expanded,
    /// The tokens that the answer requires, if not even the beginning of the first message fits.
    needed: Option<u64>,
}

impl<'a> ExpandedPage<'a> {
    pub(super) fn new(
        counter: &'a dyn TokenCounter,
        query: Option<Query>,
        most: Option<u64>,
        from: Option<MessageOffset>,
    ) -> Self {
        Self {
            counter,
            query,
            most,
            from,
            spent: 0,
            done: Expanded::default(),
            needed: None,
        }
    }

    /// Adds the next message, whose tokens are known; breaks if the answer is full.
    pub(super) fn add(&mut self, seq: u32, message: AgentMessage, tokens: u64) -> ControlFlow<()> {
        let from = self.from.filter(|from| from.seq == seq);
        let from = from.map_or(0, |from| from.offset);
        if self.query.is_none() && self.most.is_none() && from == 0 {
            self.push(seq, message, None, MessageCost::of(tokens));
            return ControlFlow::Continue(());
        }
        let readable = ReadableText::new(&message);
        let Some(parts) = self.parts(&readable, from) else {
            return ControlFlow::Continue(());
        };
        let long = LongMessage {
            seq,
            message: &message,
            readable: &readable,
        };
        let is_whole = parts == [readable.whole()];
        // The stored count saves counting a text that is far too long.
        if !is_whole || self.most.is_none_or(|most| tokens <= most) {
            let (shown, cut) = match is_whole {
                true => (message.clone(), None),
                false => long.cut(self.done.messages.len(), &parts),
            };
            let cost = self.cost(&shown, cut.as_ref());
            if self.fits(cost) {
                self.push(seq, shown, cut, cost);
                return ControlFlow::Continue(());
            }
            let is_short = self.most.is_some_and(|most| cost.most <= most);
            if is_short && !self.done.messages.is_empty() {
                return self.stop(&long, parts[0].start);
            }
        }
        self.add_beginning(&long, &parts)
    }

    /// Returns the shown parts of a message if there is room; `None` if it is not shown.
    fn parts(&self, readable: &ReadableText, from: u64) -> Option<Vec<Range<usize>>> {
        let text = &readable.text;
        let mut parts = vec![readable.whole()];
        if let Some(query) = &self.query {
            let places = readable.places(query)?;
            if text.len() > SHORT {
                parts = windows(text, places.into_iter().map(|(place, _)| place), AROUND);
            }
        }
        if from > 0 {
            let skip = usize::try_from(from).unwrap_or(usize::MAX);
            let start = text
                .char_indices()
                .nth(skip)
                .map_or(text.len(), |(at, _)| at);
            parts.retain(|part| part.end > start);
            if let Some(first) = parts.first_mut() {
                first.start = first.start.max(start);
            }
        }
        (!parts.is_empty()).then_some(parts)
    }

    /// Adds as much as fits of a message that does not fit as a whole.
    fn add_beginning(&mut self, long: &LongMessage<'_>, parts: &[Range<usize>]) -> ControlFlow<()> {
        let text = &long.readable.text;
        let at = self.done.messages.len();
        let left = self.most.map(|most| most.saturating_sub(self.spent));
        if at > 0 && left < self.most.map(|most| most / 4) {
            return self.stop(long, parts[0].start);
        }
        let mut shown: Vec<Range<usize>> = Vec::new();
        for part in parts {
            let mut fits = |end: Range<usize>| {
                let all: Vec<_> = shown.iter().cloned().chain([end]).collect();
                let (message, cut) = long.cut(at, &all);
                self.fits(self.cost(&message, cut.as_ref()))
            };
            let Some(end) = fitting(text, part.clone(), &mut fits) else {
                break;
            };
            shown.push(part.start..end);
            if end < part.end {
                break;
            }
        }
        let Some(last) = shown.last() else {
            if at == 0 {
                self.needed = Some(self.least(long, &parts[0]));
            }
            return self.stop(long, parts[0].start);
        };
        let end = last.end;
        let (message, cut) = long.cut(at, &shown);
        let cost = self.cost(&message, cut.as_ref());
        self.push(long.seq, message, cut, cost);
        match shown == parts {
            // An image takes more tokens than the line that replaces it.
            true => ControlFlow::Continue(()),
            false => self.stop(long, end),
        }
    }

    /// Returns the tokens of the beginning of a part, or of a whole short message.
    fn least(&self, long: &LongMessage<'_>, part: &Range<usize>) -> u64 {
        let end = part.start + LEAST.min(part.len());
        let least = part.start..long.readable.text.ceil_char_boundary(end);
        let (message, cut) = match least == long.readable.whole() {
            true => (long.message.clone(), None),
            false => long.cut(0, &[least]),
        };
        self.cost(&message, cut.as_ref()).most
    }

    fn cost(&self, message: &AgentMessage, cut: Option<&CutMessage>) -> MessageCost {
        let mut cost = MessageCost::of(self.counter.message_tokens(message));
        if self.most.is_some() {
            let text = self.counter.text_tokens(&text(message, cut));
            cost.most = cost.most.max(text);
        }
        cost
    }

    fn fits(&self, cost: MessageCost) -> bool {
        self.most
            .is_none_or(|most| self.spent.saturating_add(cost.most) <= most)
    }

    fn push(
        &mut self,
        seq: u32,
        message: AgentMessage,
        cut: Option<CutMessage>,
        cost: MessageCost,
    ) {
        self.spent = self.spent.saturating_add(cost.most);
        self.done.tokens += cost.tokens;
        self.done.cut.extend(cut);
        self.done.seqs.push(seq);
        self.done.messages.push(message);
    }

    fn stop(&mut self, long: &LongMessage<'_>, at: usize) -> ControlFlow<()> {
        self.done.next = Some(MessageOffset {
            seq: long.seq,
            offset: long.readable.text[..at].chars().count() as u64,
        });
        ControlFlow::Break(())
    }

    pub(super) fn end(self) -> Result<Expanded, SearchError> {
        match (self.needed, self.most) {
            (Some(needed), Some(given)) => Err(SearchError::TooFewTokens { needed, given }),
            _ => Ok(self.done),
        }
    }
}

/// A message that is shown in parts.
struct LongMessage<'a> {
    seq: u32,
    message: &'a AgentMessage,
    readable: &'a ReadableText,
}

impl LongMessage<'_> {
    /// Returns the message with only these parts of its text.
    fn cut(&self, at: usize, parts: &[Range<usize>]) -> (AgentMessage, Option<CutMessage>) {
        let text = &self.readable.text;
        let block = |part: &Range<usize>| Content::text(&text[part.clone()]);
        let content = parts.iter().map(block).collect();
        let (lines, chars) = count(text);
        let cut = CutMessage {
            message: at,
            seq: self.seq,
            lines: lines + 1,
            chars,
            shown: parts.iter().map(|part| shown(text, part)).collect(),
        };
        (with_content(self.message, content), Some(cut))
    }
}

/// Returns the number of line ends in a text, and of its characters.
fn count(text: &str) -> (u64, u64) {
    let lines = text.bytes().filter(|byte| *byte == b'\n').count();
    (lines as u64, text.chars().count() as u64)
}

fn shown(text: &str, part: &Range<usize>) -> ShownPart {
    let (line, first) = count(&text[..part.start]);
    let within = &text[part.clone()];
    let (lines, chars) = count(within.strip_suffix('\n').unwrap_or(within));
    let chars = chars + u64::from(within.ends_with('\n'));
    ShownPart {
        lines: (line + 1, line + 1 + lines),
        chars: (first, first + chars.saturating_sub(1)),
        edges: (
            part.start == 0 || text[..part.start].ends_with('\n'),
            within.ends_with('\n') || text[part.end..].starts_with('\n'),
        ),
    }
}

/// Returns a message with the same role, tool and turn, with other content, and without its other fields.
fn with_content(message: &AgentMessage, content: Vec<Content>) -> AgentMessage {
    let AgentMessage::Llm(llm) = message else {
        return message.clone();
    };
    let short = AgentMessage::from(match &llm.message {
        Message::User(user) => Message::User(UserMessage {
            content,
            timestamp: user.timestamp.clone(),
            author: user.author,
        }),
        Message::Assistant(answer) => Message::Assistant(AssistantMessage {
            content,
            timestamp: answer.timestamp.clone(),
            author: answer.author,
            ..AssistantMessage::default()
        }),
        Message::ToolResult(result) => Message::ToolResult(ToolResultMessage {
            content,
            tool_call_id: result.tool_call_id.clone(),
            tool_name: result.tool_name.clone(),
            is_error: result.is_error,
            timestamp: result.timestamp.clone(),
            author: result.author,
        }),
    });
    match &llm.turn_id {
        Some(turn) => short.in_turn(turn.clone()),
        None => short,
    }
}

/// Returns a message of an answer as author and text, which are separate whatever the text contains.
pub(super) fn shown_message(message: &AgentMessage, seq: u32, is_cut: bool) -> ShownMessage {
    let ReadableText { heading, text, .. } = ReadableText::new(message);
    ShownMessage {
        message: seq,
        author: heading,
        text,
        cut: is_cut,
    }
}

/// Returns a message as text, with an empty line after it.
pub(super) fn text(message: &AgentMessage, cut: Option<&CutMessage>) -> String {
    let readable = ReadableText::new(message);
    let Some(cut) = cut else {
        return format!("{}\n{}\n\n", readable.heading, quote_lines(&readable.text));
    };
    let mut text = format!("{}, message {}\n", readable.heading, cut.seq);
    let (mut line, mut char) = (1, 0);
    let blocks = message.message().map_or(&[][..], Message::content);
    for (block, part) in blocks.iter().zip(&cut.shown) {
        let last = part.lines.0 - u64::from(part.edges.0);
        text.push_str(&gap((line, last), (char, part.chars.0)));
        if let Content::Text(block) = block {
            let shown = block.text.strip_suffix('\n').unwrap_or(&block.text);
            text.push_str(&quote_lines(shown));
            text.push('\n');
        }
        line = part.lines.1 + u64::from(part.edges.1);
        char = part.chars.1 + 1;
    }
    text.push_str(&gap((line, cut.lines), (char, cut.chars)));
    text.push('\n');
    text
}

/// Returns the mark of an omitted part, with the ranges of its characters and lines.
fn gap((first, last): (u64, u64), (from, to): (u64, u64)) -> String {
    let last = last.max(first);
    match to.checked_sub(1).filter(|to| from <= *to) {
        Some(to) => format!("… left out: lines {first}-{last}, characters {from}-{to} …\n"),
        None => String::new(),
    }
}
