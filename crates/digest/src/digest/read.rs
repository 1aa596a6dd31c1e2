//! Reads a document back: what a later compaction of the same loop goes on from.

use super::given::{Given, is_own_line};
use super::lines::{
    CALLED, FOUND, Heading, OPEN, OPENING, PLAN_HEAD, RAN, READ, REFUSED, read_named,
    read_plan_line,
};
use super::names::LoopNames;
use super::record::{Carried, Instruction, Speaker, Statement};
use super::values::line::{SEEN, ValueLine, read_place, read_values};
use crate::activity::{Attempt, FileAct, FileEvent, FileWork, OpenCall, Place, Plan, Work};

/// A part of a document.
pub(super) enum Section {
    /// Where people only talk their words stand beside the agent's, and nothing was used by a call.
    Talk,
    Said(Statement),
    Instruction(Instruction),
    Carried(Carried),
    /// Words of a model.
    Given(Given),
    /// Plan, files, commands and what runs.
    Work(Box<Work>),
    Values(ValueLine),
}

impl Section {
    /// Calls `each` with every place in it.
    pub(super) fn each_place(&mut self, each: &mut dyn FnMut(&mut Place)) {
        match self {
            Self::Talk => {}
            Self::Said(statement) => each(&mut statement.place),
            Self::Instruction(instruction) => each(&mut instruction.place),
            Self::Carried(carried) => each(&mut carried.place),
            Self::Given(given) => each(&mut given.place),
            Self::Values(line) => line
                .entries
                .iter_mut()
                .for_each(|entry| each(&mut entry.place)),
            Self::Work(work) => work.each_place(each),
        }
    }
}

/// Reads a document; `None` if the text is none. Words of a model were said at its last turn, or at `turn` if
/// it does not say which that is.
pub(super) fn document(text: &str, turn: u32) -> Option<Vec<Section>> {
    if !text.starts_with(OPENING) {
        return None;
    }
    let (names, text) = LoopNames::read(text);
    let turn = text.lines().next().and_then(last_turn).unwrap_or(turn);
    let mut sections = Vec::new();
    let mut given: Vec<Given> = Vec::new();
    let mut work = Work::default();
    let mut carried: Option<Carried> = None;
    let (mut heading, mut used, mut day) = (None, true, String::new());
    // Of a conversation with one voice only the first line names it.
    let (mut voice, mut is_talk) = (Speaker::Agent, false);
    for line in text.lines().skip(1) {
        if let Some(found) = Heading::ALL
            .into_iter()
            .find(|heading| heading.line() == line)
        {
            (heading, used) = (Some(found), true);
            day.clear();
            continue;
        }
        if let Some(heading) = heading.filter(|heading| heading.is_told())
            && is_own_line(line)
        {
            match given.iter_mut().find(|given| given.heading == heading) {
                Some(given) => given.lines.push(line.to_owned()),
                None => given.push(Given {
                    heading,
                    place: Place { of: None, turn },
                    is_new: false,
                    lines: vec![line.to_owned()],
                }),
            }
            continue;
        }
        match heading {
            Some(Heading::Task) => {
                sections.extend(said(line, Speaker::Human, &mut day).map(Section::Said));
            }
            Some(Heading::Said) => {
                let statement = said(line, voice, &mut day);
                if let Some(statement) = statement.as_ref().filter(|s| s.speaker.is_voice()) {
                    voice = statement.speaker;
                    is_talk |= names_voice(line);
                }
                sections.extend(statement.map(Section::Said));
            }
            Some(Heading::Instructions) => {
                sections.extend(instruction(line).map(Section::Instruction));
            }
            Some(Heading::Carried) => match line.strip_prefix(">") {
                Some(quoted) => {
                    if let Some(carried) = &mut carried {
                        carried
                            .text
                            .push_str(quoted.strip_prefix(' ').unwrap_or(quoted));
                        carried.text.push('\n');
                    }
                }
                None => {
                    sections.extend(carried.take().map(Section::Carried));
                    carried = carried_head(line);
                }
            },
            Some(Heading::Plan) => plan(line, &mut work),
            Some(Heading::Files) => files(line, &mut work),
            Some(Heading::Attempts) => work.attempts.extend(attempt(line)),
            Some(Heading::Values) if line == SEEN => used = false,
            Some(Heading::Values) => sections.extend(read_values(line, used).map(Section::Values)),
            None => {}
        }
    }
    sections.extend(is_talk.then_some(Section::Talk));
    sections.extend(carried.map(Section::Carried));
    sections.extend(given.into_iter().map(Section::Given));
    sections.push(Section::Work(Box::new(work)));
    for section in &mut sections {
        section.each_place(&mut |place| names.restore(place));
    }
    Some(sections)
}

/// Returns the last turn that a header names: `[Working state of turns 2..7`.
fn last_turn(header: &str) -> Option<u32> {
    let (_, turns) = header.strip_prefix(OPENING)?.split_once("..")?;
    let digits = turns.trim_start_matches('t');
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// Returns the line that says where a carried summary comes from.
pub(super) fn carried_line(place: &Place) -> String {
    format!("Written at {place}, kept as it is:\n")
}

fn carried_head(line: &str) -> Option<Carried> {
    let place = line.strip_prefix("Written at ")?.split_once(',')?.0;
    Some(Carried {
        place: read_place(place)?,
        text: String::new(),
    })
}

/// Reads `- t3 2031-04-01 user: words`; a line without a day is of the day of the one before.
fn said(line: &str, usual: Speaker, day: &mut String) -> Option<Statement> {
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
        name => Speaker::from_name(name)?,
    };
    Some(Statement::kept(speaker, place, day.clone(), text))
}

