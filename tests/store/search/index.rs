//! The index: it never blocks recording, is never older than the record, and can be rebuilt at any time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use loopstore::extend::append::{self, NewMessage};
use loopstore::extend::index::{Phrase, remove_loop, remove_session};
use loopstore::extend::search::{index, rebuild_index};
use loopstore::extend::{self as store, SessionStore};
use loopstore::model::*;
use loopstore::search::{SearchError, SearchQuery, search};
use loopstore::{Durability, HeuristicTokenCounter, SqliteStore, StoreError};
use loopstore_verify::verify;

use crate::search::found;
use crate::support::hang::{self, HUNG};
use crate::support::histories::{History, answer, open, user};
use crate::support::needs;

fn in_folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.db");
    (folder, file)
}

fn indexed(store: &dyn SessionStore) -> (u64, u64) {
    let state = store::read(store, |read| read.index_state()).unwrap();
    (state.indexed, state.total)
}

fn replace(history: &History<'_>, messages: Vec<AgentMessage>) {
    let key = history.row(0).key;
    let new: Vec<_> = messages.into_iter().map(NewMessage::from).collect();
    store::write(history.store, |write| {
        append::replace_last_turn(write, key, new, &HeuristicTokenCounter)
    })
    .unwrap();
}

#[test]
fn a_turn_in_flight_is_found_and_a_replaced_text_is_not() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    history.append(0, vec![user("first sealed", 0), answer("done", &[], 0)]);
    history.append(
        0,
        vec![user("a draft", 1), answer("with a typo", &["open"], 1)],
    );
    assert!(history.row(0).totals.sealed_seq < 4);
    assert_eq!(found(&store, "draft"), ["loop-0:2"]);
    assert_eq!(found(&store, "typo"), ["loop-0:3"]);
    replace(
        &history,
        vec![user("a better one", 1), answer("without", &["open"], 1)],
    );
    assert!(found(&store, "draft OR typo").is_empty());
    assert_eq!(found(&store, "better"), ["loop-0:2"]);
    assert_eq!(found(&store, "sealed"), ["loop-0:0"]);
    // Shorter than before, then empty.
    replace(&history, vec![user("short", 1)]);
    assert!(found(&store, "without OR better").is_empty());
    replace(&history, vec![]);
    assert!(found(&store, "short").is_empty());
    assert_eq!(indexed(&store), (2, 2));
}

#[test]
fn a_word_is_as_rare_before_its_message_is_indexed_as_after() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    // Of the query, the answers contain both words, the prompts only the common one.
    for turn in 0..6 {
        let said = if turn == 3 {
            "the kite of part three"
        } else {
            "part"
        };
        history.append(0, vec![user("part of it", turn), answer(said, &[], turn)]);
    }
    history.end_loop(0);
    let query = SearchQuery {
        role: Some(Role::Assistant),
        ..SearchQuery::new("kite part")
    };
    let relevance = || {
        let hits = search(&store, &query).unwrap().hits;
        let of = |hit: &loopstore::search::SearchHit| (hit.seq, hit.relevance);
        hits.iter().map(of).collect::<Vec<_>>()
    };
    let before = relevance();
    assert!(before.len() > 1 && before[0].0 == 7, "{before:?}");
    index(&store, &mut |_| {}).unwrap();
    assert_eq!(indexed(&store), (12, 12));
    assert_eq!(relevance(), before);
}

#[test]
fn recording_does_not_touch_the_index() {
    let (_folder, file) = in_folder();
    let store = open(&file);
    let history = History::new(&store, "s");
    history.append(0, vec![user("kite", 0), answer("done", &[], 0)]);
    assert_eq!(indexed(&store), (0, 2));
    assert_eq!(found(&store, "kite"), ["loop-0:0"]);
    let tables = || {
        let connection = crate::support::keyed::raw(&file).unwrap();
        let sum = |table: &str| -> (i64, i64) {
            let sql = format!("SELECT count(*), coalesce(sum(length(block)), 0) FROM {table}");
            connection
                .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap()
        };
        sum("message_index_data")
    };
    let before = tables();
    for turn in 1..20 {
        history.append(
            0,
            vec![user("another kite", turn), answer("done", &[], turn)],
        );
    }
    assert_eq!((tables(), indexed(&store)), (before, (2, 40)));
    assert_eq!(found(&store, "kite").len(), 20);
    assert_eq!(indexed(&store), (40, 40));
}

