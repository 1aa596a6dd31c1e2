//! A persistent session store for long-running agents, with compaction as an overlay.
pub mod compaction;
pub mod context;
pub mod eval;
pub mod export;
pub mod import;
pub mod model;
pub mod orchestrate;
pub mod store;
pub mod tokens;
pub use compaction::*;
pub use context::{BuildOptions, Context, build_context_from_session};
pub use model::*;
pub use orchestrate::{CompactReport, CompactRequest, compact_session_loops, redo, undo};
pub use store::sqlite::{Durability, SqliteOptions, SqliteStore};
pub use store::{OpenError, SessionStore, StoreError};
pub use tokens::*;
