//! Protection of the files: their locks are not dropped, links are not followed, and other users cannot read them.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use loopstore::{OpenError, SqliteStore};
use loopstore_files::WholeFile;
use loopstore_transcripts::{ImportOptions, import_paths};

use crate::damage::stage::{companion, record};
use crate::support::histories::Random;
use crate::support::plain::open;

/// Returns the number of locks that the open files of this process hold on a file.
///
/// `/proc/locks` is not suitable: it is read in pieces, and a lock that another process releases meanwhile makes the
/// reader skip one.
#[cfg(target_os = "linux")]
fn locks(path: &Path) -> usize {
    let path = path.canonicalize().unwrap();
    let mut held = 0;
    for descriptor in std::fs::read_dir("/proc/self/fd").unwrap() {
        let descriptor = descriptor.unwrap();
        // Another test of this process may have closed it.
        let is_of_file = std::fs::read_link(descriptor.path()).is_ok_and(|file| file == path);
        let facts = Path::new("/proc/self/fdinfo").join(descriptor.file_name());
        if is_of_file && let Ok(facts) = std::fs::read_to_string(facts) {
            let is_lock = |line: &&str| line.starts_with("lock:") && line.contains("OFDLCK");
            held += facts.lines().filter(is_lock).count();
        }
    }
    held
}

/// A process that closes any descriptor of a file loses its POSIX locks on the file. Then another process may consider
/// the database unused, and delete the log that this one writes to.
#[cfg(target_os = "linux")]
#[test]
fn neither_opening_nor_importing_drops_the_locks_of_an_open_store() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loopstore.db");
    let store = open(&file);
    record(&store, "s", &mut Random::new(1));
    let shm = companion(&file, "-shm");
    let before = (locks(&file), locks(&shm));
    assert!(before.0 > 0 && before.1 > 0, "{before:?}");

    drop(crate::support::plain::try_open(&file).unwrap());
    assert_eq!((locks(&file), locks(&shm)), before, "a second store");

    let line = r#"{"messages":[{"role":"user","content":"hello"}]}"#;
    std::fs::write(folder.path().join("chat.json"), line).unwrap();
    let paths = [folder.path().to_owned()];
    import_paths(&store, &paths, &ImportOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(
        (locks(&file), locks(&shm)),
        before,
        "an import of its folder"
    );

    for own in [&file, &shm] {
        let paths = [folder.path().join("chat.json"), own.clone()];
        let report = import_paths(&store, &paths, &ImportOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
        let reason = &report.skipped[0].reason;
        assert_eq!(reason, "it belongs to the database that is imported into");
    }
    let link = folder.path().join("link.json");
    symlink(&file, &link).unwrap();
    let report = import_paths(&store, &paths, &ImportOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.skipped, []);
    assert_eq!((locks(&file), locks(&shm)), before, "a link to it");

    // Reading these files must not drop the locks of the process.
    for path in [&file, &shm] {
        drop(std::fs::File::open(path).unwrap());
    }
    assert_eq!((locks(&file), locks(&shm)), before, "another descriptor");
    drop(store);
    let _again = open(&file);
    assert!(locks(&file) > 0);
}

#[test]
fn a_link_in_place_of_the_database_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real.db");
    drop(open(&real));
    let link = folder.path().join("loopstore.db");
    symlink(&real, &link).unwrap();
    let Err(OpenError::Link { path, to }) = crate::support::plain::try_open(&link) else {
        panic!("it was opened");
    };
    assert_eq!(path, link);
    assert_eq!(to, real.canonicalize().unwrap());

    let options = crate::support::plain::options().follow_links(true);
    let store = SqliteStore::open_with(&link, options).unwrap();
    assert!(companion(&real, "-wal").exists());
    assert!(!companion(&link, "-wal").exists());
    drop(store);

    // A dangling link is not accepted as the path of a new database.
    let nowhere = folder.path().join("nowhere.db");
    symlink(folder.path().join("none.db"), &nowhere).unwrap();
    for follow in [false, true] {
        let options = crate::support::plain::options().follow_links(follow);
        let opened = SqliteStore::open_with(&nowhere, options);
        assert!(matches!(opened, Err(OpenError::Missing { .. })));
        assert!(!folder.path().join("none.db").exists());
    }
    // A link among the parent folders is allowed.
    let way = folder.path().join("way");
    symlink(folder.path(), &way).unwrap();
    crate::support::plain::try_open(way.join("real.db")).unwrap();
}

#[test]
fn nobody_else_may_read_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loopstore.db");
    let store = open(&file);
    record(&store, "s", &mut Random::new(1));
    let (backup, salvaged, export) = (
        folder.path().join("backup.db"),
        folder.path().join("salvaged.db"),
        folder.path().join("export.jsonl"),
    );
    loopstore_admin::backup::backup(&store, &backup, false, &mut |_, _| {}).unwrap();
    loopstore_admin::salvage::salvage(&file, None, &salvaged, false).unwrap();
    WholeFile::create(&export).unwrap().finish().unwrap();
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.path());
        seen.push(entry.file_name().into_string().unwrap());
    }
    seen.sort();
    for name in [
        "loopstore.db",
        "loopstore.db-shm",
        "loopstore.db-wal",
        "backup.db",
    ] {
        assert!(seen.contains(&name.to_owned()), "{seen:?}");
    }
}
