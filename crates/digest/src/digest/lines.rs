//! Writes the lines of a document.
//!
//! Each line of a section names the turns that it comes from. A text of a person, an agent or a tool is put on one
//! line, after the line's own prefix, so no text can be read as a heading or as another line. [`super::read`] reads
//! the lines back.

use std::fmt::Write;

use super::record::{Instruction, SpeakerRole, Statement};
use crate::activity::{
    CallHistory, FileAct, FileEvent, FileWork, PendingCall, PlanItem, PlanState, SourceTurn,
};

/// The beginning of the first line of every document.
pub(super) const OPENING: &str = "[Working state";

/// The sections, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Heading {
    Task,
    EarlierSummary,
    Instructions,
    Plan,
    Findings,
    Files,
    Commands,
    Values,
}

impl Heading {
    pub(super) const ALL: [Self; 8] = [
        Self::Task,
        Self::EarlierSummary,
        Self::Instructions,
        Self::Plan,
        Self::Findings,
        Self::Files,
        Self::Commands,
        Self::Values,
    ];

    /// True if a model may write lines of the section. Files and values come from the record alone.
    pub(super) fn may_come_from_model(self) -> bool {
        !matches!(self, Self::EarlierSummary | Self::Files | Self::Values)
    }

    /// Returns the line of the heading.
    pub(super) fn line(self) -> &'static str {
        match self {
            Self::Task => "## Task",
            Self::EarlierSummary => "## Earlier summary",
            Self::Instructions => "## Standing instructions",
            Self::Plan => "## Plan",
            Self::Findings => "## Done, decided and found",
            Self::Files => "## Files",
            Self::Commands => "## Commands and errors",
            Self::Values => "## Exact values",
        }
    }

    /// Returns the line of the heading on a small page, where each word of a heading is one less of the content.
    pub(super) fn short_line(self) -> &'static str {
        match self {
            Self::EarlierSummary => "## Earlier",
            Self::Instructions => "## Rules",
            Self::Findings => "## Done",
            Self::Commands => "## Commands",
            Self::Values => "## Values",
            Self::Task | Self::Plan | Self::Files => self.line(),
        }
    }

    /// Returns the heading of a line, in either form.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|heading| heading.line() == line || heading.short_line() == line)
    }
}

/// The mark of omitted words of a prompt.
pub(super) const GAP: &str = " … ";

/// Returns the prefix of a prompt or statement: `- t3 2031-04-01 user: `. `day` and `speaker` say whether the prefix
/// has them.
pub(super) fn statement_head(statement: &Statement, day: bool, speaker: bool) -> String {
    let mut head = format!("- {}", statement.place);
    if day {
        head.push(' ');
        head.push_str(&statement.day);
    }
    if speaker {
        head.push(' ');
        head.push_str(statement.speaker.name());
    }
    head.push_str(": ");
    head
}

/// True if a line of the section names the speaker: in the task all but people, elsewhere all but the agent, and in a
/// conversation both.
pub(super) fn names_speaker(speaker: SpeakerRole, heading: Heading, is_conversation: bool) -> bool {
    match heading {
        Heading::Task => speaker != SpeakerRole::Human,
        _ => is_conversation || speaker != SpeakerRole::Agent,
    }
}

pub(super) fn instruction_line(instruction: &Instruction) -> String {
    format!("- {}: {}\n", instruction.place, instruction.text)
}

const STATES: [(PlanState, &str); 4] = [
    (PlanState::Pending, "[ ]"),
    (PlanState::InProgress, "[>]"),
    (PlanState::Done, "[x]"),
    (PlanState::Cancelled, "[-]"),
];

pub(super) fn plan_head(place: &SourceTurn) -> String {
    format!("As of {place} ([x] done, [>] in progress, [ ] open):\n")
}

pub(super) const PLAN_HEAD: &str = "As of ";

pub(super) fn plan_line(item: &PlanItem) -> String {
    let mark = STATES
        .iter()
        .find(|(state, _)| *state == item.state)
        .map_or("[ ]", |known| known.1);
    format!("- {mark} {}\n", one_line(&item.text))
}

/// Reads the line of an item of a plan.
pub(super) fn read_plan_line(line: &str) -> Option<PlanItem> {
    let rest = line.strip_prefix("- ")?;
    let (state, text) = STATES
        .iter()
        .find_map(|(state, mark)| Some((*state, rest.strip_prefix(mark)?)))?;
    Some(PlanItem {
        text: text.trim().to_owned(),
        state,
    })
}

pub(super) const OPEN: &str = "- running, no result yet: ";

pub(super) fn open_line(open: &PendingCall) -> String {
    format!("{OPEN}{} ({})\n", one_line(&open.description), open.place)
}

