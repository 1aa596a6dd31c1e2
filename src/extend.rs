//! For those who extend loopstore: the contract of a backend, its rows and keys, and the transactions below
//! the front door.
//!
//! A program that only keeps sessions needs none of this: see [`Store`](crate::Store). What stands here is
//! public so that a backend, a tool that repairs, or a recorder of another kind can be written outside of
//! the crate; it changes more often than the front page does.
//!
//! ```
//! use loopstore::extend::{self, append, session};
//! use loopstore::*;
//!
//! let store = SqliteStore::in_memory()?;
//! let id = SessionId::new("weather")?;
//! extend::write(&store, |write| {
//!     let key = session::create_session(write, &Session::new(id.clone(), "agent"), None, None)?;
//!     let first = LoopRecord::new(LoopId::generate(), None);
//!     let loop_key = session::create_loop(write, key, &first)?;
//!     let prompt = AgentMessage::from(Message::user("Will it rain?"));
//!     append::append(write, loop_key, vec![prompt.into()], store.counter())
//! })?;
//! let context = build_context_from_session(&store, &id, &BuildOptions::default())?;
//! assert_eq!(context.messages.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use crate::context::moment::{leaf_of, moment_of, session_of};
pub use crate::context::states::{
    LoopStates, ShownChain, context_size, shown_chain, turn_dispositions,
};
pub use crate::recorder::usage::usage_below;
pub use crate::store::*;
