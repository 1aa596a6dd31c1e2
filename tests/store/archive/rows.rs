//! The rows of archived loops: receipts, packs, the results of SQL queries, and the statements that triggers reject.

use loopstore::extend::packs::PackRow;
use loopstore::extend::sqlite::recount;
use loopstore::extend::{self as store, append};
use loopstore::*;
use loopstore_admin::retention::{ArchiveRequest, archive};

use crate::support::archive::*;
use crate::support::histories::{History, loop_id, open, user};
use crate::support::letters::LETTERS;

#[test]
fn the_views_tell_usage_and_calls_of_an_archived_loop_and_no_texts() {
    let store = SqliteStore::in_memory().unwrap();
    let history = line(&store, "s", 1, 2);
    archive_loops(&store, &history.session, &[0]);
    let rows = |sql: &str| {
        let rows = store.query(sql).unwrap().rows;
        let row = |row: &Vec<Json>| {
            row.iter()
                .map(|v| v.as_str().to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let calls = "SELECT tool_call_id, tool_name, arguments, result_seq, result_text, is_error
         FROM v_tool_calls WHERE loop_id = 'loop-0' ORDER BY call_seq";
    assert_eq!(
        rows(calls),
        [
            r#""call-0" "tool" null 2 null 0"#,
            r#""call-1" "tool" null 5 null 0"#
        ]
    );
    let usage = "SELECT model, input, output FROM v_usage WHERE loop_id = 'loop-0'";
    assert_eq!(rows(usage), [r#""model-1" 200 14"#]);
    let turns = "SELECT turn, input_tokens, output_tokens FROM v_turns WHERE loop_id = 'loop-0'";
    assert_eq!(rows(turns), ["0 100 7", "1 100 7"]);
    let texts = "SELECT count(*), count(text), count(payload) FROM v_messages
         WHERE loop_id = 'loop-0'";
    assert_eq!(rows(texts), ["6 0 0"]);
    let archived = "SELECT loop_id, archived FROM v_loops ORDER BY loop_id";
    assert_eq!(rows(archived), [r#""loop-0" 1"#, r#""loop-1" 0"#]);
}

#[test]
fn a_receipt_says_what_was_moved_and_why() {
    let store = SqliteStore::in_memory().unwrap();
    let history = line(&store, "s", 2, 2);
    let request = ArchiveRequest {
        session: Some(history.session),
        loops: vec![loop_id(0), loop_id(1)],
        reason: Some("cold".into()),
        ..ArchiveRequest::default()
    };
    let report = archive(&store, &request).unwrap();
    assert_eq!(report.receipts.len(), 1);
    let receipts = || -> Vec<serde_json::Value> {
        let sql = "SELECT detail AS n FROM maintenance WHERE closed_at IS NOT NULL ORDER BY key";
        let mut receipts = Vec::new();
        for row in store.query(sql).unwrap().records() {
            let detail = row.text("n").unwrap();
            let detail: serde_json::Value = serde_json::from_str(detail.as_ref()).unwrap();
            receipts.push(detail["receipt"].clone());
        }
        receipts
    };
    let [archived] = &receipts()[..] else {
        panic!("{:?}", receipts())
    };
    assert_eq!(archived["reason"], "cold");
    assert_eq!(archived["counts"]["archived_messages"], 12);
    assert_eq!(archived["counts"]["packs"], 2);
    assert_eq!(archived["loops"].as_array().unwrap().len(), 2);
    bring_back(&store);
    let [_, back] = &receipts()[..] else {
        panic!("{:?}", receipts())
    };
    assert_eq!(back["counts"]["unarchived_messages"], 12);
    assert_eq!(back["loops"].as_array().unwrap().len(), 2);
    assert_whole(&store);
}

/// These statements come from another program.
#[test]
fn a_pack_is_not_changed_added_or_removed_without_a_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    let store = open(&file);
    let history = line(&store, "s", 1, 2);
    archive_loops(&store, &history.session, &[0]);
    let outside = crate::support::keyed::raw(&file).unwrap();
    for sql in [
        "DELETE FROM packs",
        "DELETE FROM packed_heads",
        "UPDATE packs SET content = x''",
        "UPDATE packs SET id = id + 1",
        "UPDATE packed_heads SET head = '{}'",
        "UPDATE messages SET head = '{}' WHERE head IS NULL",
        "INSERT OR REPLACE INTO packs SELECT * FROM packs",
        "INSERT INTO packs SELECT id + 100, last_seq, bytes, digest, content FROM packs",
        "INSERT OR REPLACE INTO packed_heads SELECT * FROM packed_heads",
        "INSERT INTO packed_heads SELECT id + 100, head FROM packed_heads",
    ] {
        let refused = outside.execute_batch(sql).unwrap_err().to_string();
        assert!(
            loopstore_testing::refusals::is_of_a_trigger(&refused),
            "{sql}: {refused}"
        );
    }
    assert_whole(&store);
}

/// Each transaction moves a few MiB, so that recording does not wait long.
#[test]
fn a_large_loop_goes_in_several_transactions_while_others_record() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let mut history = History::new(&store, "s");
    let mut random = crate::support::histories::Random::new(7);
    for number in 0..24 {
        let word = |random: &mut crate::support::histories::Random| {
            format!("{:x} ", random.below(1 << 40))
        };
        let text: String = (0..40_000).map(|_| word(&mut random)).collect();
        history.append(0, vec![user(&text, number)]);
    }
    history.end_loop(0);
    history.start_loop(Some(0), None);
    let (key, receipts) = (history.row(1).key, std::sync::OnceLock::new());
    let before = crate::archive::seen::lines(&store, &history.session);
    std::thread::scope(|scope| {
        scope.spawn(|| receipts.set(archive_loops(&store, &history.session, &[0]).receipts));
        let mut turn = 0;
        while receipts.get().is_none() {
            if turn == 100 {
                std::thread::yield_now();
                continue;
            }
            let new = vec![user("meanwhile", turn).into()];
            store::write(&store, |write| {
                append::append(write, key, new, &HeuristicTokenCounter)
            })
            .unwrap();
            turn += 1;
        }
        assert!(turn > 3, "{turn} turns");
    });
    assert!(receipts.get().unwrap().len() > 2);
    assert_eq!(packed(&store), 24);
    assert_whole(&store);
    // Freed space is reused.
    let outside = crate::support::keyed::raw(store.path().unwrap()).unwrap();
    let pragma = |name| outside.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (free, pages) = (
        pragma("freelist_count").unwrap(),
        pragma("page_count").unwrap(),
    );
    assert!(free * 4 > pages, "{free} of {pages} pages are free");
    let after = crate::archive::seen::lines(&store, &history.session);
    let of_first = |lines: &str| lines.lines().filter(|line| line.len() > 100_000).count();
    assert_eq!((of_first(&before), of_first(&after)), (24, 24));
}

#[test]
fn packs_are_small_and_their_messages_follow_each_other() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    for number in 0..60 {
        let text = format!("{number} ") + &"some words ".repeat(4_000);
        history.append(0, vec![user(&text, number)]);
    }
    history.append(0, vec![user(&"y".repeat(1 << 20), 60)]);
    history.end_loop(0);
    history.start_loop(Some(0), None);
    archive_loops(&store, &history.session, &[0]);
    let key = history.row(0).key;
    let mut packs: Vec<PackRow> = Vec::new();
    let found = Database::scan(
        &store,
        Box::new(|scan| {
            let mut next = 0;
            while let Some(pack) = scan.next_pack(key, next)? {
                next = pack.last + 1;
                packs.push(pack);
            }
            Ok(())
        }),
    );
    found.unwrap();
    assert_eq!(packs[0].first, 0);
    assert!(packs.windows(2).all(|two| two[1].first == two[0].last + 1));
    let (large, small) = packs.split_last().unwrap();
    assert_eq!(
        (large.first, large.last),
        (60, 60),
        "larger than a pack by itself"
    );
    assert!(
        small.iter().all(|pack| pack.bytes <= 513 << 10),
        "{packs:?}"
    );
    assert!(small.len() > 4);
}

#[test]
fn an_archived_loop_is_counted_anew_like_any_other() {
    let counted = |archives: bool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let store = open(&file);
        let history = line(&store, "s", 2, 3);
        if archives {
            archive_loops(&store, &history.session, &[0]);
        }
        drop(store);
        let options = || crate::support::keyed::options().counter(std::sync::Arc::new(LETTERS));
        recount(&file, options(), &mut |_| {}).unwrap();
        let store = SqliteStore::open_with(&file, options()).unwrap();
        assert_whole(&store);
        assert_eq!(packed(&store), if archives { 9 } else { 0 });
        let sql = "SELECT loop_id, seq, tokens FROM v_messages ORDER BY 1, 2";
        format!("{:?}", store.query(sql).unwrap().rows)
    };
    assert_eq!(counted(true), counted(false));
}
