//! The open files of a forked child, in place of those of its parent.
//!
//! A lock on an open file description lasts until the last descriptor of it is closed, those of children
//! included, and every process that has one can release it.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::io::Write;
use std::sync::{MutexGuard, Once};

use crate::table::{self, Mapping, Table};

thread_local! {
    /// The table, while the thread that has it locked forks.
    static DURING_FORK: Cell<Option<MutexGuard<'static, Table>>> = const { Cell::new(None) };
}

/// Makes every later fork give the child open files of its own.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the three functions take no argument and live as long as the program. If there is no memory
        // to register them, forks behave as without this crate.
        unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    });
}

/// Waits until no other thread changes the table: otherwise its mutex would stay locked in the child.
unsafe extern "C" fn prepare() {
    let table = table::locked();
    let _ = DURING_FORK.try_with(|kept| kept.set(Some(table)));
}

unsafe extern "C" fn in_parent() {
    let _ = DURING_FORK.try_with(Cell::take);
}

unsafe extern "C" fn in_child() {
    if let Ok(Some(mut table)) = DURING_FORK.try_with(Cell::take) {
        table.separate_from_parent();
    }
}

/// Maps a part of a file again at the same address, from the child's own open file.
pub(crate) fn map_again(part: &Mapping) {
    // SAFETY: the addresses are those of SQLite's mapping of the same part of the same file, so that readers
    // and writers of the memory see no change. If the call fails, the old mapping stays.
    unsafe {
        libc::mmap(
            part.address as *mut libc::c_void,
            part.length,
            part.access,
            libc::MAP_SHARED | libc::MAP_FIXED,
            part.fd,
            part.offset,
        );
    }
}

/// Opens the file of a descriptor again under the same number. If that fails, the number refers to no file: the
/// child can then neither use it nor harm its parent.
pub(crate) fn reopen(fd: c_int) {
    let mut path = [0u8; 32];
    let written = write!(&mut path[..31], "/proc/self/fd/{fd}");
    let path = CStr::from_bytes_until_nul(&path).unwrap_or(c"/dev/null");
    // SAFETY: the paths end in a zero byte, and the table owns the descriptor.
    unsafe {
        let access = libc::fcntl(fd, libc::F_GETFL) & libc::O_ACCMODE;
        let mut new = match written {
            Ok(()) => libc::open(path.as_ptr(), access | libc::O_CLOEXEC),
            Err(_) => -1,
        };
        if new < 0 {
            new = libc::open(c"/dev/null".as_ptr(), access | libc::O_CLOEXEC);
        }
        if new < 0 {
            libc::close(fd);
            return;
        }
        libc::dup3(new, fd, libc::O_CLOEXEC);
        libc::close(new);
    }
}
