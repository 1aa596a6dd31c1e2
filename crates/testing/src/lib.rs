//! What the tests of several packages need and no user does.
//!
//! [`SystemSqlite`] is a second copy of SQLite in the process: the shared library of the system, beside the one
//! that loopstore is linked with. [`Random`] gives the same numbers for the same seed.

mod random;
#[cfg(target_os = "linux")]
mod system_sqlite;

pub use random::Random;
#[cfg(target_os = "linux")]
pub use system_sqlite::{Failure, SystemConnection, SystemSqlite};
