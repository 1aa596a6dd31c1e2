//! The raw bytes of the files.

use std::path::Path;

use loopstore::{OpenError, SearchQuery, SqliteStore, search};
use loopstore_admin::backup::{backup, compact_backup};
use loopstore_admin::retention::{EraseRequest, erase};
use loopstore_admin::salvage::salvage;
use loopstore_verify::verify;

use crate::support::encryption::{fill, key, options, telling};

fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn neither_the_file_nor_its_log_nor_a_copy_holds_plain_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = SqliteStore::open_with(&file, options().key(key())).unwrap();
    fill(&store, "first");
    // The content is in the file and in the log.
    drop(store);
    let store = SqliteStore::open_with(&file, options().key(key())).unwrap();
    fill(&store, "second");
    backup(
        &store,
        &folder.path().join("copy.db"),
        false,
        &mut |_, _| (),
    )
    .unwrap();
    compact_backup(&store, &folder.path().join("compact.db"), false).unwrap();
    let to = folder.path().join("salvaged.db");
    let report = salvage(&file, Some(&key()), &to, false).unwrap();
    assert!(report.ok, "{report:?}");

    let wal = folder.path().join("agent.db-wal");
    assert!(wal.metadata().unwrap().len() > 8192);
    insta::assert_debug_snapshot!(names(folder.path()), @r#"
    [
        "agent.db",
        "agent.db-queue",
        "agent.db-shm",
        "agent.db-wal",
        "compact.db",
        "copy.db",
        "salvaged.db",
    ]
    "#);
    assert_eq!(telling(folder.path()), Vec::<std::path::PathBuf>::new());
    for name in ["agent.db", "copy.db", "compact.db", "salvaged.db"] {
        let path = folder.path().join(name);
        assert_eq!(path.metadata().unwrap().len() % 8192, 0, "{name}");
        let plain = SqliteStore::open_with(&path, options()).err().unwrap();
        assert!(
            matches!(plain, OpenError::KeyMissing { .. }),
            "{name}: {plain}"
        );
        let copy = SqliteStore::open_with(&path, options().key(key())).unwrap();
        assert!(verify(&copy).unwrap().ok, "{name}");
        let hits = search(&copy, &SearchQuery::new("xylophone")).unwrap().hits;
        assert!(!hits.is_empty(), "{name}");
    }
}

/// The same search finds the words in a plain database, so it would find them in an encrypted one.
#[test]
fn a_plain_database_is_read_by_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = SqliteStore::open_with(&file, options()).unwrap();
    fill(&store, "first");
    assert!(telling(folder.path()).contains(&folder.path().join("agent.db-wal")));
    drop(store);
    assert_eq!(telling(folder.path()), [file]);
}

#[test]
fn what_is_removed_is_written_anew_without_plain_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = SqliteStore::open_with(&file, options().key(key())).unwrap();
    fill(&store, "first");
    fill(&store, "second");
    let request = EraseRequest {
        force: true,
        ..EraseRequest::new("first".parse().unwrap())
    };
    erase(&store, &request).unwrap();
    assert_eq!(telling(folder.path()), Vec::<std::path::PathBuf>::new());
    assert!(verify(&store).unwrap().ok);
}

/// A page with a wrong authentication code is rejected, and only its content is lost.
#[test]
fn a_salvage_brings_over_what_is_on_whole_pages() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    let store = SqliteStore::open_with(&file, options().key(key())).unwrap();
    (0..6).for_each(|at| fill(&store, &format!("s{at}")));
    let whole = verify(&store).unwrap().checked;
    drop(store);
    let bytes = std::fs::read(&file).unwrap();
    let pages = bytes.len() / 8192;
    let all = whole.messages;
    // A page of an index is rebuilt without loss, so the test looks for the first page with messages.
    let (report, to) = (pages * 2 / 3..pages)
        .map(|page| {
            let mut damaged = bytes.clone();
            damaged[page * 8192 + 4000] ^= 1;
            std::fs::write(&file, damaged).unwrap();
            let to = folder.path().join(format!("salvaged-{page}.db"));
            (salvage(&file, Some(&key()), &to, false).unwrap(), to)
        })
        .find(|(report, _)| report.kept.messages < all)
        .unwrap();
    assert!(!report.ok);
    let kept = report.kept.messages;
    assert!(kept > all / 2, "{kept} of {all}: {:?}", report.lost);
    let salvaged = SqliteStore::open_with(&to, options().key(key())).unwrap();
    assert!(verify(&salvaged).unwrap().ok);
}
