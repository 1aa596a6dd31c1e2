//! The work of an agent as plain data: read from messages, or from the document of an earlier compaction.

use std::fmt;
use std::sync::Arc;

/// The turn that a fact comes from, with the short name of its loop if there are several loops. Written as `t12` or
/// `L1 t12`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceTurn {
    /// The short name of the loop; `None` if there is only one loop.
    pub loop_name: Option<Arc<str>>,
    /// The index of the turn in its loop, from 0.
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

/// The work of an agent: the effects of all its calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentWork {
    /// The files that were read or changed, in the order of their first event.
    pub files: Vec<FileWork>,
    /// The last plan that the agent recorded.
    pub plan: Option<AgentPlan>,
    /// Commands and other calls, each once, in the order of their last run. A call that is no command is listed only
    /// if it had an effect, found files or has failed.
    pub calls: Vec<CallHistory>,
    /// Calls without a result, and sub-agents and commands that run in the background.
    pub running: Vec<PendingCall>,
}

/// A file and its events.
#[derive(Clone, Debug, PartialEq)]
pub struct FileWork {
    /// The path in the spelling of the last call. Two spellings of one path (`/repo/a.rs`, and `a.rs` in `/repo`) are
    /// one file.
    pub path: String,
    /// The events, oldest first. A later [`FileAct::Read`] replaces an earlier one.
    pub events: Vec<FileEvent>,
}

/// An event of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileEvent {
    /// The kind of the event.
    pub act: FileAct,
    /// The turn of the event.
    pub place: SourceTurn,
    /// The declarations that changed, as the text of the file names them: `fn parse`, `class Row`, `## Usage`. Empty
    /// if none is known.
    pub symbols: Vec<String>,
}

/// The kind of an event of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAct {
    /// The file was written for the first time, or the tool reported that it created the file.
    Created,
    /// The whole file was rewritten.
    Written,
    /// A part of the file was changed.
    Edited,
    /// The file was deleted.
    Deleted,
    /// The changes of the file were discarded (`git checkout -- a.rs`).
    Reverted,
    /// The file was moved here from this path.
    MovedFrom(String),
    /// The file was read, whole or in part.
    Read,
}

/// The plan or to-do list that the agent recorded with a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentPlan {
    /// The items in order.
    pub items: Vec<PlanItem>,
    /// The turn in which the plan was last recorded.
    pub place: SourceTurn,
}

/// An item of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanItem {
    /// The text of the item.
    pub text: String,
    /// The state of the item.
    pub state: PlanState,
}

/// The state of an item of a plan.
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

/// A command or another call, with the outcomes of all its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct CallHistory {
    /// The command line. For another tool, its name and its main argument, or all arguments if the call has an effect.
    pub description: String,
    /// True if the call is a command of a shell.
    pub is_command: bool,
    /// True if the call builds, tests or runs something, or has an effect outside of files (`cargo test`, `git push`,
    /// `book_flight`). False for a search or a utility (`ls`, `cat`, `git log`).
    pub runs: bool,
    /// The number of runs.
    pub times: u32,
    /// The turn of the last run.
    pub last: SourceTurn,
    /// The turn of the last failure, and the line that states it; kept after a later run has passed.
    pub failure: Option<(SourceTurn, String)>,
    /// True if the last failure is the refusal of a person.
    pub refused: bool,
    /// The turn in which this call, or a wider one that covers it, passed after the last failure. A failure is open
    /// while this is `None`.
    pub passed: Option<SourceTurn>,
    /// The result of the last run: the line that counts passes and failures (`12 passed`), the short answer of a tool,
    /// or the files that a search found.
    pub result: Option<String>,
}

/// A call that is still running.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingCall {
    /// The id of the call; empty if it was read from a document.
    pub id: String,
    /// The command line, or the tool and its main argument; the task of a sub-agent.
    pub description: String,
    /// The turn of the call.
    pub place: SourceTurn,
}

impl AgentWork {
    /// True if there are no files, no plan, no calls and no running calls.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.plan.is_none()
            && self.calls.is_empty()
            && self.running.is_empty()
    }

    /// Returns this work followed by `later`, for instance that of the next loop.
    #[must_use]
    pub fn joined(mut self, later: Self) -> Self {
        self.files.extend(later.files);
        self.calls.extend(later.calls);
        self.running.extend(later.running);
        self.plan = later.plan.or(self.plan);
        self
    }

    /// Calls `each` with every turn.
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
