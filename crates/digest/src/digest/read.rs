//! Reads a document back, so that a later compaction of the loop continues from it.

use super::lines::{
    CALLED, FOUND, Heading, OPEN, OPENING, PLAN_HEAD, RAN, READ, REFUSED, read_named,
    read_plan_line,
};
use super::model_sections::{ModelSection, is_model_line};
use super::names::LoopNames;
use super::record::{ForeignSummary, Instruction, SpeakerRole, Statement};
use super::values::line::{SEEN, ValueLine, read_place, read_values};
use crate::activity::{
    AgentPlan, AgentWork, CallHistory, FileAct, FileEvent, FileWork, PendingCall, SourceTurn,
};

/// A part of a document.
pub(super) enum DocumentPart {
    /// A marker: the document is of a conversation without calls, so no value was used by a call.
    Conversation,
    Statement(Statement),
    Instruction(Instruction),
    ForeignSummary(ForeignSummary),
    /// A section that a model wrote.
    Model(ModelSection),
    /// Plan, files, commands and running calls.
    Work(Box<AgentWork>),
    Values(ValueLine),
}

impl DocumentPart {
    /// Calls `each` with every turn of the part.
    pub(super) fn each_place(&mut self, each: &mut dyn FnMut(&mut SourceTurn)) {
        match self {
            Self::Conversation => {}
            Self::Statement(statement) => each(&mut statement.place),
            Self::Instruction(instruction) => each(&mut instruction.place),
            Self::ForeignSummary(carried) => each(&mut carried.place),
            Self::Model(given) => each(&mut given.place),
            Self::Values(line) => line
                .entries
                .iter_mut()
                .for_each(|entry| each(&mut entry.place)),
            Self::Work(work) => work.each_place(each),
        }
    }
}

/// Returns the parts of a document; `None` if the text is no document. A model's sections are assigned to the last turn
/// that the header names, or to `turn` if it names none.
pub(super) fn document(text: &str, turn: u32) -> Option<Vec<DocumentPart>> {
    if !text.starts_with(OPENING) {
        return None;
    }
    let (names, text) = LoopNames::read(text);
    let turn = text.lines().next().and_then(last_turn).unwrap_or(turn);
    let mut sections = Vec::new();
    let mut given: Vec<ModelSection> = Vec::new();
    let mut work = AgentWork::default();
    let mut carried: Option<ForeignSummary> = None;
    let (mut heading, mut used, mut day) = (None, true, String::new());
    // If a conversation has one speaker, only the first line names the speaker.
    let (mut voice, mut is_conversation) = (SpeakerRole::Agent, false);
    for line in text.lines().skip(1) {
        if let Some(found) = Heading::of_line(line) {
            (heading, used) = (Some(found), true);
            day.clear();
            continue;
        }
        if let Some(heading) = heading.filter(|heading| heading.may_come_from_model())
            && is_model_line(line)
        {
            match given.iter_mut().find(|given| given.heading == heading) {
                Some(given) => given.lines.push(line.to_owned()),
                None => given.push(ModelSection {
                    heading,
                    place: SourceTurn {
                        loop_name: None,
                        turn,
                    },
                    is_new: false,
                    lines: vec![line.to_owned()],
                }),
            }
            continue;
        }
        match heading {
            Some(Heading::Task) => {
                sections.extend(
                    read_statement(line, SpeakerRole::Human, &mut day).map(DocumentPart::Statement),
                );
            }
            Some(Heading::Findings) => {
                let statement = read_statement(line, voice, &mut day);
                if let Some(statement) = statement.as_ref().filter(|s| s.speaker.is_participant()) {
                    voice = statement.speaker;
                    is_conversation |= names_participant(line);
                }
                sections.extend(statement.map(DocumentPart::Statement));
            }
            Some(Heading::Instructions) => {
                sections.extend(read_instruction(line).map(DocumentPart::Instruction));
            }
            Some(Heading::EarlierSummary) => match line.strip_prefix(">") {
                Some(quoted) => {
                    if let Some(carried) = &mut carried {
                        carried
                            .text
                            .push_str(quoted.strip_prefix(' ').unwrap_or(quoted));
                        carried.text.push('\n');
                    }
                }
                None => {
                    sections.extend(carried.take().map(DocumentPart::ForeignSummary));
                    carried = read_foreign_summary_head(line);
                }
            },
            Some(Heading::Plan) => read_plan(line, &mut work),
            Some(Heading::Files) => read_files(line, &mut work),
            Some(Heading::Commands) => work.calls.extend(read_call(line)),
            Some(Heading::Values) if line == SEEN => used = false,
            Some(Heading::Values) => {
                sections.extend(read_values(line, used).map(DocumentPart::Values));
            }
            // Instructions of a tiny page follow the header.
            None => sections.extend(read_instruction(line).map(DocumentPart::Instruction)),
        }
    }
    sections.extend(is_conversation.then_some(DocumentPart::Conversation));
    sections.extend(carried.map(DocumentPart::ForeignSummary));
    sections.extend(given.into_iter().map(DocumentPart::Model));
    sections.push(DocumentPart::Work(Box::new(work)));
    for section in &mut sections {
        section.each_place(&mut |place| names.restore(place));
    }
    Some(sections)
}

