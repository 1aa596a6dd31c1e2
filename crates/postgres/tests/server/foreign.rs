//! Triggers and rules that another program put on the tables of a server.

use loopstore::*;
use loopstore_admin::retention::{EraseRequest, RedactRequest, erase, redact_session};
use loopstore_postgres::PostgresStore;
use loopstore_verify::verify;

use crate::support::server;

const TOKEN: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

#[test]
fn nothing_is_removed_where_a_foreign_trigger_or_rule_would_see_it() {
    let Some(server) = server::server() else {
        return;
    };
    let database = server.prepared();
    let store = PostgresStore::open(&server.tcp_address(&database)).unwrap();
    let store = Store::from(store);
    let chat = store.session("s").unwrap();
    chat.append([Message::user(format!("The key is {TOKEN}"))])
        .unwrap();
    let spy = "CREATE FUNCTION spies() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
            RAISE NOTICE '%', OLD; RETURN NEW; END $$;
        CREATE TRIGGER spies BEFORE UPDATE ON messages FOR EACH ROW EXECUTE FUNCTION spies()";
    let rule = "CREATE RULE keeps AS ON DELETE TO session_flags DO INSTEAD NOTHING";
    for (sql, object, drop) in [
        (
            spy,
            "trigger `spies` on `messages`",
            "DROP TRIGGER spies ON messages; DROP FUNCTION spies()",
        ),
        (
            rule,
            "rule `keeps` on `session_flags`",
            "DROP RULE keeps ON session_flags",
        ),
    ] {
        // Citus rejects rules on its tables.
        if server.run(&database, sql).is_err() && server.is_cluster() {
            continue;
        }
        let refused = |error: StoreError| {
            let is_named =
                matches!(&error, StoreError::ForeignSchema(list) if list.contains(object));
            assert!(is_named, "{sql}: {error}");
        };
        let id = chat.id().clone();
        refused(redact_session(store.database(), &RedactRequest::new(id.clone())).unwrap_err());
        refused(erase(store.database(), &EraseRequest::new(id)).unwrap_err());
        let text = serde_json::to_string(&chat.context().unwrap().messages).unwrap();
        assert!(text.contains(TOKEN), "{text}");
        let report = verify(store.database()).unwrap();
        let named = report
            .problems
            .iter()
            .any(|one| one.detail.contains(object));
        assert!(!report.ok && named, "{:?}", report.problems);
        server.run(&database, drop).unwrap();
        assert!(verify(store.database()).unwrap().ok);
    }
    redact_session(store.database(), &RedactRequest::new(chat.id().clone())).unwrap();
    let text = serde_json::to_string(&chat.context().unwrap().messages).unwrap();
    assert!(!text.contains(TOKEN), "{text}");
}
