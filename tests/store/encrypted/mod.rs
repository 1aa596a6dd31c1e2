//! Encrypted databases: no plain text in any file, and errors for a key without encryption support.

#[cfg(feature = "sqlcipher")]
mod bytes;

use crate::support::histories;
#[cfg(feature = "sqlcipher")]
use crate::support::process;
use loopstore::{Key, OpenError, SqliteOptions, SqliteStore};

/// Plain SQLite accepts a key silently and encrypts nothing.
#[test]
#[cfg(not(feature = "sqlcipher"))]
fn a_program_without_encryption_refuses_a_key_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let options = SqliteOptions::new().key(Key::raw(&[7; 32]));
    let refused = SqliteStore::open_with(&path, options).err().unwrap();
    assert!(matches!(refused, OpenError::NoEncryption), "{refused}");
    assert!(!path.exists());
}

#[test]
fn a_store_in_memory_needs_no_key() {
    let options = SqliteOptions::new().key(Key::raw(&[7; 32]));
    let store = SqliteStore::in_memory_with(options).unwrap();
    histories::History::new(&store, "s");
}

#[test]
#[cfg(feature = "sqlcipher")]
fn the_first_stores_of_a_process_can_be_opened_at_once() {
    const NAME: &str = "encrypted::the_first_stores_of_a_process_can_be_opened_at_once";
    for _ in 0..10 {
        if process::is_alone(NAME) {
            return open_at_once();
        }
    }
}

#[cfg(feature = "sqlcipher")]
fn open_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let all_are_there = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for at in 0..8 {
            let path = folder.path().join(format!("{at}.db"));
            let all_are_there = &all_are_there;
            scope.spawn(move || {
                all_are_there.wait();
                let options = SqliteOptions::new().key(Key::raw(&[7; 32]));
                SqliteStore::open_with(path, options).unwrap();
            });
        }
    });
}

#[test]
fn a_file_of_whole_pages_of_noise_may_be_encrypted_and_any_other_is_no_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let opened = || {
        SqliteStore::open_with(&path, SqliteOptions::new())
            .err()
            .unwrap()
    };
    std::fs::write(&path, vec![0xa5; 8192]).unwrap();
    assert!(
        matches!(opened(), OpenError::KeyMissing { .. }),
        "{}",
        opened()
    );
    std::fs::write(&path, vec![0xa5; 8000]).unwrap();
    assert!(
        matches!(opened(), OpenError::NotADatabase { .. }),
        "{}",
        opened()
    );
}
