//! Locks on single bytes of files other than databases.

use std::fs::File;
use std::os::fd::AsRawFd;

/// True if this system has open file description locks.
pub const HAS_LOCKS: bool = true;

/// Locks a byte exclusively until it is unlocked or the file is closed. Returns `false` if another open file
/// has it locked, or if the file system has no such locks.
pub fn lock_byte(file: &File, at: i64) -> bool {
    let mut range = byte(libc::F_WRLCK, at);
    // SAFETY: the descriptor is open, and the structure lives through the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut range) == 0 }
}

/// Unlocks a byte. A lock that cannot be released ends when the file is closed.
pub fn unlock_byte(file: &File, at: i64) {
    let mut range = byte(libc::F_UNLCK, at);
    // SAFETY: the descriptor is open, and the structure lives through the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut range) };
}

/// Returns `true` if no other open file has the byte locked; `false` also if the file system does not support
/// the query.
pub fn is_byte_free(file: &File, at: i64) -> bool {
    let mut found = byte(libc::F_WRLCK, at);
    // SAFETY: the descriptor is open, and the structure lives through the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut found) };
    result == 0 && libc::c_int::from(found.l_type) == libc::F_UNLCK
}

fn byte(kind: libc::c_int, at: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    }
}
