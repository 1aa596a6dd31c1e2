//! Conversation memory for agents of [rig](https://docs.rs/rig-core), kept by [loopstore].
//!
//! [`LoopstoreMemory`] implements rig's [`ConversationMemory`](rig_core::memory::ConversationMemory) and
//! [`DemotionHook`](rig_core::memory::DemotionHook), and provides a [`Compactor`](rig_core::memory::Compactor). The
//! messages that rig appends after a run (prompt, answers, calls, results) are one transaction: all of them are
//! stored, or none. They are durable when `append` returns. An append that failed or was dropped can be repeated with
//! the same messages, and takes effect once. [`load`](rig_core::memory::ConversationMemory::load) returns the
//! messages unchanged, and the summaries of compacted ones. The same session can be searched, shown, undone and
//! exported with loopstore, and another program may continue it.
//!
//! ```
//! use loopstore::{Policy, Store};
//! use loopstore_rig::LoopstoreMemory;
//! use rig_agent::agent::AgentBuilder;
//! use rig_core::test_utils::MockCompletionModel;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let memory = LoopstoreMemory::new(Store::in_memory()?).with_policy(Policy::new(128_000));
//! let model = MockCompletionModel::text("From noon on.");
//! let agent = AgentBuilder::new(model).memory(memory.clone()).conversation("weather").build();
//! agent.prompt("Will it rain?").await?;
//! assert_eq!(memory.session(&"weather".into())?.context()?.messages.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Calls run on tokio's pool of blocking threads, or without tokio on threads of their own. The crate has no model
//! and no search of its own: rig calls the model, and loopstore searches.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod compaction;
mod demotion;
mod depth;
mod error;

mod marks;
mod memory;
mod pending_appends;
mod pool;
mod restored;
mod state;
mod stored;

pub use compaction::{WorkingState, WorkingStateCompactor};
pub use error::Error;
pub use memory::{LoopstoreMemory, OnClear};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
