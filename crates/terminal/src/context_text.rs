//! A context as text: message by message, under its section.

use loopstore::context::{ContextFault, FaultKind, Part, PartSection};
use loopstore::search::quote_lines;
use loopstore::{AgentMessage, Content, Context, Message, TurnMap};
use loopstore_admin::inspect::RunEdits;

use super::error::CliError;
use super::output::Out;
use super::{edits, text};

/// Prints the context.
pub fn print(out: &mut Out, context: &Context) -> Result<(), CliError> {
    lines(context, &mut |line| out.text(line))
}

/// Prints the context, and below it the edits that it is shown with.
pub fn print_edited(out: &mut Out, context: &Context, edits: &[RunEdits]) -> Result<(), CliError> {
    lines_with(context, edits, &mut |line| out.text(line))?;
    if !edits.is_empty() {
        out.text("\n── edits")?;
    }
    for line in edits.iter().flat_map(edits::run_edits) {
        out.text(&line)?;
    }
    Ok(())
}

/// Passes the context to `put`, one or more lines at a time.
pub fn lines(
    context: &Context,
    put: &mut dyn FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    lines_with(context, &[], put)
}

fn lines_with(
    context: &Context,
    edits: &[RunEdits],
    put: &mut dyn FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    put(&format!(
        "Context of session {}, loop {}: {}, {}, {}",
        text::line(context.session.as_str()),
        text::line(context.leaf.as_str()),
        text::count(context.messages.len() as u64, "message"),
        text::count(context.tokens, "token"),
        text::bytes(context.bytes),
    ))?;
    if !context.system.messages.is_empty() {
        put(&format!(
            "Requests for a provider begin with the system prompt, {} more.",
            text::count(context.system.tokens, "token")
        ))?;
    }
    let mut rest = &context.messages[..];
    let mut number = 0;
    for part in &context.parts {
        let length = usize::try_from(part.messages).unwrap_or(usize::MAX);
        let (messages, after) = rest.split_at(length.min(rest.len()));
        let edited = match is_edited(part, edits) {
            true => ", with edits",
            false => "",
        };
        put(&format!("\n── {}{edited}", heading(part)))?;
        for (message, turn) in messages.iter().zip(turns_of(part, messages)) {
            put(&format!("\n[{number}] {}", head(message, part, turn)))?;
            for block in message.message().map_or(&[][..], Message::content) {
                put(&quote_lines(&render(block)))?;
            }
            number += 1;
        }
        rest = after;
    }
    if !context.faults.is_empty() {
        put("\n── faults in the recorded messages")?;
    }
    for fault in &context.faults {
        put(&fault_line(fault))?;
    }
    Ok(())
}

/// Returns a message below its role, with `> ` before each line of its text.
pub fn message(message: &AgentMessage) -> String {
    drawn(message, |block| quote_lines(&render(block)))
}

/// Returns a message below its role, without quoting.
pub fn alone(message: &AgentMessage) -> String {
    drawn(message, render)
}

fn drawn(message: &AgentMessage, draw: impl Fn(&Content) -> String) -> String {
    let blocks = message.message().map_or(&[][..], Message::content);
    let mut lines = vec![role(message)];
    lines.extend(blocks.iter().map(draw));
    lines.push(String::new());
    lines.join("\n")
}

/// True if an edit is of a turn that the part shows.
fn is_edited(part: &Part, runs: &[RunEdits]) -> bool {
    let is_summary = matches!(
        part.section,
        PartSection::Rollup | PartSection::Compacted | PartSection::Sealed
    );
    let mut edits = runs.iter().flat_map(|run| &run.edits);
    !is_summary
        && edits.any(|edit| {
            edit.loop_id == part.loop_id
                && edit.from_turn <= part.to_turn
                && edit.to_turn >= part.from_turn
        })
}

