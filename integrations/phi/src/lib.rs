//! A drop-in for users of the crate `phi-core`.
//!
//! The crate implements traits of phi-core over a store of loopstore: its sessions, its log of events, its recorder
//! and its strategies of compaction. `loopstore-transcripts` reads the files of phi-core, and `loopstore-export`
//! writes a session in phi-core's form.
//!
//! | phi-core | here |
//! | --- | --- |
//! | `FileSystemSessionStore` | [`PhiSessionStore`]: sessions as loopstore's own, which can be compacted, searched and exported |
//! | `FileSystemEventLog` | [`PhiEventLog`]: every event, with ordinals that continue after a restart |
//! | `SessionRecorder` | [`PhiRecorder`]: each message is durable when it is complete |
//! | a `BlockCompactionStrategy` of theirs | [`FromPhi`] makes it one of ours |
//! | a `BlockCompactionStrategy` of ours | [`IntoPhi`] makes it one of theirs |
//!
//! # Examples
//! ```
//! use loopstore_phi::{PhiEventLog, PhiSessionStore};
//! use loopstore::{AsyncStore, Store};
//! use phi_core::session::{EventLog, SessionStore};
//!
//! let store = AsyncStore::from(Store::in_memory()?);
//! let (sessions, events) = (PhiSessionStore::new(store.clone()), PhiEventLog::new(store));
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! runtime.block_on(async {
//!     // An agent takes the log: `BasicAgent::with_event_log(Arc::new(events))`.
//!     assert!(events.read_since("nobody", 0).await?.is_empty());
//!     assert!(sessions.list_ids().await?.is_empty());
//!     Ok::<(), phi_core::SessionError>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod convert;
mod error;
mod event_log;
mod recorder;
mod session_store;
mod strategy;

pub use convert::{context_message, recorded_event, recorded_message};
pub use event_log::PhiEventLog;
pub use recorder::PhiRecorder;
pub use session_store::PhiSessionStore;
pub use strategy::{FromPhi, IntoPhi};