#[test]
fn what_is_taken_out_is_found_no_more() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    history.start_loop(None, None);
    for at in 0..2 {
        history.append(
            at,
            vec![user("a secret kite", 0), answer("a plain kite", &[], 0)],
        );
    }
    assert_eq!(found(&store, "secret").len(), 2);
    let rows = [history.row(0), history.row(1)];
    // As another program would that then removes the messages' content in the same transaction.
    let words_left = |word: &str| -> i64 {
        let phrase = Phrase::of(vec![word.to_owned()]);
        let hits = store::read(&store, |read| read.holders(&phrase, 9));
        i64::from(hits.unwrap())
    };
    for part in 0..2 {
        store::write(&store, |write| match part {
            0 => remove_loop(write, rows[1].key, 0),
            _ => remove_session(write, rows[0].session),
        })
        .unwrap();
        assert_eq!((words_left("secret"), words_left("plain")), (0, 0));
        let again = found(&store, "secret");
        assert_eq!(again.len(), 2, "what is still there comes back");
    }
    assert_eq!(words_left("secret"), 2);
}

#[test]
fn erased_content_is_not_found_even_if_its_words_were_left_behind() {
    let (_folder, file) = in_folder();
    let store = open(&file);
    let history = History::new(&store, "s");
    history.append(
        0,
        vec![user("a secret kite", 0), answer("a plain kite", &[], 0)],
    );
    assert_eq!(found(&store, "secret"), ["loop-0:0"]);
    let shell = crate::support::keyed::raw(&file).unwrap();
    let maintain = "INSERT INTO maintenance (session, kind, opened_at, detail)
        SELECT key, 'redact', '2026-01-01', '' FROM sessions";
    shell.execute(maintain, []).unwrap();
    shell
        .execute(
            "UPDATE messages SET head = NULL, body = NULL, salt = NULL WHERE role = 0",
            [],
        )
        .unwrap();
    assert!(found(&store, "secret").is_empty());
    shell
        .execute("DELETE FROM messages WHERE role = 1", [])
        .unwrap();
    assert!(found(&store, "plain").is_empty());
    // The key of a removed loop can be reused.
    shell
        .execute_batch("DELETE FROM turns; DELETE FROM messages; DELETE FROM loops;")
        .unwrap();
    let mut history = history;
    history.loops = 0;
    history.start_loop(None, None);
    history.append(0, vec![user("a new tree", 0), answer("and more", &[], 0)]);
    assert_eq!(found(&store, "tree"), ["loop-0:0"]);
    assert!(found(&store, "kite").is_empty());
}

#[test]
fn a_store_that_cannot_be_written_finds_the_same() {
    let (_folder, file) = in_folder();
    let store = open(&file);
    let history = History::new(&store, "s");
    let read_only =
        || SqliteStore::open_with(&file, crate::support::keyed::options().read_only(true)).unwrap();
    let go_on = |turns: std::ops::Range<u32>| {
        for turn in turns {
            let text = ["a kite", "two kites", "red kite kite", "none"][turn as usize % 4];
            history.append(0, vec![user(text, turn), answer("done", &[], turn)]);
        }
    };
    let sorted = |mut places: Vec<String>| {
        places.sort();
        places
    };
    let queries = [
        "kite",
        "kit*",
        "kite -red",
        "\"red kite\" OR two",
        "done kite",
    ];
    // A part is indexed, the rest is not.
    go_on(0..10);
    found(&store, "kite");
    go_on(10..30);
    let mixed: Vec<_> = queries
        .iter()
        .map(|q| sorted(found(&read_only(), q)))
        .collect();
    assert_eq!(indexed(&store).0, 20);
    let all: Vec<_> = queries.iter().map(|q| sorted(found(&store, q))).collect();
    store::write(&store, |write| write.unindex(history.row(0).key, 0)).unwrap();
    let scanned: Vec<_> = queries
        .iter()
        .map(|q| sorted(found(&read_only(), q)))
        .collect();
    assert_eq!(indexed(&store).0, 0);
    assert_eq!((&scanned, &mixed), (&all, &all));
    found(&store, "kite");
    let best = |store: &SqliteStore| found(store, "red").len();
    store::write(&store, |write| write.clear_index(0)).unwrap();
    assert_eq!(
        best(&read_only()),
        7,
        "an index of another rule is not asked"
    );
    assert_eq!(
        search(&read_only(), &SearchQuery::new("red"))
            .unwrap()
            .indexed,
        0
    );
    assert_eq!(best(&store), 7);
    assert_eq!(indexed(&store), (60, 60));
}

