//! The query plans of lists.

use loopstore::extend as store;
use loopstore::extend::session::create_session;
use loopstore::*;
use loopstore_postgres::PostgresStore;

use crate::shards::explaining;
use crate::support::server;

#[test]
fn a_page_of_sessions_is_read_along_the_index() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let database = PostgresStore::open(&explaining(&server.address(&name))).unwrap();
    store::write(&database, |write| {
        for at in 0..1_500 {
            let id = SessionId::new(format!("session-{at}")).unwrap();
            let key = create_session(write, &Session::new(id, "agent"), None, None)?;
            let mut row = write.session_by_key(key)?;
            row.last_active_at = Some(format!("2026-01-02T12:{:02}:{:02}Z", at / 60, at % 60));
            write.touch_session(&(&row).into())?;
        }
        Ok(())
    })
    .unwrap();
    server.client(&name).batch_execute("ANALYZE").unwrap();
    let log = || std::fs::read_to_string(server.folder.join("log")).unwrap();
    let before = log().len();
    let mut filter = SessionFilter {
        limit: Some(20),
        ..SessionFilter::default()
    };
    let first = database.listed_sessions(&filter).unwrap();
    filter.after = first.last().map(|(cursor, _)| cursor.clone());
    let second = database.listed_sessions(&filter).unwrap();
    assert_eq!((first.len(), second.len()), (20, 20));
    assert_eq!(second[0].1.text("session_id").unwrap(), "session-1479");
    let log = log();
    let plans: Vec<&str> = log[before..].split("Query Text:").skip(1).collect();
    let of_pages: Vec<&&str> = plans
        .iter()
        .filter(|plan| plan.contains("hidden_at"))
        .collect();
    assert_eq!(of_pages.len(), 2, "{plans:?}");
    for plan in of_pages {
        assert!(plan.contains("using sessions_active"), "{plan}");
        assert!(!plan.contains("Sort Key: s."), "{plan}");
    }
}
