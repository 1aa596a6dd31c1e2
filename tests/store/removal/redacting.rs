//! Redacting a stored session: no byte of a secret is left, and the record is still valid.

use std::io::Cursor;
use std::path::Path;

use loopstore::extend::append;
use loopstore::search::{SearchQuery, search};
use loopstore::{extend as store, *};
use loopstore_admin::retention::{Leftover, RedactRequest, redact_session};
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportError, ImportReport, SessionLines, Source, import_source};

use crate::support::histories::{History, answer, open, user};
use crate::support::removal::*;

fn context(store: &SqliteStore, id: &str) -> String {
    let built = build_context_from_session(store, &session(id), &BuildOptions::default()).unwrap();
    serde_json::to_string(&built.messages).unwrap()
}

#[test]
fn no_byte_of_a_secret_is_left_and_the_record_is_whole() {
    if crate::support::keyed::leaves_out("no_byte_of_a_secret_is_left_and_the_record_is_whole") {
        return;
    }
    let stage = Stage::new();
    let store = stage.store();
    plain(&store, "other");
    tell(&store, "s", &token());
    let other = context(&store, "other");
    assert_eq!(number(&store, "SELECT count(*) AS n FROM blobs"), 1);
    let digests = "SELECT group_concat(hex(digest) || hex(chain)) AS n FROM messages";
    let digests = || {
        store.query(digests).unwrap().records()[0]
            .text("n")
            .unwrap()
    };
    let before = digests();

    let mut request = RedactRequest::new(session("s"));
    request.reason = Some(format!("{} leaked", token()));
    let report = redact_session(&store, &request).unwrap();

    assert_eq!(report.leftover, Leftover::None);
    assert_eq!(report.secrets.keys().collect::<Vec<_>>(), ["github-pat"]);
    assert_eq!(report.sources, 1);
    for place in [
        "runs.error",
        "flips.reason",
        "notes.note",
        "sessions.title",
        "sessions.project",
        "loops.history",
    ] {
        assert!(report.texts[place] > 0, "{place}: {:?}", report.texts);
    }
    assert_eq!((stage.count(CORE.as_bytes()), report.left.len()), (0, 0));
    assert_eq!(number(&store, "SELECT count(*) AS n FROM blobs"), 0);
    assert_whole(&store);
    assert_eq!(digests(), before, "digest and chain stay");
    let salts = "SELECT count(*) AS n FROM redactions r JOIN messages m ON m.id = r.owner
         WHERE m.salt IS NOT NULL";
    assert_eq!(number(&store, salts), 0);
    assert_eq!(context(&store, "other"), other);
    let shown = context(&store, "s");
    assert!(shown.contains("[REDACTED:github-pat:"), "{shown}");
    assert!(
        !shown.contains("c2lnbmF0dXJl"),
        "thinking that changed is no longer signed"
    );
    assert!(
        search(&store, &SearchQuery::new(CORE))
            .unwrap()
            .hits
            .is_empty()
    );
    assert!(
        !search(&store, &SearchQuery::new("REDACTED"))
            .unwrap()
            .hits
            .is_empty()
    );
    assert_whole(&store);

    let again = redact_session(&store, &RedactRequest::new(session("s"))).unwrap();
    assert_eq!((again.receipt, again.messages), (None, 0));
    assert_eq!(context(&store, "s"), shown);
}

#[test]
fn what_a_summary_tells_without_saying_that_it_is_secret_goes_too() {
    let stage = Stage::new();
    let store = stage.store();
    let history = History::new(&store, "s");
    let messages = vec![
        user("we take tangerine-77", 0),
        answer("run with DB_PASSWORD=tangerine-77 then", &[], 0),
        user("keep https://me:tangerine-77@db/x", 1),
        answer("tangerine-77 it is, not tangerine", &[], 1),
    ];
    history.append(0, messages);
    redact_session(&store, &RedactRequest::new(session("s"))).unwrap();
    assert_eq!(stage.count(b"tangerine-77"), 0);
    let shown = context(&store, "s");
    assert!(shown.contains("not tangerine\""), "{shown}");
    let markers: Vec<&str> = shown.split("[REDACTED:").skip(1).collect();
    let digest = |marker: &&str| marker.split([':', ']']).nth(1).unwrap().to_owned();
    let digests: std::collections::BTreeSet<String> = markers.iter().map(digest).collect();
    assert_eq!(
        (markers.len(), digests.len()),
        (4, 1),
        "equal secrets, equal digests: {shown}"
    );
    assert_whole(&store);
}

#[test]
fn a_redacted_session_goes_on() {
    let stage = Stage::new();
    let store = stage.store();
    tell(&store, "s", &token());
    redact_session(&store, &RedactRequest::new(session("s"))).unwrap();
    let key = store::read(&store, |read| {
        let owner = read.session(&session("s"))?.unwrap();
        Ok(read.loops(owner.key)?[0].key)
    })
    .unwrap();
    let new = vec![user("and then", 8).into(), answer("more", &[], 8).into()];
    store::write(&store, |write| {
        append::append(write, key, new, &HeuristicTokenCounter)
    })
    .unwrap();
    compact_session_loops(&store, &session("s"), &CompactRequest::default()).unwrap();
    assert_whole(&store);
    drop(store);
    assert_whole(&open(&stage.file()));
}

