//! The rows of the tables, as plain values. Keys are a backend's own integers.

mod blocks;
mod edits;
mod loop_meta;
mod loops;
mod messages;
mod recording;
mod runs;
mod sessions;
mod sources;

pub use blocks::*;
pub use edits::*;
pub use loop_meta::*;
pub use loops::*;
pub use messages::*;
pub use recording::*;
pub use runs::*;
pub use sessions::*;
pub use sources::*;

pub use crate::model::{Layout, Size, Turns};

// A row that is not stored yet has the default key.
macro_rules! key {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(#[doc(hidden)] pub i64);
    )*};
}

key! {
    /// A session within its database.
    SessionKey,
    /// A loop within its database. A parent's key is always smaller than its child's.
    LoopKey,
    /// A compaction run within its database.
    RunKey,
    /// A block within its database.
    BlockKey,
    /// An undo or redo within its database.
    FlipKey,
    /// A pin within its database.
    PinKey,
    /// A row of `hides` within its database.
    HideKey,
    /// A kept file within its database.
    SourceKey,
    /// A manifest within its database.
    ManifestKey,
}

impl SessionKey {
    /// Returns the number. A session that was erased and created again has another number.
    pub fn get(self) -> i64 {
        self.0
    }
}

/// A moment of a session: everything with this tick or an earlier one has happened.
pub type Tick = i64;
