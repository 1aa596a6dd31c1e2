//! loopstore keeps the sessions of long-running agents in SQLite, with compaction as an overlay.
//!
//! An agent appends what happened, and nothing that it wrote is ever changed. When its context
//! window fills, a compaction writes *blocks* over loops: what to keep, what to shorten, what to
//! replace by a summary. The next model call reads through the blocks. A compaction can be undone,
//! and everything is plain rows that `sqlite3` can query.
//!
//! - Originals are never rewritten: triggers refuse it, and each message has a digest.
//! - A block is an overlay, numbered per loop; undo and redo are rows.
//! - A turn lands whole or not at all, also after a power loss.
//! - Every block says what became of each turn that it covers.
//! - Every attempt leaves an audit row.
//! - Every database of a released version opens.
//!
//! ```
//! # fn model(_: serde_json::Value) -> Result<serde_json::Value, loopstore::Error> {
//! #     Ok(serde_json::json!({"role": "assistant", "content": [{"type": "text", "text": "No."}]}))
//! # }
//! # let folder = tempfile::tempdir()?;
//! # std::env::set_current_dir(folder.path())?;
//! use loopstore::provider::{self, Form};
//! use loopstore::{AsOf, Message, Policy, Store, TurnRef};
//!
//! let store = Store::open("agent.db")?;
//! let chat = store.session("weather")?.with_policy(Policy::new(128_000));
//! chat.append([Message::user("Will it rain?")])?; // The session begins, and its first loop.
//! let ready = chat.prepare()?; // Compacted if the policy says so; it fits, or is an error.
//! let answer = model(ready.to(Form::Anthropic)?)?; // JSON of the provider, out and in.
//! chat.append(provider::read(Form::Anthropic, &answer)?)?; // Turns make themselves.
//! let then = chat.context_as_of(AsOf::turn("loop-1", 0))?; // As it was after any turn.
//! let side = chat.fork_at(TurnRef::new("loop-1", 0))?; // A branch: one row, nothing copied.
//! # assert_eq!((then.messages.len(), side.context()?.messages.len()), (2, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The rooms, each using only those before it: [`model`] plain types, [`tokens`] counting,
//! [`store`] the contract and its backends (the only home of SQL), [`compaction`] the plan and the
//! strategies, [`compact`] joins them to a store, [`context`] what the next model call sees,
//! [`provider`] reads and writes what
//! providers take and give, [`import`], [`recorder`], [`export`] and [`replay`] ways in and out, [`inspect`] and
//! [`search`](mod@search) ways to look, [`report`] a session as one page, [`redact`] and
//! [`retention`] what is not kept, [`backup`](mod@backup) copies all of it,
//! [`copy`](mod@copy) brings it to another backend, [`salvage`](mod@salvage)
//! what a damage left. `ARCHITECTURE.md` draws
//! the map. With the feature `tokio`, `AsyncDatabase` is the same from async code; with `phi-core`,
//! `phi` holds adapters for that crate; with `postgres`, `PostgresStore` keeps sessions on a server.

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod api;
#[cfg(feature = "tokio")]
mod async_store;
pub mod backup;
pub mod compact;
pub mod compaction;
mod compactor;
pub mod context;
pub mod copy;
pub mod eval;
pub mod export;
#[doc(hidden)]
pub mod failpoints;
pub mod import;
pub mod inspect;
pub mod model;
mod overlay;
#[cfg(feature = "phi-core")]
pub mod phi;
pub mod provider;
pub mod recorder;
pub mod redact;
pub mod replay;
pub mod report;
pub mod retention;
pub mod salvage;
pub mod search;
pub mod store;
pub mod tokens;

pub use api::{
    Appended, CallState, Error, LoopSpec, Policy, Prepared, Result, SessionHandle, Store,
    StoreOptions, TurnRef,
};
#[cfg(feature = "tokio")]
pub use api::{AsyncSession, AsyncStore};
#[cfg(feature = "tokio")]
pub use async_store::{AsyncDatabase, AsyncError, AsyncRecorder};
pub use compact::{
    BudgetTooSmall, CompactReport, CompactRequest, CompactTrigger, CompactionEnded, CompactionHook,
    CompactionStarted, Decision, FlipReport, FlipRequest, Hooks, compact_session_loops, redo, undo,
};
pub use compaction::*;
pub use compactor::{Compactor, CompactorError, NextCall};
pub use context::{
    AsOf, BuildOptions, Context, LiveContext, build_context_as_of, build_context_from_session,
    resolve_scope,
};
pub use model::*;
pub use recorder::{
    AgentEvent, LoopConfigSnapshot, RecordError, Recorded, RecorderOptions, SessionRecorder,
};
pub use search::{SearchHit, SearchQuery, SearchResults, Snippet, search};
#[cfg(feature = "postgres")]
pub use store::postgres::{PostgresOptions, PostgresStore};
pub use store::sqlite::{Durability, SqliteOptions, SqliteStore};
pub use store::{Database, Key, KeyError, OpenError, SessionStore, StoreError};
pub use tokens::*;
