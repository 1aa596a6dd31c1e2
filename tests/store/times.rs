//! The times of messages: the time of the append, and how given times are stored.

use loopstore::*;
use loopstore_verify::{ProblemKind, verify};

#[test]
fn a_time_that_somebody_changed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Store::open(&path).unwrap();
    let chat = store.session("chat").unwrap();
    chat.append([
        Message::user("Will it rain?"),
        Message::assistant("It will."),
    ])
    .unwrap();
    drop((chat, store));
    for to in ["created_at + 1", "NULL"] {
        let raw = rusqlite::Connection::open(&path).unwrap();
        raw.execute_batch("DROP TRIGGER messages_no_update; BEGIN")
            .unwrap();
        let change = format!("UPDATE messages SET created_at = {to} WHERE id & 4294967295 = 1");
        assert_eq!(raw.execute(&change, []).unwrap(), 1);
        raw.execute_batch("COMMIT").unwrap();
        drop(raw);
        let store = Store::open(&path).unwrap();
        let report = verify(store.database()).unwrap();
        let chains = report
            .problems
            .iter()
            .filter(|one| one.kind == ProblemKind::Chain);
        assert_eq!(chains.count(), 1, "{to}: {report:?}");
        drop(store);
        let raw = rusqlite::Connection::open(&path).unwrap();
        let back = "CREATE TRIGGER messages_no_update BEFORE UPDATE ON messages WHEN 0 BEGIN SELECT 1; END";
        raw.execute_batch(back).unwrap();
    }
}