#[test]
fn a_damaged_message_is_not_redacted_and_a_changed_redaction_is_found() {
    let stage = Stage::new();
    let store = stage.store();
    let history = History::new(&store, "s");
    history.append(
        0,
        vec![user(&format!("with {}", token()), 0), answer("yes", &[], 0)],
    );
    drop(store);
    let break_in = |sql: &str| {
        let connection = crate::support::keyed::raw(stage.file()).unwrap();
        let old: String = connection
            .query_row(
                "SELECT sql FROM sqlite_schema WHERE name = 'messages_no_update'",
                [],
                |r| r.get(0),
            )
            .unwrap();
        connection
            .execute_batch("DROP TRIGGER messages_no_update")
            .unwrap();
        connection.execute_batch(sql).unwrap();
        connection.execute_batch(&old).unwrap();
    };
    break_in("UPDATE messages SET head = replace(head, 'with', 'WITH') WHERE role = 0");
    let store = stage.store();
    let refused = redact_session(&store, &RedactRequest::new(session("s")));
    assert!(
        matches!(refused, Err(StoreError::Damaged(_))),
        "{refused:?}"
    );
    drop(store);
    break_in("UPDATE messages SET head = replace(head, 'WITH', 'with') WHERE role = 0");
    let store = stage.store();
    redact_session(&store, &RedactRequest::new(session("s"))).unwrap();
    assert_whole(&store);
    drop(store);
    break_in("UPDATE messages SET head = replace(head, 'with', 'WITH') WHERE role = 0");
    let report = loopstore_verify::verify(&stage.store()).unwrap();
    assert!(!report.ok);
}

fn lines_of(store: &SqliteStore, id: &str) -> Vec<u8> {
    let mut lines = Vec::new();
    export(store, &session(id), None, ExportForm::Lines, &mut lines).unwrap();
    lines
}

fn take_in(store: &SqliteStore, lines: &[u8]) -> ImportReport {
    try_take_in(store, lines).unwrap()
}

fn try_take_in(store: &SqliteStore, lines: &[u8]) -> Result<ImportReport, ImportError> {
    let mut source = Source {
        path: Path::new("s.jsonl"),
        reader: &mut Cursor::new(lines.to_vec()),
    };
    import_source(store, &SessionLines, &mut source, None)
}

#[test]
fn a_redacted_session_comes_in_elsewhere_under_a_receipt() {
    let stage = Stage::new();
    let store = stage.store();
    tell(&store, "s", &token());
    redact_session(&store, &RedactRequest::new(session("s"))).unwrap();
    let lines = lines_of(&store, "s");

    let other = SqliteStore::in_memory().unwrap();
    let report = take_in(&other, &lines);
    assert_eq!(report.added_messages, report.messages);
    assert!(report.unredacted.is_empty());
    assert_whole(&other);
    assert_eq!(context(&other, "s"), context(&store, "s"));
    assert!(lines_of(&other, "s") == lines);
    let receipts = "SELECT count(*) AS n FROM maintenance
                    WHERE kind = 'redact' AND closed_at IS NOT NULL";
    assert_eq!(number(&other, receipts), 1);
    let redacts = "SELECT redacts AS n FROM session_flags";
    assert_eq!(number(&other, redacts), 1);
    // A repeated import adds nothing.
    assert_eq!(take_in(&other, &lines).added_messages, 0);
    assert_eq!(number(&other, receipts), 1);
}

#[test]
fn a_session_is_redacted_on_both_sides_or_refused() {
    let stage = Stage::new();
    let store = stage.store();
    let history = told(&store, "s");
    history.append(0, vec![user(&format!("it is {}", token()), 6)]);
    let with_secrets = lines_of(&store, "s");
    redact_session(&store, &RedactRequest::new(session("s"))).unwrap();
    let redacted = lines_of(&store, "s");

    // The older lines bring nothing back.
    assert_eq!(take_in(&store, &with_secrets).added_messages, 0);
    assert!(lines_of(&store, "s") == redacted);
    let other = SqliteStore::in_memory().unwrap();
    take_in(&other, &with_secrets);
    let refused = try_take_in(&other, &redacted).unwrap_err().to_string();
    assert!(refused.contains("redact it here first"), "{refused}");
    assert!(lines_of(&other, "s") == with_secrets);

    // If the copy continued with its secrets, nothing of it is imported here.
    let history = History {
        store: &other,
        ..history
    };
    history.append(0, vec![answer("gone on", &[], 6)]);
    let refused = try_take_in(&store, &lines_of(&other, "s"))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("was redacted here"), "{refused}");
    assert!(lines_of(&store, "s") == redacted);
    assert_whole(&store);

    // If the copy continued redacted, it is imported.
    let third = SqliteStore::in_memory().unwrap();
    take_in(&third, &redacted);
    let history = History {
        store: &store,
        ..history
    };
    history.append(0, vec![answer("gone on", &[], 6)]);
    assert_eq!(take_in(&third, &lines_of(&store, "s")).added_messages, 1);
    assert_whole(&third);
}

#[test]
fn a_message_that_lost_its_salt_on_the_way_is_told_to_be_redacted() {
    let store = SqliteStore::in_memory().unwrap();
    plain(&store, "s");
    let lines = String::from_utf8(lines_of(&store, "s")).unwrap();
    let (before, rest) = lines.split_once("\"salt\":\"").unwrap();
    let forged = format!("{before}\"salt\":null{}", &rest[33..]);
    let other = SqliteStore::in_memory().unwrap();
    take_in(&other, forged.as_bytes());
    assert_whole(&other);
    let told = other.query("SELECT detail FROM maintenance").unwrap();
    let told = told.records()[0].text("detail").unwrap();
    assert!(told.contains("it came in redacted"), "{told}");
}
