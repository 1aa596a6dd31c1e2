//! Files on every system: their content, and that a lock is never reported where there is none.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use loopstore_locks::{HAS_LOCKS, OwnFile, SharedFile, is_byte_free, lock_byte, unlock_byte};

#[test]
fn a_shared_file_is_read_and_sought_like_any_other() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"marmot").unwrap();
    let mut shared = SharedFile::open(file.path()).unwrap();
    let mut text = String::new();
    assert_eq!(shared.seek(SeekFrom::Start(3)).unwrap(), 3);
    shared.read_to_string(&mut text).unwrap();
    assert_eq!(text, "mot");
    assert_eq!(shared.metadata().unwrap().len(), 6);
    assert!(SharedFile::open(file.path().join("missing")).is_err());
}

#[test]
fn a_byte_is_locked_for_one_file_only_where_there_are_locks() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = || OwnFile::new(File::options().write(true).open(file.path()).unwrap());
    let (one, two) = (open(), open());
    assert_eq!(lock_byte(&one, 5), HAS_LOCKS);
    assert!(!lock_byte(&two, 5));
    assert!(!is_byte_free(&two, 5));
    unlock_byte(&one, 5);
    assert_eq!(is_byte_free(&two, 5), HAS_LOCKS);
    assert_eq!(lock_byte(&two, 5), HAS_LOCKS);
}
