//! Erasing: no byte is left, other sessions are unchanged, and the receipt lists what was erased.

use std::sync::atomic::{AtomicBool, Ordering};

use loopstore::extend::{self as store, StoreError, lease, session::create_session};
use loopstore::*;
use loopstore_admin::retention::{EraseRequest, Leftover, erase};
use loopstore_verify::verify;

use crate::support::histories::{History, answer, loop_id, open, result, user};
use crate::support::removal::*;

fn request(id: &str) -> EraseRequest {
    EraseRequest {
        reason: Some("asked for".into()),
        ..EraseRequest::new(session(id))
    }
}

fn context(store: &SqliteStore, id: &str) -> String {
    let built = build_context_from_session(store, &session(id), &BuildOptions::default()).unwrap();
    serde_json::to_string(&built.messages).unwrap()
}

#[test]
fn no_byte_of_an_erased_session_is_left() {
    if crate::support::keyed::leaves_out("no_byte_of_an_erased_session_is_left") {
        return;
    }
    let stage = Stage::new();
    let store = stage.store();
    plain(&store, "before");
    tell(&store, "s", &token());
    plain(&store, "after");
    let (before, after) = (context(&store, "before"), context(&store, "after"));
    let chains = "SELECT hex(chain) AS chain FROM loops WHERE session = 2 ORDER BY key";
    let chains = store.query(chains).unwrap().records();
    assert!(stage.count(CORE.as_bytes()) > 40);

    let report = erase(&store, &request("s")).unwrap();

    assert_eq!(report.leftover, Leftover::None);
    assert_eq!((report.counts["loops"], report.sources), (2, 1));
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    assert_eq!(stage.count(b"pixels"), 0);
    assert_whole(&store);
    assert_eq!(context(&store, "before"), before);
    assert_eq!(context(&store, "after"), after);
    for table in [
        "sources",
        "source_pieces",
        "started_calls",
        "append_keys",
        "notes",
        "manifests",
    ] {
        let sql = format!("SELECT count(*) AS n FROM {table}");
        assert_eq!(number(&store, &sql), 0, "{table}");
    }
    let receipts = store.query("SELECT kind, closed_at, detail FROM maintenance");
    let receipts = receipts.unwrap().records();
    assert_eq!(receipts.len(), 1);
    assert_eq!(receipts[0].text("kind").unwrap(), "erase");
    let detail: serde_json::Value =
        serde_json::from_str(&receipts[0].text("detail").unwrap()).unwrap();
    let receipt = &detail["receipt"];
    assert_eq!(receipt["reason"], "asked for");
    for (at, chain) in chains.iter().enumerate() {
        let chain = chain.text("chain").unwrap().to_lowercase();
        assert_eq!(receipt["loops"][at]["chain"], chain);
    }
}

#[test]
fn what_was_removed_long_ago_is_not_left_in_free_pages_either() {
    let stage = Stage::new();
    let store = stage.store();
    let history = History::new(&store, "s");
    history.append(
        0,
        vec![
            user("go", 0),
            answer(&format!("{CORE} ").repeat(900), &["a"], 0),
        ],
    );
    let key = history.row(0).key;
    let again = vec![user("go", 0).into(), answer("short", &["a"], 0).into()];
    store::write(&store, |write| {
        store::append::replace_last_turn(write, key, again, &HeuristicTokenCounter)
    })
    .unwrap();
    erase(&store, &request("s")).unwrap();
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    assert_whole(&store);
}

#[test]
fn an_image_that_another_session_shows_stays() {
    let stage = Stage::new();
    let store = stage.store();
    for id in ["a", "b"] {
        let history = History::new(&store, id);
        let shown = vec![Content::image("aGVsbG8=", "image/png")];
        history.append(
            0,
            vec![user("x", 0), answer("y", &["c"], 0), result("c", shown, 0)],
        );
    }
    let report = erase(&store, &request("a")).unwrap();
    assert_eq!(report.shared, 1);
    assert!(context(&store, "b").contains("aGVsbG8="));
    assert_whole(&store);
    erase(&store, &request("b")).unwrap();
    assert_eq!(number(&store, "SELECT count(*) AS n FROM blobs"), 0);
}

