//! What was done, as plain records: read from messages, or from the document of an earlier compaction.

use std::fmt;
use std::sync::Arc;

/// Where something stood: a turn, and the loop's short name if there is more than one loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceTurn {
    /// The loop's name; `None` if there is only one.
    pub loop_name: Option<Arc<str>>,
    /// The turn.
    pub turn: u32,
}

impl fmt::Display for SourceTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.loop_name {
            Some(name) => write!(f, "{name} t{}", self.turn),
            None => write!(f, "t{}", self.turn),
        }
    }
}

/// Everything that calls did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentWork {
    /// Each file that was touched, in the order of its first touch.
    pub files: Vec<FileWork>,
    /// The last plan.
    pub plan: Option<AgentPlan>,
    /// Commands and other calls, each once, in the order of their last run. Calls other than commands stand
    /// here only if they did something, found files or failed once.
    pub calls: Vec<CallHistory>,
    /// Calls without a result, and sub-agents and commands still running in the background.
    pub running: Vec<RunningCall>,
}

/// A file, and what happened to it.
#[derive(Clone, Debug, PartialEq)]
pub struct FileWork {
    /// The path as the calls gave it last. Two spellings of one path (`/repo/a.rs`, `a.rs` in `/repo`) are
    /// one file.
    pub path: String,
    /// What happened, oldest first. A later [`FileAct::Read`] takes the place of an earlier one.
    pub events: Vec<FileEvent>,
}

/// Something that happened to a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileEvent {
    /// What.
    pub act: FileAct,
    /// When.
    pub place: SourceTurn,
    /// Where in the file, as its text names it: `fn parse`, `class Row`, `## Usage`; none if nothing tells.
    pub symbols: Vec<String>,
}

/// What can happen to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAct {
    /// It was written where it had not been known before, or the tool says that it created it.
    Created,
    /// It was written anew as a whole.
    Written,
    /// A part of it was changed.
    Edited,
    /// It is gone.
    Deleted,
    /// It was put back as it had been before (`git checkout -- a.rs`).
    Reverted,
    /// It was moved here from another path.
    MovedFrom(String),
    /// It was read, whole or in part.
    Read,
}

/// A plan or to-do list as the agent's tool recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentPlan {
    /// The items in order.
    pub items: Vec<PlanItem>,
    /// When it was last recorded.
    pub place: SourceTurn,
}

/// An item of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanItem {
    /// Its words.
    pub text: String,
    /// How far it is.
    pub state: PlanState,
}

/// How far an item of a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanState {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Done,
    /// Given up.
    Cancelled,
}

/// A command or another call, which may have been run more than once.
#[derive(Clone, Debug, PartialEq)]
pub struct CallHistory {
    /// The command line; for another tool its name and the argument that says what it is about, or all of them
    /// if it did something.
    pub description: String,
    /// Whether it is a command of a shell.
    pub is_command: bool,
    /// Whether it builds, tests, runs or does something (`cargo test`, `git push`, `book_flight`), instead of
    /// looking at it (`ls`, `cat`, `git log`).
    pub runs: bool,
    /// How often it was run.
    pub times: u32,
    /// When it was run last.
    pub last: SourceTurn,
    /// The last failure that was seen, with its decisive_line line; kept when a later run passed.
    pub failure: Option<(SourceTurn, String)>,
    /// Whether that failure is that a person did not want it.
    pub refused: bool,
    /// When it passed after that failure, or something that stands for it did; `None` with a failure: open.
    pub passed: Option<SourceTurn>,
    /// The last line of its last result that says how it went (`12 passed`), or the short answer of a tool; of
    /// a search the files that it found.
    pub result: Option<String>,
}

/// A call that still runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningCall {
    /// Its id.
    pub id: String,
    /// The command line, or the tool and what it is about; for a sub-agent the task it was given.
    pub description: String,
    /// When it was begun.
    pub place: SourceTurn,
}

impl AgentWork {
    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.plan.is_none()
            && self.calls.is_empty()
            && self.running.is_empty()
    }

    /// Returns what both did, one after the other: records of another loop, say.
    #[must_use]
    pub fn joined(mut self, later: Self) -> Self {
        self.files.extend(later.files);
        self.calls.extend(later.calls);
        self.running.extend(later.running);
        self.plan = later.plan.or(self.plan);
        self
    }

    /// Calls `each` with every place.
    pub(crate) fn each_place(&mut self, each: &mut dyn FnMut(&mut SourceTurn)) {
        let events = self.files.iter_mut().flat_map(|file| &mut file.events);
        events.for_each(|event| each(&mut event.place));
        if let Some(plan) = &mut self.plan {
            each(&mut plan.place);
        }
        for history in &mut self.calls {
            each(&mut history.last);
            history
                .failure
                .iter_mut()
                .for_each(|failure| each(&mut failure.0));
            history.passed.iter_mut().for_each(&mut *each);
        }
        self.running
            .iter_mut()
            .for_each(|open| each(&mut open.place));
    }
}