/// Whether a line names a person or the agent: where work was done it names neither.
fn names_voice(line: &str) -> bool {
    let head = line.split_once(": ").map_or("", |(head, _)| head);
    let mut words = head.rsplit(' ');
    let (name, before) = (words.next().unwrap_or(""), words.next());
    let of = Speaker::from_name(name).filter(|speaker| speaker.is_voice());
    of.is_some() && before != Some("parent")
}

/// Reads the place that a text begins with; returns also what follows it.
fn leading_place(text: &str) -> Option<(Place, &str)> {
    let end = |from: usize| text[from..].find(' ').map_or(text.len(), |at| from + at);
    let first = end(0);
    let place = |to: usize| read_place(&text[..to]).map(|place| (place, text[to..].trim_start()));
    place(first).or_else(|| place(end((first + 1).min(text.len()))))
}

fn instruction(line: &str) -> Option<Instruction> {
    let (place, text) = line.strip_prefix("- ")?.split_once(": ")?;
    Some(Instruction {
        place: read_place(place)?,
        text: text.to_owned(),
    })
}

fn plan(line: &str, work: &mut Work) {
    if let Some(place) = line.strip_prefix(PLAN_HEAD) {
        let place = place.split(" (").next().and_then(read_place);
        work.plan = place.map(|place| Plan {
            items: Vec::new(),
            place,
        });
    } else if let Some(open) = line.strip_prefix(OPEN) {
        let read = || {
            let (what, place) = open.strip_suffix(')')?.rsplit_once(" (")?;
            Some(OpenCall {
                id: String::new(),
                what: what.to_owned(),
                place: read_place(place)?,
            })
        };
        work.open.extend(read());
    } else if let (Some(plan), Some(item)) = (&mut work.plan, read_plan_line(line)) {
        plan.items.push(item);
    }
}

fn files(line: &str, work: &mut Work) {
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
    while let Some((act, after)) = act(rest) {
        let (group, more) = group_end(after);
        let (places, spots) = match group.split_once(" (") {
            Some((places, spots)) => (places, spots.trim_end_matches(')')),
            None => (group, ""),
        };
        let from = events.len();
        let places = places.split(", ").filter_map(read_place);
        events.extend(places.map(|place| event(act.clone(), place)));
        if let Some(last) = events[from..].last_mut() {
            let spots = spots.split(", ").filter(|spot| !spot.is_empty());
            last.spots = spots.map(str::to_owned).collect();
            last.spots.reverse();
        }
        rest = more;
    }
    if !events.is_empty() {
        let path = path.to_owned();
        work.files.push(FileWork { path, events });
    }
}

/// Splits where the next thing that happened to a file begins; names of places may hold what parts them.
fn group_end(text: &str) -> (&str, &str) {
    let mut from = 0;
    while let Some(at) = text[from..].find("; ").map(|at| from + at) {
        if act(&text[at + 2..]).is_some() {
            return (&text[..at], &text[at + 2..]);
        }
        from = at + 2;
    }
    (text, "")
}

fn act(text: &str) -> Option<(FileAct, &str)> {
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

fn event(act: FileAct, place: Place) -> FileEvent {
    FileEvent {
        act,
        place,
        spots: Vec::new(),
    }
}

fn attempt(line: &str) -> Option<Attempt> {
    let (head, rest) = line.strip_prefix("- ")?.split_once(": ")?;
    let (what, rest) = read_named(rest)?;
    let said = rest.strip_prefix(": ").unwrap_or_default();
    let mut attempt = Attempt {
        what: what.to_owned(),
        is_command: true,
        runs: true,
        refused: false,
        times: 1,
        last: Place { of: None, turn: 0 },
        failure: None,
        passed: None,
        result: None,
    };
    for part in head.split(", ") {
        if let Some(place) = part.strip_prefix("failed ") {
            attempt.last = read_place(place)?;
            attempt.failure = Some((attempt.last.clone(), said.to_owned()));
        } else if let Some(place) = part.strip_prefix(REFUSED) {
            attempt.last = read_place(place)?;
            let by_word = if said.is_empty() { "" } else { ": " };
            let error = format!("{}{by_word}{said}", REFUSED.trim_end());
            attempt.failure = Some((attempt.last.clone(), error));
            attempt.refused = true;
        } else if let Some(place) = part.strip_prefix("passed ") {
            attempt.last = read_place(place)?;
            attempt.passed = Some(attempt.last.clone());
        } else if let Some((verb, place)) = [RAN, CALLED, FOUND]
            .into_iter()
            .find_map(|verb| Some((verb, part.strip_prefix(verb)?)))
        {
            attempt.is_command = verb != CALLED;
            attempt.runs = verb != FOUND;
            attempt.last = read_place(place)?;
            attempt.result = Some(said.to_owned()).filter(|said| !said.is_empty());
        } else if let Some(times) = part.strip_suffix(" times") {
            attempt.times = times.parse().ok()?;
        }
    }
    Some(attempt)
}