#[test]
fn others_record_while_an_index_catches_up() {
    let (_folder, file) = in_folder();
    let store = open(&file);
    let history = History::new(&store, "s");
    let many: Vec<_> = (0..3000)
        .map(|turn| user(&format!("kite {turn} ").repeat(9), turn))
        .collect();
    history.append(0, many);
    let impatient = crate::support::keyed::options()
        .durability(Durability::Normal)
        .busy_timeout(HUNG / 2);
    let other = SqliteStore::open_with(&file, impatient).unwrap();
    let done = AtomicBool::new(false);
    let written = AtomicU32::new(0);
    let (mut steps, mut appended) = (0, 0);
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let history = History::new(&other, "t");
            let mut turn = 0;
            while !done.load(Ordering::Relaxed) {
                history.append(0, vec![user("meanwhile", turn)]);
                turn += 1;
                written.store(turn, Ordering::Relaxed);
            }
            turn
        });
        index(&store, &mut |_| {
            steps += 1;
            let before = written.load(Ordering::Relaxed);
            let has_more = || written.load(Ordering::Relaxed) > before;
            hang::until("the other records", || steps > 4 || has_more());
        })
        .unwrap();
        done.store(true, Ordering::Relaxed);
        appended = recorder.join().unwrap();
    });
    assert!(steps > 10, "{steps} transactions");
    assert!(appended > 3, "{appended} appends");
    assert_eq!(found(&store, "2999"), ["loop-0:2999"]);
    assert_eq!(found(&store, "meanwhile").len(), appended as usize);
}

#[test]
fn an_index_that_is_cut_off_goes_on() {
    let (_folder, file) = in_folder();
    let store = open(&file);
    let history = History::new(&store, "s");
    history.append(0, (0..1000).map(|turn| user("kite", turn)).collect());
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        index(&store, &mut |far| assert!(far.indexed < 500, "cut off"))
    }));
    assert!(stopped.is_err());
    let (at, total) = indexed(&store);
    assert!(at >= 500 && at < total, "{at} of {total}");
    assert_eq!(found(&store, "kite").len(), 1000);
    // The last prompt is in flight.
    assert_eq!(indexed(&store), (999, 1000));
}

/// Ways to damage an index.
const DAMAGE: [&str; 8] = [
    "DELETE FROM index_pages",
    "DELETE FROM message_index_data",
    "UPDATE message_index_data SET block = x'00ff00ff00ff'",
    "DELETE FROM message_index_config",
    "DROP TABLE message_index_config",
    "DROP TABLE message_index_data",
    "UPDATE message_index_data SET block = zeroblob(40) WHERE id > 10",
    "DELETE FROM indexed_loops",
];

/// Creates a store with a damaged index; with `calls` its last turn is in flight.
fn damaged(file: &Path, how: &str, calls: &[&str]) -> SqliteStore {
    let store = open(file);
    let history = History::new(&store, "s");
    history.append(0, vec![user("a kite", 0), answer("done", &[], 0)]);
    history.append(0, vec![user("a draft", 1), answer("so", calls, 1)]);
    assert_eq!(found(&store, "kite"), ["loop-0:0"]);
    drop(store);
    crate::support::keyed::raw(file)
        .unwrap()
        .execute_batch(how)
        .unwrap();
    open(file)
}

