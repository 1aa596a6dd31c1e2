//! A removal in one database is made in the other one, unless that one refuses.

use loopstore::*;
use loopstore_admin::retention::{EraseRequest, RedactRequest, erase, redact_session};
use loopstore_sync::{SyncOptions, SyncSide, sync};
use loopstore_verify::verify;

use crate::stage::{assert_same, both, ids, lines, memory, whole};

const SECRET: &str = "AKIAQYLPMN5HHHFPZAM2";

fn say(store: &Store, id: &str, text: &str) {
    let chat = store.session(id).unwrap();
    chat.append([
        Message::user(text),
        Message::assistant(format!("re: {text}")),
    ])
    .unwrap();
}

fn three() -> [Store; 3] {
    [memory(), memory(), memory()]
}

#[test]
fn an_erased_session_is_erased_everywhere_and_does_not_return() {
    let [a, b, c] = three();
    say(&a, "weather", "Will it rain?");
    say(&a, "dinner", "What is there?");
    whole(&a, &b);
    whole(&a, &c);
    let id = SessionId::new("weather").unwrap();
    erase(b.database(), &EraseRequest::new(id.clone())).unwrap();
    let report = whole(&a, &b);
    assert_eq!(report.removed.len(), 1);
    assert_eq!(report.removed[0].side, SyncSide::Here);
    assert_same(&a, &b);
    assert_eq!(ids(&a).len(), 1);
    // The third database learns it from the first one.
    whole(&c, &a);
    assert_eq!(ids(&c).len(), 1);
    assert_same(&a, &c);
    let again = whole(&b, &c);
    assert_eq!((again.removed.len(), again.receipts), (0, 0));
    // A new session may have the id.
    say(&b, "weather", "Another one");
    whole(&a, &b);
    whole(&a, &c);
    assert_eq!(ids(&c).len(), 2);
    assert!(lines(&c, &id).contains("Another one"));
}

#[test]
fn a_database_may_keep_what_was_erased() {
    let [a, b, _] = three();
    say(&a, "weather", "Will it rain?");
    whole(&a, &b);
    erase(
        b.database(),
        &EraseRequest::new(SessionId::new("weather").unwrap()),
    )
    .unwrap();
    let options = SyncOptions {
        keeps_removed: true,
        ..SyncOptions::default()
    };
    for _ in 0..2 {
        let report = sync(a.database(), b.database(), &options, &mut |_, _| {}).unwrap();
        assert_eq!((report.refused.len(), report.removed.len()), (1, 0));
        assert_eq!((ids(&a).len(), ids(&b).len()), (1, 0));
    }
    let report = whole(&a, &b);
    assert_eq!(report.removed.len(), 1);
    assert_eq!(ids(&a).len(), 0);
}

#[test]
fn a_redacted_session_is_redacted_everywhere() {
    let [a, b, c] = three();
    let id = SessionId::new("keys").unwrap();
    say(&a, "keys", &format!("my key is {SECRET}"));
    whole(&a, &b);
    whole(&a, &c);
    let report = redact_session(a.database(), &RedactRequest::new(id.clone())).unwrap();
    assert!(!report.secrets.is_empty());
    let report = whole(&a, &b);
    assert_eq!(report.removed.len(), 1, "{report:?}");
    assert!(!lines(&b, &id).contains(SECRET));
    assert_same(&a, &b);
    whole(&c, &b);
    assert!(!lines(&c, &id).contains(SECRET));
    assert_same(&a, &c);
    assert_eq!(whole(&a, &c).unchanged, 1);
    assert_eq!(whole(&a, &b).unchanged, 1);
    // It goes on, and the redaction stays.
    say(&b, "keys", "And now?");
    whole(&a, &b);
    assert_same(&a, &b);
}

#[test]
fn a_redaction_does_not_pass_over_what_the_other_database_added() {
    let [a, b, _] = three();
    let id = SessionId::new("keys").unwrap();
    say(&a, "keys", &format!("my key is {SECRET}"));
    whole(&a, &b);
    say(&b, "keys", &format!("again: {SECRET}"));
    redact_session(a.database(), &RedactRequest::new(id.clone())).unwrap();
    let report = both(&a, &b);
    assert_eq!(report.failed.len(), 1);
    assert!(report.failed[0].reason.contains("redact it"), "{report:?}");
    assert!(!lines(&a, &id).contains(SECRET));
    // Redacted in both, they come together.
    redact_session(b.database(), &RedactRequest::new(id.clone())).unwrap();
    let report = both(&a, &b);
    assert_eq!(report.failed, []);
    assert_same(&a, &b);
    assert!(!lines(&a, &id).contains(SECRET));
    assert!(verify(a.database()).unwrap().ok);
}
