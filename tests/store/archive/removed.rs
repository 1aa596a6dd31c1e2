//! Redacting and erasing archived loops leaves no byte in packs either.

use loopstore::*;
use loopstore_admin::retention::{EraseRequest, RedactRequest, erase, redact_session};

use crate::support::archive::*;
use crate::support::histories::{History, open, user};

const CORE: &str = "zq7xw8e9r1t2y3u4i5o6p7a8s9d1f2g3h4j5";

/// Counts the packs and rows that contain the secret.
fn count_secrets(store: &SqliteStore) -> usize {
    let (mut found, mut keys) = (0, Vec::new());
    Database::scan(
        store,
        Box::new(|scan| {
            for session in scan.session_keys()? {
                keys.extend(scan.loop_keys(session)?);
            }
            for key in &keys {
                scan.messages(*key, 0..u32::MAX, &mut |row| {
                    let whole =
                        row.body.head.unwrap_or_default() + &row.body.text.unwrap_or_default();
                    found += whole.matches(CORE).count();
                    Ok(std::ops::ControlFlow::Continue(()))
                })?;
            }
            Ok(())
        }),
    )
    .unwrap();
    found
}

/// Creates a session of two archived loops, of which one message contains the secret.
fn with_secret(store: &SqliteStore) -> History<'_> {
    let history = line(store, "s", 2, 4);
    history.append(0, vec![user(&format!("the key is ghp_{CORE}"), 4)]);
    archive_loops(store, &history.session, &[0, 1]);
    history
}

#[test]
fn redacting_takes_only_the_packs_apart_that_hold_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let history = with_secret(&store);
    assert_eq!((count_secrets(&store), packed(&store)), (1, 25));
    let report = redact_session(&store, &RedactRequest::new(history.session.clone())).unwrap();
    assert_eq!(report.messages, 1);
    assert_eq!((count_secrets(&store), packed(&store)), (0, 12));
    assert_whole(&store);

    // A redacted loop can be archived, and damage to it is found.
    let before = crate::archive::seen::lines(&store, &history.session);
    assert_eq!(archive_loops(&store, &history.session, &[0]).messages, 13);
    assert_whole(&store);
    assert_eq!(
        crate::archive::seen::lines(&store, &history.session),
        before
    );
    let again = redact_session(&store, &RedactRequest::new(history.session.clone())).unwrap();
    assert_eq!((again.receipt, packed(&store)), (None, 25));
    assert_eq!(bring_back(&store).messages, 25);
    assert_whole(&store);
    assert_eq!(
        crate::archive::seen::lines(&store, &history.session),
        before
    );
}

/// A compressed secret cannot be searched for, so the test checks that no earlier pack is left.
#[test]
fn no_pack_of_what_was_redacted_or_erased_is_left_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    let store = open(&file);
    let history = with_secret(&store);
    line(&store, "other", 1, 2);
    let packs = "SELECT hex(content) AS n FROM packs ORDER BY id";
    let packs: Vec<Vec<u8>> = store
        .query(packs)
        .unwrap()
        .records()
        .iter()
        .map(|row| {
            let hex = row.text("n").unwrap();
            let digit =
                |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            hex.as_bytes().chunks(2).map(digit).collect()
        })
        .collect();
    assert_eq!(packs.len(), 2);
    let left = || {
        let mut bytes = std::fs::read(&file).unwrap();
        let log = folder.path().join("a.db-wal");
        bytes.extend(std::fs::read(log).unwrap_or_default());
        let holds = |pack: &&Vec<u8>| bytes.windows(64).any(|part| part == &pack[..64]);
        packs.iter().filter(holds).count()
    };
    let is_plain = crate::support::keyed::key().is_none();
    assert_eq!(left() == 2, is_plain, "what is searched for can be found");
    redact_session(&store, &RedactRequest::new(history.session.clone())).unwrap();
    assert_eq!(left(), usize::from(is_plain), "the other pack stays");
    let request = EraseRequest::new(history.session);
    let report = erase(&store, &request).unwrap();
    assert_eq!(report.counts["packs"], 1);
    assert_eq!(left(), 0);
    for table in ["packs", "packed_heads"] {
        let sql = format!("SELECT count(*) AS n FROM {table}");
        assert_eq!(number(&store, &sql), 0, "{table}");
    }
    assert_whole(&store);
}