/// Quotes a path or a command.
fn named(text: &str) -> String {
    let text = one_line(text);
    let marks = [('`', '`'), ('«', '»'), ('⟦', '⟧')];
    let fits = |(_, close): &&(char, char)| !text.contains(*close);
    let (open, close) = marks.iter().find(fits).unwrap_or(&('`', '`'));
    format!("{open}{text}{close}")
}

/// Reads a text that [`named`] quoted; returns the text and the rest of the line.
pub(super) fn read_named(text: &str) -> Option<(&str, &str)> {
    let open = text.chars().next()?;
    let close = match open {
        '`' => '`',
        '«' => '»',
        '⟦' => '⟧',
        _ => return None,
    };
    text[open.len_utf8()..].split_once(close)
}

/// Returns the line of a file, `created t9; edited t12, t31 (fn parse)`, with at most `symbols` names of declarations,
/// and the turns that it names.
pub(super) fn file_line(file: &FileWork, symbols: usize) -> (String, Vec<SourceTurn>) {
    let mut named_places = Vec::new();
    let mut line = format!("- {}: ", named(&file.path));
    let mut groups: Vec<(String, Vec<&FileEvent>)> = Vec::new();
    // An agent usually reads a file before it changes it, so reads add nothing.
    for event in file
        .events
        .iter()
        .filter(|event| event.act != FileAct::Read)
    {
        let verb = verb(&event.act);
        match groups.last_mut() {
            Some((last, events)) if *last == verb => events.push(event),
            _ => groups.push((verb, vec![event])),
        }
    }
    for (at, (verb, events)) in groups.iter().enumerate() {
        let mut places: Vec<&SourceTurn> = events.iter().map(|event| &event.place).collect();
        places.dedup();
        // A long list of turns between the first and the last adds little.
        let is_long = places.len() > 4;
        if is_long {
            places.drain(1..places.len() - 2);
        }
        named_places.extend(places.iter().map(|place| (*place).clone()));
        let mut places: Vec<String> = places.iter().map(ToString::to_string).collect();
        if is_long {
            places.insert(1, "…".to_owned());
        }
        let parted = if at > 0 { "; " } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(line, "{parted}{verb} {}", places.join(", "));
        let mut names: Vec<&str> = Vec::new();
        for symbol in events.iter().rev().flat_map(|event| &event.symbols) {
            if !names.contains(&&**symbol) && names.len() < symbols {
                names.push(symbol);
            }
        }
        if !names.is_empty() {
            let _ = write!(line, " ({})", one_line(&names.join(", ")));
        }
    }
    line.push('\n');
    (line, named_places)
}

fn verb(act: &FileAct) -> String {
    match act {
        FileAct::Created => "created".to_owned(),
        FileAct::Written => "rewritten".to_owned(),
        FileAct::Edited => "edited".to_owned(),
        FileAct::Deleted => "deleted".to_owned(),
        FileAct::Reverted => "reverted".to_owned(),
        FileAct::MovedFrom(from) => format!("moved from {}", named(from)),
        FileAct::Read => "read".to_owned(),
    }
}

pub(super) const READ: &str = "- only read: ";

/// Returns the entry of a file that was only read.
pub(super) fn read_file(file: &FileWork) -> String {
    let place = file.events.last().map(|event| event.place.to_string());
    format!("{} {}", named(&file.path), place.unwrap_or_default())
}

/// The verbs of a command, and of another call with an effect.
pub(super) const RAN: &str = "ran ";
pub(super) const CALLED: &str = "called ";
/// The verb of a search.
pub(super) const FOUND: &str = "found ";
/// The verb of a call that a person refused.
pub(super) const REFUSED: &str = "refused ";

/// Returns the line of a command or call and its outcome.
pub(super) fn call_line(history: &CallHistory) -> String {
    let times = match history.times {
        0 | 1 => String::new(),
        times => format!(", {times} times"),
    };
    let what = named(&history.description);
    let line = match (&history.failure, &history.passed) {
        (Some((at, error)), None) if history.refused => {
            let words = error.strip_prefix(REFUSED.trim_end()).unwrap_or(error);
            format!("- {REFUSED}{at}{times}: {what}{words}")
        }
        (Some((at, error)), Some(passed)) => {
            format!("- failed {at}, passed {passed}{times}: {what}: {error}")
        }
        (Some((at, error)), None) => format!("- failed {at}, still open{times}: {what}: {error}"),
        (None, _) => {
            let result = history
                .result
                .as_deref()
                .map(|result| format!(": {result}"));
            let verb = match (history.runs, history.is_command) {
                (false, _) => FOUND,
                (true, true) => RAN,
                (true, false) => CALLED,
            };
            format!(
                "- {verb}{}{times}: {what}{}",
                history.last,
                result.unwrap_or_default()
            )
        }
    };
    one_line(&line) + "\n"
}

/// Puts a text on one line.
pub(super) fn one_line(text: &str) -> String {
    super::values::flat(text)
}
