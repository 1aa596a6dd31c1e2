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
//! use loopstore::store::{self, append, session};
//! use loopstore::*;
//!
//! let store = SqliteStore::in_memory()?;
//! let id = SessionId::new("weather")?;
//! store::write(&store, |write| {
//!     let key = session::create_session(write, &Session::new(id.clone(), "agent"), None, None)?;
//!     let first = LoopRecord::new(LoopId::generate(), None);
//!     let loop_key = session::create_loop(write, key, &first)?;
//!     let prompt = AgentMessage::from(Message::user("Will it rain?"));
//!     append::append(write, loop_key, vec![prompt.into()], &HeuristicTokenCounter)
//! })?;
//! compact_session_loops(&store, &id, &CompactRequest::default())?;
//! let context = build_context_from_session(&store, &id, &BuildOptions::default())?;
//! assert_eq!(context.messages.len(), 1);
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
