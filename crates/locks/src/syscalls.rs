//! The system calls that SQLite makes through this crate.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use rusqlite::ffi;

use crate::fork;
use crate::table::{self, LockRefusal, Mapping, OpenedFile};

type OpenFn = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type CloseFn = unsafe extern "C" fn(c_int) -> c_int;
type Fcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;
type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
/// A function of any type, as SQLite keeps it.
type Any = unsafe extern "C" fn();

/// The calls that are replaced, in the order of `install`.
const NAMES: [&CStr; 5] = [c"open", c"close", c"fcntl", c"mmap", c"munmap"];

/// The system calls that SQLite used before.
struct OriginalCalls {
    open: OpenFn,
    close: CloseFn,
    fcntl: Fcntl,
    mmap: Mmap,
    munmap: Munmap,
}

static REPLACED: OnceLock<OriginalCalls> = OnceLock::new();

/// Replaces the calls. Returns `false` if the system has no open file description locks.
pub(crate) fn install() -> bool {
    // The lock structure of 32-bit systems depends on how SQLite was compiled.
    if cfg!(not(target_pointer_width = "64")) || !system_has_locks() {
        return false;
    }
    // SAFETY: the name ends in a zero byte. The VFS lives as long as the program; the pointers that it returns
    // for these names have these types in every version since 3.7.6 (`aSyscall` in `os_unix.c`).
    unsafe {
        let vfs = ffi::sqlite3_vfs_find(c"unix".as_ptr());
        if vfs.is_null() {
            return false;
        }
        let (Some(get), Some(set)) = ((*vfs).xGetSystemCall, (*vfs).xSetSystemCall) else {
            return false;
        };
        let found = NAMES.map(|name| get(vfs, name.as_ptr()));
        let [
            Some(old_open),
            Some(old_close),
            Some(old_fcntl),
            Some(old_mmap),
            Some(old_munmap),
        ] = found
        else {
            return false;
        };
        let replaced = OriginalCalls {
            open: std::mem::transmute::<Any, OpenFn>(old_open),
            close: std::mem::transmute::<Any, CloseFn>(old_close),
            fcntl: std::mem::transmute::<Any, Fcntl>(old_fcntl),
            mmap: std::mem::transmute::<Any, Mmap>(old_mmap),
            munmap: std::mem::transmute::<Any, Munmap>(old_munmap),
        };
        if REPLACED.set(replaced).is_err() {
            return true;
        }
        fork::watch();
        // SQLite passes `fcntl` a third argument in addition to the two of its declaration: 64-bit Linux passes
        // it in the same register whether a function is variadic or not.
        let ours = [
            std::mem::transmute::<OpenFn, Any>(open),
            std::mem::transmute::<CloseFn, Any>(close),
            std::mem::transmute::<unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int, Any>(
                fcntl,
            ),
            std::mem::transmute::<Mmap, Any>(mmap),
            std::mem::transmute::<Munmap, Any>(munmap),
        ];
        let mut calls = NAMES.iter().zip(ours);
        calls.all(|(name, call)| set(vfs, name.as_ptr(), Some(call)) == ffi::SQLITE_OK)
    }
}

/// Returns `true` if the kernel has open file description locks.
fn system_has_locks() -> bool {
    // A query on an invalid descriptor fails with EBADF if the command is known, else with EINVAL; some
    // sandboxes check the descriptor first, so the query uses an open file.
    let Ok(file) = std::fs::File::open("/dev/null") else {
        return false;
    };
    let mut range = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: the descriptor is open, and the structure lives through the call.
    unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &mut range) == 0 }
}

/// Returns the replaced functions. They are set before the first replacement is called.
fn replaced() -> &'static OriginalCalls {
    REPLACED
        .get()
        .expect("calls are replaced after this is set")
}

pub(crate) fn close_descriptor(fd: c_int) -> c_int {
    // SAFETY: the caller owns the descriptor.
    unsafe { (replaced().close)(fd) }
}

pub(crate) fn lock_descriptor(fd: c_int, command: c_int, range: &mut libc::flock) -> c_int {
    // SAFETY: the structure lives through the call, which keeps no pointer to it.
    unsafe { (replaced().fcntl)(fd, command, std::ptr::from_mut(range)) }
}

/// Opens a file for SQLite; reuses a parked descriptor of the file if there is one.
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: SQLite passes a path that ends in a zero byte.
    let name = unsafe { CStr::from_ptr(path) };
    let mut table = table::locked();
    table.close_parked();
    if let Some(fd) = table.unpark(name, flags) {
        return fd;
    }
    // SAFETY: the arguments are passed on unchanged.
    let fd = unsafe { (replaced().open)(path, flags, mode) };
    let failure = errno();
    if fd >= 0 {
        table
            .files
            .extend(OpenedFile::of(fd, name, flags).map(|opened| (fd, opened)));
    }
    drop(table);
    set_errno(failure);
    fd
}

/// Closes a descriptor of SQLite, or parks it for later.
unsafe extern "C" fn close(fd: c_int) -> c_int {
    let mut table = table::locked();
    let is_kept = table.forget(fd);
    // The table is still locked: after the close, the number may be given to another file at once.
    let closed = if is_kept { 0 } else { close_descriptor(fd) };
    let failure = errno();
    drop(table);
    set_errno(failure);
    closed
}

/// Locks, unlocks or queries a lock.
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SQLite waits for a lock by polling; the one build that asks the system to wait (F_SETLKW with
    // SQLITE_ENABLE_SETLK_TIMEOUT) accepts a failure too.
    let is_query = command == libc::F_GETLK;
    if is_query || command == libc::F_SETLK || command == libc::F_SETLKW {
        // SAFETY: the argument of these commands is a pointer to this structure, which nobody else uses.
        let range = unsafe { &mut *argument.cast::<libc::flock>() };
        let mut table = table::locked();
        let done = match is_query {
            true => table.query(fd, range),
            false => table.set_lock(fd, range),
        };
        drop(table);
        match done {
            Ok(()) => return 0,
            Err(LockRefusal::Failed(code)) => {
                set_errno(code);
                return -1;
            }
            Err(LockRefusal::Unknown) => {}
        }
    }
    // SAFETY: the arguments are passed on unchanged.
    unsafe { (replaced().fcntl)(fd, command, argument) }
}

/// Maps a part of a file, and records the mapping.
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let mut table = table::locked();
    // SAFETY: the arguments are passed on unchanged.
    let mapped = unsafe { (replaced().mmap)(address, length, access, flags, fd, offset) };
    let failure = errno();
    if mapped != libc::MAP_FAILED && table.files.contains_key(&fd) {
        table.mappings.push(Mapping {
            address: mapped as usize,
            length,
            access,
            fd,
            offset,
        });
    }
    drop(table);
    set_errno(failure);
    mapped
}

/// Unmaps a mapping of [`mmap`].
unsafe extern "C" fn munmap(address: *mut c_void, length: usize) -> c_int {
    let mut table = table::locked();
    table
        .mappings
        .retain(|part| part.address != address as usize);
    // SAFETY: the arguments are passed on unchanged.
    let done = unsafe { (replaced().munmap)(address, length) };
    let failure = errno();
    drop(table);
    set_errno(failure);
    done
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the address of this thread's `errno` is valid.
    unsafe { *libc::__errno_location() }
}

fn set_errno(code: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = code }
}
