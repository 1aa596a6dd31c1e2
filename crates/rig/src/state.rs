//! The text that replaces messages which rig's window no longer shows.

use std::collections::HashMap;

use loopstore::context::{Part, PartSection};
use loopstore::{AgentMessage, Context, Entry, LoopId, Message};

/// The position of a line of the text: the index of its loop, and its turn.
type LinePosition = (usize, u32);

/// Returns the text of the first `lost` messages of a record, as a context shows them: its summaries as they are, the
/// other messages word for word.
pub(crate) fn of(context: &Context, record: &[Entry], lost: usize) -> String {
    let loops = LoopOrder::of(record);
    let kept = record.len().saturating_sub(lost);
    let shown = shown(context);
    let last_summary = shown.iter().rposition(|(part, _)| is_summary(part));
    // Another program may have compacted more than rig's window lost.
    let end = shown
        .len()
        .saturating_sub(kept)
        .max(last_summary.map_or(0, |at| at + 1));
    let of_context = shown.iter().take(end).filter_map(|(part, message)| {
        let message = message.message()?;
        Some(match is_summary(part) {
            true => (
                loops.begin(part),
                message.texts().collect::<Vec<_>>().join("\n"),
            ),
            false => (loops.begin(part), line(message)),
        })
    });
    let hidden = record.iter().take(lost).filter_map(|entry| {
        let place = loops.place(entry);
        let is_shown = context
            .parts
            .iter()
            .any(|part| loops.stands_for(part, place));
        let message = entry.message.message().filter(|_| !is_shown)?;
        Some((place, line(message)))
    });
    let mut lines: Vec<(LinePosition, String)> = of_context.chain(hidden).collect();
    lines.retain(|(_, text)| !text.is_empty());
    lines.sort_by_key(|(place, _)| *place);
    let lines: Vec<String> = lines.into_iter().map(|(_, text)| text).collect();
    lines.join("\n")
}

/// Returns the summaries of a context.
pub(crate) fn summaries(context: &Context) -> impl Iterator<Item = &AgentMessage> {
    let shown = shown(context).into_iter();
    shown.filter_map(|(part, message)| is_summary(part).then_some(message))
}

fn shown(context: &Context) -> Vec<(&Part, &AgentMessage)> {
    let parts = context.parts.iter().flat_map(|part| {
        let count = usize::try_from(part.messages).unwrap_or(usize::MAX);
        std::iter::repeat_n(part, count)
    });
    parts.zip(&context.messages).collect()
}

fn is_summary(part: &Part) -> bool {
    matches!(
        part.section,
        PartSection::Rollup | PartSection::Compacted | PartSection::Sealed
    )
}

/// The loops of a line, root first.
struct LoopOrder<'a>(HashMap<&'a LoopId, usize>);

impl<'a> LoopOrder<'a> {
    fn of(record: &'a [Entry]) -> Self {
        let mut loops = HashMap::new();
        for entry in record {
            let next = loops.len();
            loops.entry(&entry.loop_id).or_insert(next);
        }
        Self(loops)
    }

    fn at(&self, id: &LoopId) -> usize {
        self.0.get(id).copied().unwrap_or_default()
    }

    fn place(&self, entry: &Entry) -> LinePosition {
        (self.at(&entry.loop_id), entry.turn.unwrap_or_default())
    }

    /// Returns the start of a part.
    fn begin(&self, part: &Part) -> LinePosition {
        match part.section {
            PartSection::Rollup | PartSection::Sealed => (0, 0),
            _ => (self.at(&part.loop_id), part.from_turn),
        }
    }

    /// True if a part replaces or contains a turn.
    fn stands_for(&self, part: &Part, (of_loop, turn): LinePosition) -> bool {
        let end = (self.at(&part.loop_id), part.to_turn);
        (self.begin(part)..=end).contains(&(of_loop, turn))
    }
}

/// Returns the line of a message, word for word.
fn line(message: &Message) -> String {
    let author = match message {
        Message::User(_) => "user",
        Message::Assistant(_) => "assistant",
        Message::ToolResult(_) => "tool",
    };
    let calls = message
        .tool_calls()
        .map(|call| format!("[calls {} {}]", call.name, call.arguments.as_str()));
    let texts: Vec<String> = message.texts().map(str::to_owned).chain(calls).collect();
    match texts.is_empty() {
        true => String::new(),
        false => format!("{author}: {}", texts.join("\n")),
    }
}
