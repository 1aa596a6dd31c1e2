//! What an agent did, told from the structure of its calls and their results: which files it changed, its
//! plan, the commands that failed and passed, and what is still running.
//!
//! Nothing here reads prose. A tool is known by the shape of its arguments first and by its name second, so
//! that a tool nobody has met is still understood; a call whose result says that it failed has changed
//! nothing. Whoever wants to know what a session did reads its messages into an [`Activity`].

mod actions;
mod effects;
mod files;
mod hits;
#[doc(hidden)]
pub mod noise;
#[doc(hidden)]
pub mod outcome;
mod patch;
mod plan;
mod reader;
mod shell;
mod tables;
mod work;

pub use effects::CallEffects;
pub use reader::Activity;
pub use work::{
    AgentPlan, AgentWork, CallHistory, FileAct, FileEvent, FileWork, PlanItem, PlanState,
    RunningCall, SourceTurn,
};