#[test]
fn others_go_on_appending_while_a_session_is_erased() {
    let stage = Stage::new();
    let store = stage.store();
    tell(&store, "s", &token());
    let done = AtomicBool::new(false);
    let appended = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let store = open(&stage.file());
            let history = History::new(&store, "other");
            let mut turn = 0;
            while !done.load(Ordering::SeqCst) || turn < 5 {
                history.append(0, vec![user("on and on", turn), answer("yes", &[], turn)]);
                turn += 1;
            }
            turn
        });
        let mut report = erase(&store, &request("s"));
        while report
            .as_ref()
            .is_ok_and(|report| report.leftover != Leftover::None)
        {
            report = erase(&store, &request("s"));
        }
        done.store(true, Ordering::SeqCst);
        report.unwrap();
        writer.join().unwrap()
    });
    let turns = "SELECT turns AS n FROM loops";
    assert_eq!(number(&store, turns), i64::from(appended));
    assert_eq!(stage.count(CORE.as_bytes()), 0);
    assert_whole(&store);
}

#[test]
fn a_session_that_is_driven_is_erased_only_by_force() {
    let stage = Stage::new();
    let store = stage.store();
    let history = History::new(&store, "s");
    let key = history.row(0).key;
    let now = Time::now().millis().unwrap();
    let held = store::write(&store, |write| {
        lease::acquire(write, key, "me", 60_000, now)
    })
    .unwrap();
    assert!(matches!(held, lease::Acquire::Acquired(_)));
    let refused = erase(&store, &request("s"));
    assert!(
        matches!(refused, Err(StoreError::LeaseHeld { .. })),
        "{refused:?}"
    );
    let force = true;
    erase(
        &store,
        &EraseRequest {
            force,
            ..request("s")
        },
    )
    .unwrap();
    assert_eq!(number(&store, "SELECT count(*) AS n FROM leases"), 0);
}

#[test]
fn an_erased_id_begins_anew_and_no_old_receipt_covers_it() {
    let stage = Stage::new();
    let store = stage.store();
    plain(&store, "s");
    erase(&store, &request("s")).unwrap();
    let again = erase(&store, &request("s")).unwrap();
    assert!(again.was_erased);
    plain(&store, "s");
    let sql = "SELECT count(*) AS n FROM sessions JOIN maintenance ON session = sessions.key";
    assert_eq!(number(&store, sql), 0);
    assert_whole(&store);
    let unknown = erase(&store, &request("nobody'; DROP TABLE sessions; --"));
    assert!(matches!(unknown, Err(StoreError::NoSession(_))));
    assert_whole(&store);
}

#[test]
fn references_to_an_erased_session_are_explained() {
    let stage = Stage::new();
    let store = stage.store();
    plain(&store, "parent");
    store::write(&store, |write| {
        let mut child = Session::new(session("child"), "agent");
        let spawn = format!(
            "{{\"parent_session_id\":\"parent\",\"parent_loop_id\":\"{}\"}}",
            loop_id(0)
        );
        child.parent_spawn_ref = Some(serde_json::from_str(&spawn).unwrap());
        create_session(write, &child, None, None)
    })
    .unwrap();
    assert!(verify(&store).unwrap().explained.is_empty());
    let report = erase(&store, &request("parent")).unwrap();
    assert_eq!(report.named_by, [session("child")]);
    let report = verify(&store).unwrap();
    assert!(report.ok);
    assert!(report.explained[0].starts_with("session child names session parent, erased at "));
}

#[test]
fn a_changed_receipt_is_found() {
    let stage = Stage::new();
    let store = stage.store();
    plain(&store, "s");
    erase(&store, &request("s")).unwrap();
    drop(store);
    let connection = crate::support::keyed::raw(stage.file()).unwrap();
    connection
        .execute_batch(
            "DROP TRIGGER maintenance_only_closes;
             UPDATE maintenance SET detail = replace(detail, 'asked for', 'nobody asked');",
        )
        .unwrap();
    drop(connection);
    let report = verify(&stage.store()).unwrap();
    let kinds: Vec<String> = report
        .problems
        .iter()
        .map(|one| one.place.clone())
        .collect();
    assert!(kinds.contains(&"receipt 1".to_owned()), "{kinds:?}");
}
