//! A persistent session store for long-running agents, with compaction as an overlay.
pub mod model;
pub mod tokens;
pub use model::*;
pub use tokens::*;
pub mod compaction;
pub mod import;
