//! The parts of tests that several packages share. Not published.
//!
//! - [`conformance!`] defines the tests of the store's contract for one backend; their code is in the module of that name.
//! - [`histories`] makes random sessions, [`conversations`] random requests of providers, [`secrets`] random
//!   secrets; [`provider_faults`] lists the faults for which a provider rejects a request.
//! - [`synced_histories`] plays histories in several databases that are brought together.
//! - [`keyed`] and [`plain`] open databases, [`server`] starts PostgreSQL (feature `postgres`), [`needs`] finds
//!   the programs that a test calls and skips the test without them.
//! - [`SystemSqlite`] is a second copy of SQLite in the process: the shared library of the system, next to the
//!   one that loopstore is linked with.
//!
//! Without its default feature `store` the crate depends on no other crate of the workspace, and has only
//! [`SystemSqlite`].

#[cfg(feature = "store")]
pub mod amount;
#[cfg(feature = "store")]
pub mod archive;
#[cfg(feature = "tokio")]
pub mod asynchronous;
#[cfg(feature = "postgres")]
pub mod citus;
#[cfg(feature = "store")]
pub mod conformance;
#[cfg(feature = "store")]
pub mod conversations;
#[cfg(feature = "store")]
pub mod edit_model;
#[cfg(feature = "store")]
pub mod edited_histories;
#[cfg(feature = "store")]
pub mod encryption;
#[cfg(feature = "store")]
pub mod events;
#[cfg(feature = "store")]
pub mod hang;
#[cfg(feature = "store")]
pub mod histories;
#[cfg(feature = "store")]
pub mod http_server;
#[cfg(feature = "store")]
pub mod keyed;
#[cfg(feature = "store")]
pub mod letters;
#[cfg(feature = "store")]
pub mod needs;
#[cfg(feature = "store")]
pub mod pieces;
#[cfg(feature = "store")]
pub mod plain;
#[cfg(feature = "store")]
pub mod process;
#[cfg(feature = "store")]
pub mod proof;
#[cfg(feature = "store")]
pub mod provider_faults;
#[cfg(feature = "store")]
pub mod questions;
#[cfg(feature = "store")]
pub mod recording;
pub mod refusals;
#[cfg(feature = "store")]
pub mod removal;
#[cfg(feature = "store")]
pub mod requests;
#[cfg(feature = "store")]
pub mod root;
#[cfg(feature = "store")]
pub mod secrets;
#[cfg(feature = "postgres")]
pub mod server;
#[cfg(feature = "store")]
pub mod synced_histories;
#[cfg(target_os = "linux")]
mod system_sqlite;
#[cfg(feature = "store")]
pub mod validated_lines;
#[cfg(feature = "postgres")]
pub mod views;
#[cfg(feature = "store")]
pub mod whole;

/// The driver, for test programs with the feature: a dev-dependency of theirs would be built without it, too.
#[cfg(feature = "postgres")]
pub use postgres;
#[cfg(target_os = "linux")]
pub use system_sqlite::{SqliteFailure, SystemConnection, SystemSqlite};
