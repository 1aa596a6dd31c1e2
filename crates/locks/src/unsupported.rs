//! Systems without open file description locks: no byte is ever locked, or known to be free.

use std::fs::File;

/// True if this system has open file description locks.
pub const HAS_LOCKS: bool = false;

/// Returns `false`, since nothing is locked.
pub fn lock_byte(_: &File, _: i64) -> bool {
    false
}

/// Does nothing.
pub fn unlock_byte(_: &File, _: i64) {}

/// Returns `false`, since the state of the byte is unknown.
pub fn is_byte_free(_: &File, _: i64) -> bool {
    false
}

/// Does nothing: a forked child shares the file.
pub(crate) fn register_own(_: &File) {}

/// Does nothing.
pub(crate) fn forget_own(_: &File) {}

/// Does nothing.
pub(crate) fn register_shared(_: &File) {}

/// Closes a file, which removes the locks of the process on it.
pub(crate) fn close_shared(_: File) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller must not believe that it holds a lock that does not exist.
    #[test]
    fn nothing_is_locked_and_no_byte_is_known_to_be_free() {
        let file = tempfile::tempfile().unwrap();
        register_own(&file);
        const { assert!(!HAS_LOCKS) };
        assert!(!lock_byte(&file, 7));
        assert!(!is_byte_free(&file, 7));
        unlock_byte(&file, 7);
        forget_own(&file);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_shared_file_is_closed() {
        use std::os::fd::AsRawFd;

        let file = tempfile::NamedTempFile::new().unwrap();
        let shared = file.reopen().unwrap();
        let path = format!("/proc/self/fd/{}", shared.as_raw_fd());
        let is_open = || std::fs::read_link(&path).is_ok_and(|found| found == file.path());
        register_shared(&shared);
        assert!(is_open());
        close_shared(shared);
        assert!(!is_open());
    }
}
