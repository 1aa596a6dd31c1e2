//! The work of an agent, extracted from the structure of its calls and their results: the files it changed, its
//! plan, the commands that failed and passed, and the calls that are still running.
//!
//! To extract the work of a session, add its messages to an [`Activity`] in order and call [`Activity::work`].
//!
//! No prose is interpreted. A tool is recognised by the shape of its arguments first and by its name second, so an
//! unknown tool is usually understood too. A call with a failed result changes no file. The words that are recognised
//! are in the private module `tables`.

mod actions;
mod effects;
mod files;
mod hits;
mod log;
#[doc(hidden)]
pub mod noise;
#[doc(hidden)]
pub mod outcome;
mod patch;
mod plan;
mod reader;
mod roles;
mod shell;
mod tables;
mod work;

pub(crate) use actions::is_search_setting;
pub use actions::texts::{
    FileChange, Hunk, HunkLine, TextChange, TextReplacement, message_changes,
};
pub use effects::CallEffects;
#[doc(hidden)]
pub use files::{normal, resolved};
pub use log::{CallEnd, CallPosition, EndedCall, GitCommit, GitCommitKind};
pub use patch::FileOperation;
pub use reader::Activity;
pub(crate) use roles::{ArgumentRole, is_run};
pub use work::{
    AgentPlan, AgentWork, CallHistory, FileAct, FileEvent, FileWork, PendingCall, PlanItem,
    PlanState, SourceTurn,
};