#[test]
fn a_damaged_index_is_told_and_made_anew_and_the_record_is_whole() {
    for how in DAMAGE {
        let (_folder, file) = in_folder();
        let store = damaged(&file, how, &[]);
        let report = verify(&store).unwrap();
        assert!(report.ok && !report.index.is_empty(), "{how}: {report:?}");
        match search(&store, &SearchQuery::new("kite")) {
            Err(SearchError::Store(StoreError::IndexDamaged(_))) => {}
            // The remaining index still finds the messages.
            Ok(found) if how.contains("indexed_loops") && !found.hits.is_empty() => {}
            other => panic!("{how}: {other:?}"),
        }
        rebuild_index(&store, &mut |_| {}).unwrap();
        assert_eq!(found(&store, "kite"), ["loop-0:0"], "{how}");
        let report = verify(&store).unwrap();
        assert!(report.ok && report.index.is_empty(), "{how}: {report:?}");
    }
}

/// The index is consistent in itself; only the record shows the damage.
#[test]
fn an_index_that_was_emptied_or_thinned_is_not_believed() {
    let all = "INSERT INTO message_index (message_index) VALUES ('delete-all')";
    let some = "DELETE FROM index_pages WHERE loop % 2 = 0; DELETE FROM message_index_docsize
        WHERE NOT EXISTS (SELECT 1 FROM index_pages WHERE number = id >> 6)";
    for how in [all, some] {
        let (_folder, file) = in_folder();
        let store = open(&file);
        for session in 0..20 {
            let history = History::new(&store, &format!("s{session}"));
            history.append(0, vec![user("a kite", 0), answer("done", &[], 0)]);
        }
        assert_eq!(found(&store, "kite").len(), 20);
        drop(store);
        crate::support::keyed::raw(&file)
            .unwrap()
            .execute_batch(how)
            .unwrap();
        let store = open(&file);
        let report = verify(&store).unwrap();
        assert!(report.ok && report.index.len() > 1, "{how}: {report:?}");
        let told: Vec<_> = (0..8)
            .map(|_| search(&store, &SearchQuery::new("kite")))
            .collect();
        let refused = told.iter().filter_map(|told| match told {
            Err(SearchError::Store(StoreError::IndexDamaged(why))) => Some(why),
            _ => None,
        });
        let refused: Vec<_> = refused.collect();
        assert!(
            !refused.is_empty() && refused[0].contains("is recorded"),
            "{how}: {told:?}"
        );
        assert!(how != all || refused.len() == 8);
        rebuild_index(&store, &mut |_| {}).unwrap();
        assert_eq!(found(&store, "kite").len(), 20, "{how}");
        assert_eq!(verify(&store).unwrap().index, [""; 0]);
    }
}

#[test]
fn a_damaged_index_keeps_nobody_from_recording() {
    for how in DAMAGE {
        let (_folder, file) = in_folder();
        let store = damaged(&file, how, &["open"]);
        let mut history = History::new(&store, "t");
        history.append(0, vec![user("more", 0)]);
        history.session = SessionId::new("s").unwrap();
        replace(&history, vec![user("a final text", 1)]);
        rebuild_index(&store, &mut |_| {}).unwrap();
        assert!(found(&store, "draft").is_empty(), "{how}");
        assert_eq!(found(&store, "final"), ["loop-0:2"], "{how}");
    }
}

#[test]
fn a_plain_shell_can_read_a_file_with_an_index() {
    if needs::missing(&needs::SQLITE3) {
        return;
    }
    if crate::support::keyed::leaves_out("a_plain_shell_can_read_a_file_with_an_index") {
        return;
    }
    let (_folder, file) = in_folder();
    let store = open(&file);
    let history = History::new(&store, "s");
    history.append(0, vec![user("a kite", 0), answer("done", &[], 0)]);
    assert_eq!(found(&store, "kite"), ["loop-0:0"]);
    drop(store);
    let said = std::process::Command::new("sqlite3")
        .arg(&file)
        .arg("PRAGMA integrity_check; SELECT text FROM v_messages; VACUUM; SELECT count(*) FROM loops")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(said.stderr).unwrap(), "");
    assert_eq!(
        String::from_utf8(said.stdout).unwrap(),
        "ok\na kite\ndone\n1\n"
    );
    let store = open(&file);
    assert!(verify(&store).unwrap().ok);
    assert_eq!(found(&store, "kite"), ["loop-0:0"]);
}
