//! Hidden sessions: absent from lists and search, their ids free for others, their record complete, in every export and
//! import.

use loopstore::*;
use loopstore_testing::conformance::hidden::say;

#[test]
fn an_id_changes_only_as_its_row_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let store = Store::open(&path).unwrap();
    let chat = store.session("weather").unwrap();
    say(&chat, "Will it rain?");
    let hidden = chat.hide().unwrap();
    drop((chat, store));
    let connection = rusqlite::Connection::open(&path).unwrap();
    for sql in [
        "UPDATE sessions SET session_id = 'weather'",
        "UPDATE hides SET kind = 'unhide'",
        "UPDATE hides SET session_id = 'x'",
        "DELETE FROM hides",
        "INSERT OR REPLACE INTO hides SELECT * FROM hides",
        "INSERT INTO hides (session, kind, was, session_id, tick, at, digest)
         SELECT session, 'unhide', session_id, 'x', tick + 1, at, zeroblob(32) FROM hides",
    ] {
        let refused = connection.execute(sql, []).unwrap_err().to_string();
        assert!(
            loopstore_testing::refusals::is_of_a_trigger(&refused),
            "{sql}: {refused}"
        );
    }
    let id: String = connection
        .query_row(
            "SELECT session_id FROM v_sessions WHERE hidden_at NOT NULL",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(id, hidden.as_str());
}
