//! A persistent session store for long-running agents, with compaction as an overlay.
pub mod import;
pub mod model;
pub mod store;
pub mod tokens;
pub use model::*;
pub use store::sqlite::{Durability, SqliteOptions, SqliteStore};
pub use store::{OpenError, SessionStore, StoreError};
pub use tokens::*;