/// Returns the last turn that a header names: 7 in `[Working state of turns 2..7`.
fn last_turn(header: &str) -> Option<u32> {
    let (_, turns) = header.strip_prefix(OPENING)?.split_once("..")?;
    let digits = turns.trim_start_matches('t');
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// Returns the line before a foreign summary, with its turn.
pub(super) fn foreign_summary_head(place: &SourceTurn) -> String {
    format!("Written at {place}, kept as it is:\n")
}

fn read_foreign_summary_head(line: &str) -> Option<ForeignSummary> {
    let place = line.strip_prefix("Written at ")?.split_once(',')?.0;
    Some(ForeignSummary {
        place: read_place(place)?,
        text: String::new(),
    })
}

/// Reads `- t3 2031-04-01 user: words`. A line without a day has the day of the line before. `usual` is the speaker of
/// a line without one.
fn read_statement(line: &str, usual: SpeakerRole, day: &mut String) -> Option<Statement> {
    let (head, text) = line.strip_prefix("- ")?.split_once(": ")?;
    let (place, mut rest) = leading_place(head)?;
    if let Some((first, more)) = rest.split_once(' ').or(Some((rest, "")))
        && first.len() == 10
        && first.starts_with(|c: char| c.is_ascii_digit())
    {
        first.clone_into(day);
        rest = more;
    }
    let speaker = match rest {
        "" => usual,
        name => SpeakerRole::from_name(name)?,
    };
    Some(Statement::kept(speaker, place, day.clone(), text))
}

/// True if a line names a person or the agent, as only the document of a conversation without calls does.
fn names_participant(line: &str) -> bool {
    let head = line.split_once(": ").map_or("", |(head, _)| head);
    let mut words = head.rsplit(' ');
    let (name, before) = (words.next().unwrap_or(""), words.next());
    let of = SpeakerRole::from_name(name).filter(|speaker| speaker.is_participant());
    of.is_some() && before != Some("parent")
}

/// Reads the turn at the beginning of a text; returns it and the rest.
fn leading_place(text: &str) -> Option<(SourceTurn, &str)> {
    let end = |from: usize| text[from..].find(' ').map_or(text.len(), |at| from + at);
    let first = end(0);
    let place = |to: usize| read_place(&text[..to]).map(|place| (place, text[to..].trim_start()));
    place(first).or_else(|| place(end((first + 1).min(text.len()))))
}

fn read_instruction(line: &str) -> Option<Instruction> {
    let (place, text) = line.strip_prefix("- ")?.split_once(": ")?;
    Some(Instruction {
        place: read_place(place)?,
        text: text.to_owned(),
    })
}

fn read_plan(line: &str, work: &mut AgentWork) {
    if let Some(place) = line.strip_prefix(PLAN_HEAD) {
        let place = place.split(" (").next().and_then(read_place);
        work.plan = place.map(|place| AgentPlan {
            items: Vec::new(),
            place,
        });
    } else if let Some(open) = line.strip_prefix(OPEN) {
        let read = || {
            let (what, place) = open.strip_suffix(')')?.rsplit_once(" (")?;
            Some(PendingCall {
                id: String::new(),
                description: what.to_owned(),
                place: read_place(place)?,
            })
        };
        work.running.extend(read());
    } else if let (Some(plan), Some(item)) = (&mut work.plan, read_plan_line(line)) {
        plan.items.push(item);
    }
}

fn read_files(line: &str, work: &mut AgentWork) {
    if let Some(mut rest) = line.strip_prefix(READ) {
        while let Some((path, after)) = read_named(rest) {
            let (place, more) = after
                .trim_start()
                .split_once(", ")
                .unwrap_or((after.trim_start(), ""));
            let Some(place) = read_place(place) else {
                return;
            };
            work.files.push(FileWork {
                path: path.to_owned(),
                events: vec![event(FileAct::Read, place)],
            });
            rest = more;
        }
        return;
    }
    let Some((path, rest)) = line.strip_prefix("- ").and_then(read_named) else {
        return;
    };
    let mut events = Vec::new();
    let mut rest = rest.strip_prefix(": ").unwrap_or_default();
    while let Some((act, after)) = read_act(rest) {
        let (group, more) = group_end(after);
        let (places, symbols) = match group.split_once(" (") {
            Some((places, symbols)) => (places, symbols.trim_end_matches(')')),
            None => (group, ""),
        };
        let from = events.len();
        let places = places.split(", ").filter_map(read_place);
        events.extend(places.map(|place| event(act.clone(), place)));
        if let Some(last) = events[from..].last_mut() {
            let symbols = symbols.split(", ").filter(|symbol| !symbol.is_empty());
            last.symbols = symbols.map(str::to_owned).collect();
            last.symbols.reverse();
        }
        rest = more;
    }
    if !events.is_empty() {
        let path = path.to_owned();
        work.files.push(FileWork { path, events });
    }
}

/// Splits a text before the next event of a file. Names of declarations may contain the separator.
fn group_end(text: &str) -> (&str, &str) {
    let mut from = 0;
    while let Some(at) = text[from..].find("; ").map(|at| from + at) {
        if read_act(&text[at + 2..]).is_some() {
            return (&text[..at], &text[at + 2..]);
        }
        from = at + 2;
    }
    (text, "")
}

fn read_act(text: &str) -> Option<(FileAct, &str)> {
    let plain = [
        ("created ", FileAct::Created),
        ("rewritten ", FileAct::Written),
        ("edited ", FileAct::Edited),
        ("deleted ", FileAct::Deleted),
        ("reverted ", FileAct::Reverted),
        ("read ", FileAct::Read),
    ];
    for (verb, act) in plain {
        if let Some(rest) = text.strip_prefix(verb) {
            return Some((act, rest));
        }
    }
    let (from, rest) = read_named(text.strip_prefix("moved from ")?)?;
    Some((FileAct::MovedFrom(from.to_owned()), rest.trim_start()))
}

fn event(act: FileAct, place: SourceTurn) -> FileEvent {
    FileEvent {
        act,
        place,
        symbols: Vec::new(),
    }
}

fn read_call(line: &str) -> Option<CallHistory> {
    let (head, rest) = line.strip_prefix("- ")?.split_once(": ")?;
    let (what, rest) = read_named(rest)?;
    let outcome = rest.strip_prefix(": ").unwrap_or_default();
    let mut history = CallHistory {
        description: what.to_owned(),
        is_command: true,
        runs: true,
        refused: false,
        times: 1,
        last: SourceTurn {
            loop_name: None,
            turn: 0,
        },
        failure: None,
        passed: None,
        result: None,
    };
    for part in head.split(", ") {
        if let Some(place) = part.strip_prefix("failed ") {
            history.last = read_place(place)?;
            history.failure = Some((history.last.clone(), outcome.to_owned()));
        } else if let Some(place) = part.strip_prefix(REFUSED) {
            history.last = read_place(place)?;
            let by_word = if outcome.is_empty() { "" } else { ": " };
            let error = format!("{}{by_word}{outcome}", REFUSED.trim_end());
            history.failure = Some((history.last.clone(), error));
            history.refused = true;
        } else if let Some(place) = part.strip_prefix("passed ") {
            history.last = read_place(place)?;
            history.passed = Some(history.last.clone());
        } else if let Some((verb, place)) = [RAN, CALLED, FOUND]
            .into_iter()
            .find_map(|verb| Some((verb, part.strip_prefix(verb)?)))
        {
            history.is_command = verb != CALLED;
            history.runs = verb != FOUND;
            history.last = read_place(place)?;
            history.result = Some(outcome.to_owned()).filter(|outcome| !outcome.is_empty());
        } else if let Some(times) = part.strip_suffix(" times") {
            history.times = times.parse().ok()?;
        }
    }
    Some(history)
}
