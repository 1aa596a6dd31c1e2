//! A session as a trajectory of the Agent Trajectory Interchange Format (ATIF).
//!
//! The steps of the document are the originals on the chain of the current loop. A run of compaction is a step of the
//! system with the text that replaced messages, marked as copied context. The context as a model sees it now follows as
//! an embedded trajectory of copied steps, to which `continued_trajectory_ref` points. The sessions of sub-agents and
//! the other loops of the session are embedded trajectories too.
//!
//! The rows that the format has no place for are in `extra.loopstore` ([`loopstore_atif::stored`]), so that an import
//! restores the session with its overlays. Of a chain only its steps are written.

mod agent;
mod parts;
mod session;
mod steps;

pub(super) use self::session::write;
