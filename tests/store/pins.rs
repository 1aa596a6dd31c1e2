//! A session with pins and quotes under every operation on its database.

use std::path::Path;

use loopstore::*;
use loopstore_admin::backup::backup;
use loopstore_admin::salvage::salvage;
use loopstore_copy::copy;
use loopstore_testing::conformance::pins::{pinned, seen};
use loopstore_testing::whole::assert_whole;

use crate::support::histories::{loop_id, open};
use crate::support::keyed;

#[test]
fn a_backup_a_copy_and_a_salvage_keep_pins_and_quotes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let store = open(&path("agent.db"));
    let id = pinned(&store, "s").session;
    let before = seen(&store, &id);
    backup(&store, &path("backup.db"), false, &mut |_, _| {}).unwrap();
    let other = open(&path("copy.db"));
    let report = copy(&store, &other, folder.path(), &mut |_, _| {}).unwrap();
    assert!(report.is_whole());
    drop((store, other));
    let key = keyed::key();
    let report = salvage(&path("agent.db"), key.as_ref(), &path("salvaged.db"), false).unwrap();
    assert!(report.lost.is_empty(), "{report:#?}");
    for name in ["backup.db", "copy.db", "salvaged.db"] {
        let store = open(&path(name));
        assert_eq!(seen(&store, &id), before, "{name}");
        assert_whole(&store);
    }
}

/// A file whose blocks quote a lost message still returns everything else.
#[test]
fn a_salvage_goes_around_a_pinned_message_that_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let id = pinned(&open(&path), "s").session;
    let lost = "DELETE FROM messages WHERE id = (4 << 32) | 2";
    damage(&path, lost);
    let to = folder.path().join("salvaged.db");
    let report = salvage(&path, keyed::key().as_ref(), &to, false).unwrap();
    assert!(!report.lost.is_empty());
    let store = open(&to);
    assert_whole(&store);
    let context = build_context_from_session(&store, &id, &BuildOptions::default()).unwrap();
    assert!(!context.messages.is_empty());
    let above = pins(&store, &id, Some(&loop_id(2))).unwrap().pins;
    assert_eq!(above.len(), 6, "{above:?}");
}

fn damage(path: &Path, sql: &str) {
    let connection = keyed::raw(path).unwrap();
    connection
        .execute_batch(&format!(
            "PRAGMA foreign_keys = off; DROP TRIGGER messages_no_delete; {sql}"
        ))
        .unwrap();
}
