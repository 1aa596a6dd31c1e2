//! The rows that a redaction changes, other than messages.

use loopstore::Database;
use loopstore::extend::lease::{self, Acquire};
use loopstore_admin::retention::{RedactRequest, redact_session};

use super::*;

const SECRET: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB";

pub fn keys_of_appends_and_owners_of_leases_are_redacted_one_by_one(store: &dyn Database) {
    let history = History::new(store, "s");
    let (session, loop_key) = (history.row(0).session, history.row(0).key);
    let names = [format!("a {SECRET}"), format!("b {SECRET}"), "plain".into()];
    write(store, |write| {
        for name in &names {
            let row = AppendKey {
                name: name.clone(),
                loop_key,
                seqs: 0..1,
                turns: 0..1,
                tokens: 1,
            };
            write.insert_append_key(session, &row)?;
        }
        match lease::acquire(write, loop_key, &format!("by {SECRET}"), 60_000, 1)? {
            Acquire::Acquired(_) => Ok(()),
            Acquire::Held(error) => Err(error),
        }
    })
    .unwrap();
    let request = RedactRequest::new(SessionId::new("s").unwrap());
    let report = redact_session(store, &request).unwrap();
    assert_eq!(report.texts["append_keys.name"], 2);
    assert_eq!(report.texts["leases.owner"], 1);
    let rows = read(store, |read| read.append_keys(session)).unwrap();
    let mut rows: Vec<String> = rows.into_iter().map(|row| row.name).collect();
    assert_eq!(rows.pop().as_deref(), Some("plain"));
    assert!(rows[0] != rows[1] && rows.len() == 2, "{rows:?}");
    assert!(
        rows.iter()
            .all(|name| name.starts_with("[REDACTED:append-key:"))
    );
    let owner = read(store, |read| read.lease(loop_key))
        .unwrap()
        .unwrap()
        .owner;
    assert!(owner.starts_with("by [REDACTED:github-pat:"), "{owner}");
}
