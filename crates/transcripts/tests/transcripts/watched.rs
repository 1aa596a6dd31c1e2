//! Watched folders: new content is imported, and files that are not read are reported.

use std::path::Path;

use loopstore::*;
use loopstore_transcripts::{ImportOptions, ImportReport, Watch, import_paths};

fn look(watch: &mut Watch, store: &Store) -> Vec<ImportReport> {
    let mut reports = Vec::new();
    watch.look(store.database(), &|| false, &mut |growth| {
        reports.extend(growth.result);
    });
    reports
}

fn unread(reports: &[ImportReport]) -> Vec<(String, String)> {
    let unread = reports.iter().flat_map(|report| &report.unread);
    let name = |file: &str| file.rsplit('/').next().unwrap().to_owned();
    unread
        .map(|one| (name(&one.file), one.reason.clone()))
        .collect()
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn a_file_that_is_not_read_is_named_once_with_the_reason_of_an_import() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write(
        path,
        "chat.json",
        r#"[{"role": "user", "content": "Will it rain?"}]"#,
    );
    write(path, "notes.txt", "Nothing to read here.");
    write(
        path,
        "other.json",
        r#"{"unknown": "form of a conversation"}"#,
    );
    write(path, "packed.jsonl.bz2", "BZh91AY&SY of something");
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), path.join("linked")).unwrap();
    let (store, paths) = (Store::in_memory().unwrap(), vec![path.to_owned()]);
    let options = ImportOptions::default();
    let report = import_paths(store.database(), &paths, &options, &mut |_| ()).unwrap();
    let expected = unread(&[report]);
    let names: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["linked", "other.json", "packed.jsonl.bz2"]);

    let mut watch = Watch::new(paths, ImportOptions::default());
    let store = Store::in_memory().unwrap();
    let reports = look(&mut watch, &store);
    assert_eq!(unread(&reports), expected);
    let added: u64 = reports.iter().map(|report| report.added_messages).sum();
    assert_eq!(added, 1);
    assert!(look(&mut watch, &store).is_empty());
    // The file grows, and is not reported again; once it is a transcript, it is imported.
    write(
        path,
        "other.json",
        r#"{"unknown": "form of a conversation", "more": 1}"#,
    );
    assert!(look(&mut watch, &store).is_empty());
    write(
        path,
        "other.json",
        r#"[{"role": "user", "content": "Will it snow today?"}]"#,
    );
    let reports = look(&mut watch, &store);
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].added_messages, unread(&reports).len()), (1, 0));
}
