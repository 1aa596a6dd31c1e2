//! A proxy between an editor and an agent of the Agent Client Protocol, which records the session.
//!
//! [`Proxy`] starts the agent and passes bytes on in both directions. What passes is copied into a bounded queue, from
//! which one thread reads messages and records them (`record`). A pump never waits for that thread. If the store is
//! slow, full or broken, the bytes pass all the same, and [`ProxyReport`] counts what was not recorded. The exit status
//! of the agent is reported as it is.
//!
//! An agent that cannot load, list or resume sessions is offered to the editor as one that can (`gate`). The store
//! answers these requests (`serve`). For a stored session the agent begins a new session of its own, whose first prompt
//! has the stored conversation before it, compacted to a limit. The gates replace the id of one by the id of the other.
//! [`ProxyOptions::record_only`] turns all of this off.
//!
//! The crate reads JSON with types of its own, since the crate of the protocol makes `serde_json` keep the order of
//! fields in everything that is built with it. It prints nothing and reads no environment.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod context;
mod counts;
mod gate;
mod lines;
mod outlet;
mod proxy;
mod queue;
mod record;
mod replay;
mod serve;
mod shared;
mod wire;
mod worker;

pub use counts::Unrecorded;
pub use proxy::{AgentProcess, Proxy, ProxyOptions, ProxyReport, UnrecordedCount};
pub use worker::StoreOpener;