/// Returns the heading of a part: its loop, its turns and its section.
pub fn heading(part: &Part) -> String {
    let section = match part.section {
        PartSection::Rollup => "summary of everything up to here",
        PartSection::First => "first turns, verbatim",
        PartSection::Compacted => "summary",
        PartSection::Recent => "recent turns, long outputs cut",
        PartSection::Tail => "after the block, verbatim",
        PartSection::Raw => "verbatim",
        PartSection::Sealed => "compacted by the provider, up to here",
    };
    format!(
        "loop {}, {} {}: {section} ({}, {})",
        text::line(part.loop_id.as_str()),
        if part.from_turn == part.to_turn {
            "turn"
        } else {
            "turns"
        },
        text::turns(part.from_turn, part.to_turn),
        text::count(part.messages, "message"),
        text::count(part.tokens, "token"),
    )
}

/// Returns the turn of each message if it is certain: a summary has no turn of its own, and if whole turns are missing,
/// the others cannot be counted.
fn turns_of(part: &Part, messages: &[AgentMessage]) -> Vec<Option<u32>> {
    let map = TurnMap::from_messages(messages);
    let is_summary = matches!(part.section, PartSection::Rollup | PartSection::Compacted);
    let mut turns = vec![None; messages.len()];
    if is_summary || map.turn_count() != part.to_turn - part.from_turn + 1 {
        return turns;
    }
    for group in 0..map.turn_count() {
        if let Some((from, to)) = map.turn_msg_range(group) {
            turns[from..to].fill(Some(part.from_turn + group));
        }
    }
    turns
}

fn head(message: &AgentMessage, part: &Part, turn: Option<u32>) -> String {
    let mut line = role(message);
    if let Some(turn) = turn {
        line.push_str(&format!(", {}:{turn}", text::line(part.loop_id.as_str())));
    }
    line
}

fn role(message: &AgentMessage) -> String {
    let mut line = message.role().as_str().to_owned();
    if let Some(Message::ToolResult(result)) = message.message() {
        // A message of OpenAI's form names only the call.
        line = match &*result.tool_name {
            "" => "result".into(),
            name => format!("result of {}", text::line(name)),
        };
        if result.is_error {
            line.push_str(", failed");
        }
        line.push_str(&format!(" (call {})", text::line(&result.tool_call_id)));
    }
    line
}

fn render(block: &Content) -> String {
    match block {
        Content::Text(text) => text.text.clone(),
        Content::Thinking(thinking) => format!("(thinking) {}", thinking.thinking),
        Content::Image(image) => {
            let bytes = image.data.len() as u64 / 4 * 3;
            format!(
                "(image {}, {})",
                text::line(&image.mime_type),
                text::bytes(bytes)
            )
        }
        Content::ToolCall(call) => format!(
            "(call {}) {} {}",
            text::line(&call.id),
            text::line(&call.name),
            call.arguments.as_str()
        ),
        Content::Sealed(sealed) => {
            let readable = sealed.readable().map(|text| format!(" {text}"));
            format!("({sealed}){}", readable.unwrap_or_default())
        }
        Content::Other(json) => format!("(block) {}", json.readable()),
    }
}

fn fault_line(fault: &ContextFault) -> String {
    let what = match fault.kind {
        FaultKind::ResultWithoutCall => "a tool result without its call",
        FaultKind::CallWithoutResult => "a tool call without its result",
        FaultKind::DuplicateCallId => "a call id used by an earlier call",
        FaultKind::LateResult => "a tool result that does not follow its call",
        FaultKind::EmptyContent => "an empty message",
        FaultKind::ThinkingParted => "signed thinking separated from its answer",
        FaultKind::MisplacedCompaction => {
            "a compaction of the provider in the wrong place; `loopstore repair` undoes it"
        }
        FaultKind::SecondCompaction => {
            "a second compaction of the provider; `loopstore repair` undoes it"
        }
        FaultKind::AlteredSealed => {
            "a compaction that is not what the provider gave; `loopstore repair` undoes it"
        }
        FaultKind::ForeignSealed => "state of another provider, left out of requests",
        FaultKind::OrphanedSealed => {
            "a compaction of the provider without its run; `loopstore repair` goes on without it"
        }
        FaultKind::OriginalsMissing => {
            "nothing is stored of what the provider's compaction stands for; import the transcript \
             that has it, or stay with this provider"
        }
        _ => "a fault",
    };
    let id = fault.tool_call_id.as_deref();
    let call = id.map_or_else(String::new, |id| format!(" ({})", text::line(id)));
    format!("[{}] {what}{call}", fault.message)
}
