//! Damaged packs are detected and reported, and never lead to a wrong answer; a salvage copies the rest.

use std::path::Path;

use loopstore::extend as store;
use loopstore::*;
use loopstore_admin::salvage::salvage;
use loopstore_verify::{ProblemKind, verify};

use crate::support::archive::*;
use crate::support::histories::{loop_id, open};

/// Changes a closed file without its triggers.
fn change(file: &Path, sql: &str) {
    let outside = crate::support::keyed::raw(file).unwrap();
    let triggers = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'";
    let triggers: Vec<(String, String)> = outside
        .prepare(triggers)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for (name, _) in &triggers {
        outside
            .execute_batch(&format!("DROP TRIGGER {name}"))
            .unwrap();
    }
    assert!(outside.execute(sql, []).unwrap() > 0, "{sql}");
    for (_, sql) in &triggers {
        outside.execute_batch(sql).unwrap();
    }
}

/// Creates a file with two archived loops, and returns its exported lines.
fn stage() -> (tempfile::TempDir, std::path::PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    let store = open(&file);
    let history = line(&store, "s", 2, 6);
    archive_loops(&store, &history.session, &[0, 1]);
    let lines = crate::archive::seen::lines(&store, &history.session);
    (folder, file, lines)
}

fn messages_of(store: &SqliteStore, at: usize) -> Result<u32, StoreError> {
    store::read(store, |read| {
        let key = read.session(&SessionId::new("s").unwrap())?.unwrap().key;
        let row = read.loop_by_id(key, &loop_id(at))?.unwrap();
        let mut count = 0;
        read.messages(row.key, 0..u32::MAX, &mut |_| {
            count += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(count)
    })
}

#[test]
fn whatever_is_wrong_with_a_pack_is_told() {
    let cases = [
        "UPDATE packs SET content = CAST(substr(content, 1, 99) || x'7f' || substr(content, 101) AS BLOB)
         WHERE id >> 32 = 1",
        "UPDATE packs SET content = x'' WHERE id >> 32 = 1",
        "UPDATE packs SET bytes = bytes + 1 WHERE id >> 32 = 1",
        "UPDATE packs SET bytes = -1 WHERE id >> 32 = 1",
        "UPDATE packs SET last_seq = last_seq - 1 WHERE id >> 32 = 1",
        "UPDATE packs SET last_seq = 4294967295 WHERE id >> 32 = 1",
        "UPDATE packs SET digest = zeroblob(32) WHERE id >> 32 = 1",
        "UPDATE packs SET content = (SELECT content FROM packs WHERE id >> 32 = 2) WHERE id >> 32 = 1",
        "DELETE FROM packs WHERE id >> 32 = 1",
    ];
    for sql in cases {
        let (_folder, file, _) = stage();
        change(&file, sql);
        let store = open(&file);
        let error = messages_of(&store, 0).unwrap_err();
        assert!(matches!(error, StoreError::Damaged(_)), "{sql}: {error}");
        assert_eq!(messages_of(&store, 1).unwrap(), 18, "{sql}");
        let report = verify(&store).unwrap();
        let found = |problem: &loopstore_verify::Problem| {
            problem.kind == ProblemKind::Unreadable && problem.place.contains("loop loop-0")
        };
        assert!(
            report.problems.iter().any(found),
            "{sql}: {:?}",
            report.problems
        );
        if sql.starts_with("DELETE") {
            continue;
        }
        // The damaged pack stays where it is, for a salvage.
        let error = loopstore_admin::retention::unarchive(&store, &Default::default()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged(_)), "{sql}: {error}");
    }
}

#[test]
fn every_byte_of_a_pack_is_under_its_digest() {
    let (_folder, file, _) = stage();
    let length = number(&open(&file), "SELECT min(length(content)) AS n FROM packs");
    for at in (1..=length).step_by(usize::try_from(length / 9).unwrap()) {
        let (_folder, file, _) = stage();
        // Replaces a byte by a different one.
        let sql = format!(
            "UPDATE packs SET content = CAST(substr(content, 1, {at} - 1)
                 || CASE substr(content, {at}, 1) WHEN x'41' THEN x'42' ELSE x'41' END
                 || substr(content, {at} + 1) AS BLOB)"
        );
        change(&file, &sql);
        let store = open(&file);
        assert!(!verify(&store).unwrap().ok, "byte {at}");
        assert!(messages_of(&store, 0).is_err(), "byte {at}");
    }
}

#[test]
fn what_does_not_fit_beside_a_pack_is_found() {
    let cases = [
        (
            "UPDATE packed_heads SET head = '{\"usage\":{\"input\":1}}'",
            ProblemKind::Digest,
        ),
        ("DELETE FROM packed_heads", ProblemKind::Digest),
        (
            "INSERT INTO packed_heads VALUES ((1 << 32) + 900, '{}')",
            ProblemKind::Stray,
        ),
        (
            "INSERT INTO packs SELECT id + 900, 999, bytes, digest, content FROM packs",
            ProblemKind::Stray,
        ),
        (
            "INSERT INTO packs SELECT id + 3, last_seq, bytes, digest, content FROM packs",
            ProblemKind::Sequence,
        ),
        (
            "UPDATE messages SET head = '{\"role\":\"user\",\"content\":[]}' WHERE id = 1 << 32",
            ProblemKind::Digest,
        ),
    ];
    for (sql, kind) in cases {
        let (_folder, file, _) = stage();
        change(&file, sql);
        let report = verify(&open(&file)).unwrap();
        assert!(
            report.problems.iter().any(|problem| problem.kind == kind),
            "{sql}: {:?}",
            report.problems
        );
    }
}

#[test]
fn a_salvage_brings_archived_loops_back_as_far_as_their_packs_are_whole() {
    let (folder, file, lines) = stage();
    let key = crate::support::keyed::key();
    let whole = folder.path().join("whole.db");
    let report = salvage(&file, key.as_ref(), &whole, false).unwrap();
    assert!(report.ok, "{:?}", report.lost);
    let store = open(&whole);
    assert_eq!(
        crate::archive::seen::lines(&store, &SessionId::new("s").unwrap()),
        lines
    );
    assert_eq!(packed(&store), 0);
    assert_whole(&store);

    change(&file, "UPDATE packs SET content = x'00' WHERE id >> 32 = 2");
    let mended = folder.path().join("mended.db");
    let report = salvage(&file, key.as_ref(), &mended, false).unwrap();
    assert!(!report.ok);
    let store = open(&mended);
    assert_whole(&store);
    assert_eq!(messages_of(&store, 0).unwrap(), 18);
    assert_eq!(messages_of(&store, 1).unwrap(), 0);
    let told = report
        .lost
        .iter()
        .find(|lost| lost.kind == "message")
        .unwrap();
    assert!(
        told.place.contains("loop loop-1, messages 0 to 17"),
        "{told:?}"
    );
}

#[test]
fn a_backup_and_a_copy_hold_what_is_archived() {
    let (folder, file, lines) = stage();
    let store = open(&file);
    let id = SessionId::new("s").unwrap();
    let copy = folder.path().join("copy.db");
    loopstore_admin::backup::compact_backup(&store, &copy, false).unwrap();
    let backup = open(&copy);
    assert_eq!(crate::archive::seen::lines(&backup, &id), lines);
    assert_eq!(packed(&backup), 36);
    assert_whole(&backup);
    let other = SqliteStore::in_memory().unwrap();
    loopstore_copy::copy(&store, &other, folder.path(), &mut |_, _| {}).unwrap();
    assert_eq!(crate::archive::seen::lines(&other, &id), lines);
    assert_whole(&other);
}
