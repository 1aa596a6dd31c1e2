//! The content of a document before selection, read from messages and from the document before.

use super::lines::Heading;
use super::model_sections::ModelSection;
use super::speech::takes_back;
use super::text::{UnitText, units_of};
use super::values::{ValueLedger, flat};
use crate::activity::{Activity, SourceTurn};
use loopstore_model::Int;

/// The longest text that is kept whole, in bytes; of a longer one, half of this is kept at each end.
const LONGEST_TEXT: usize = 65_536;

/// The number of prompts before a statement that it may take back, and in a conversation, where asides come between.
const TAKEN_BACK: usize = 6;
const TAKEN_BACK_IN_CONVERSATION: usize = 16;

/// The speaker of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SpeakerRole {
    /// A person.
    Human,
    /// A parent agent that gives a task to its sub-agent.
    Parent,
    /// The agent.
    Agent,
    /// The program that runs the agent.
    Harness,
    /// A sub-agent that reports.
    SubAgent,
    /// A tool that returned the text of the task.
    Tool,
}

impl SpeakerRole {
    const NAMED: [(Self, &'static str); 6] = [
        (Self::Human, "user"),
        (Self::Parent, "parent agent"),
        (Self::Agent, "agent"),
        (Self::Harness, "harness"),
        (Self::SubAgent, "sub-agent"),
        (Self::Tool, "tool"),
    ];

    /// Returns the speaker's name in a document.
    pub(super) fn name(self) -> &'static str {
        Self::NAMED[self as usize].1
    }

    /// True for a person and the agent, the participants of a conversation.
    pub(super) fn is_participant(self) -> bool {
        matches!(self, Self::Human | Self::Agent)
    }

    /// Returns the speaker with that name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMED
            .into_iter()
            .find(|known| known.1 == name)
            .map(|known| known.0)
    }
}

/// A text of one speaker in one message.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) speaker: SpeakerRole,
    pub(super) place: SourceTurn,
    /// The day of the message, `2031-04-01`; empty if it is unknown.
    pub(super) day: String,
    /// The whole text on one line.
    pub(super) text: String,
    pub(super) units: UnitText,
    /// True if the message has calls: the text then mostly announces them.
    pub(super) has_calls: bool,
    /// True for a text of the harness that is the task, if there is no prompt.
    pub(super) is_task: bool,
    /// The units in which a person takes back what was said before.
    pub(super) takes_back: Vec<usize>,
}

impl Statement {
    /// Returns a statement with the units of a text.
    pub(super) fn new(speaker: SpeakerRole, place: SourceTurn, day: String, text: &str) -> Self {
        let text = ends_of(text.trim(), LONGEST_TEXT);
        let units = units_of(&text);
        let takes_back = match speaker {
            SpeakerRole::Human => {
                let all = units.units.iter().enumerate();
                let back = all.filter(|(_, unit)| !unit.is_raw && takes_back(&unit.text));
                back.map(|(at, _)| at).collect()
            }
            _ => Vec::new(),
        };
        Self {
            speaker,
            place,
            day,
            units,
            text: flat(&text).trim().to_owned(),
            has_calls: false,
            is_task: false,
            takes_back,
        }
    }

    /// Returns a statement of a document, whose text is on one line already.
    pub(super) fn kept(speaker: SpeakerRole, place: SourceTurn, day: String, text: &str) -> Self {
        Self::new(speaker, place, day, text)
    }

    /// True if the statement is a prompt: a request of a person or a parent agent.
    pub(super) fn is_prompt(&self) -> bool {
        matches!(self.speaker, SpeakerRole::Human | SpeakerRole::Parent)
    }
}

/// A standing instruction: a sentence of a person that constrains the work until it is revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) place: SourceTurn,
    pub(super) text: String,
}

/// A summary that another program wrote, kept unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForeignSummary {
    pub(super) place: SourceTurn,
    pub(super) text: String,
}

/// The content of a document before selection.
#[derive(Default)]
pub(super) struct DocumentRecord {
    /// Prompts and other statements, in the order of their messages.
    pub(super) statements: Vec<Statement>,
    /// Instructions of the document before, which may have cut their prompts.
    pub(super) instructions: Vec<Instruction>,
    pub(super) foreign_summaries: Vec<ForeignSummary>,
    /// The sections that a model wrote.
    pub(super) model_sections: Vec<ModelSection>,
    pub(super) activity: Activity,
    pub(super) values: ValueLedger,
    /// The time of the newest message.
    pub(super) timestamp: Option<Int>,
}

impl DocumentRecord {
    /// Calls `each` with every turn.
    pub(super) fn each_place(&mut self, each: &mut dyn FnMut(&mut SourceTurn)) {
        self.statements.iter_mut().for_each(|s| each(&mut s.place));
        self.instructions
            .iter_mut()
            .for_each(|i| each(&mut i.place));
        self.foreign_summaries
            .iter_mut()
            .for_each(|c| each(&mut c.place));
        self.activity.each_place(each);
        self.values.each_place(each);
        self.model_sections
            .iter_mut()
            .for_each(|g| each(&mut g.place));
    }

    /// True if a model wrote the section and had read the turn `place`.
    pub(super) fn is_covered_by_model(&self, heading: Heading, place: &SourceTurn) -> bool {
        let has_read = |given: &ModelSection| {
            given.is_new
                || (given.place.loop_name == place.loop_name && place.turn <= given.place.turn)
        };
        let mut given = self
            .model_sections
            .iter()
            .filter(|given| given.heading == heading);
        given.any(has_read)
    }

    /// Returns for each statement the last of the statements that take it back, if any: a person's statement takes back
    /// some of the person's prompts before it, and in a conversation what the agent said between them.
    pub(super) fn replacements(&self, is_conversation: bool) -> Vec<Option<usize>> {
        let mut last: Vec<Option<usize>> = vec![None; self.statements.len()];
        let most = match is_conversation {
            true => TAKEN_BACK_IN_CONVERSATION,
            false => TAKEN_BACK,
        };
        // Backwards, so that a statement that was taken back itself hands on the one that replaced it.
        let (mut by, mut left) = (None, 0);
        for (at, statement) in self.statements.iter().enumerate().rev() {
            let is_person = statement.speaker == SpeakerRole::Human;
            let is_answer = is_conversation && statement.speaker == SpeakerRole::Agent;
            if left > 0 && (is_person || is_answer) {
                last[at] = by;
            }
            if !statement.takes_back.is_empty() {
                (by, left) = (last[at].or(Some(at)), most);
            } else if is_person {
                left = left.saturating_sub(1);
            }
        }
        last
    }

    /// Returns the participant who makes all statements of participants; `None` if both do.
    pub(super) fn only_speaker(&self) -> Option<SpeakerRole> {
        let voices = self.statements.iter().map(|statement| statement.speaker);
        let mut voices = voices.filter(|speaker| speaker.is_participant());
        let first = voices.next()?;
        voices.all(|speaker| speaker == first).then_some(first)
    }

    /// True if there are no calls: the messages are a conversation of two people, or of a person and a model.
    pub(super) fn is_conversation(&self) -> bool {
        let work = self.activity.work();
        let nothing_done =
            work.files.is_empty() && work.calls.is_empty() && work.running.is_empty();
        nothing_done && !self.values.has_used()
    }
}

/// Returns a text, or both its ends with a line `…` between them if it is longer than `most` bytes.
fn ends_of(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 2)..];
    format!("{head}\n…\n{tail}")
}
