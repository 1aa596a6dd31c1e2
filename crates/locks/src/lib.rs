//! Locks on SQLite files that belong to the open file instead of the process.
//!
//! SQLite locks a database with POSIX record locks. Those belong to the process: when any part of the
//! process closes any descriptor of the file, all of them are gone. Two copies of SQLite in one process
//! (this program's and Python's `sqlite3`, for example) therefore take each other's locks away. The copy
//! that closes first deletes the write-ahead log under the other one, and two writers no longer exclude
//! each other: <https://sqlite.org/howtocorrupt.html>, section 2.2.1.
//!
//! [`install`] replaces system calls of the SQLite copy that this program is linked with:
//!
//! - `fcntl` sets *open file description locks* (`F_OFD_SETLK`) instead. They conflict with the POSIX locks
//!   of every process, this one included, and no close of another descriptor removes them.
//! - `close` keeps a descriptor open while another part of the process has the same file open, since
//!   closing it would remove the POSIX locks of that part. `open` uses such a descriptor again.
//! - After a `fork` the child gets open file descriptions of its own, so that it can neither release the
//!   locks of its parent nor keep them after the parent's death; `mmap` and `munmap` note what else keeps a
//!   description.
//!
//! It is not a VFS: names, files and file formats stay those of SQLite's `unix` VFS, and a program without
//! this crate can use the same database at the same time.
//!
//! [`lock_byte`] takes the same kind of lock on other files, [`OwnFile`] is a file whose locks no forked child
//! shares, and [`SharedFile`] reads a file without removing the locks of another copy of SQLite on it.

#[cfg(target_os = "linux")]
mod byte;
#[cfg(target_os = "linux")]
mod descriptors;
// Tests of this module run on Linux too.
mod files;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod ranges;
#[cfg(target_os = "linux")]
mod syscalls;
#[cfg(target_os = "linux")]
mod table;
#[cfg(any(test, not(target_os = "linux")))]
mod unsupported;

#[cfg(not(target_os = "linux"))]
use unsupported as descriptors;

#[cfg(target_os = "linux")]
pub use byte::{HAS_LOCKS, is_byte_free, lock_byte, unlock_byte};
pub use files::{OwnFile, SharedFile};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{HAS_LOCKS, is_byte_free, lock_byte, unlock_byte};

/// Makes SQLite's locks belong to the open file; only the first call has an effect.
///
/// Returns `true` if the locks belong to the open file. Returns `false` if the system has no open file description
/// locks (any system other than Linux, or a kernel before 3.15): no other copy of SQLite may open the same database
/// in this process then. Connections that were opened before the first call keep POSIX locks.
///
/// # Examples
/// ```
/// if loopstore_locks::install() {
///     // Another copy of SQLite in this process may open the same database.
/// }
/// ```
pub fn install() -> bool {
    #[cfg(target_os = "linux")]
    {
        static INSTALLED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *INSTALLED.get_or_init(syscalls::install)
    }
    #[cfg(not(target_os = "linux"))]
    false
}
