//! A fork is one row, for a loop of any length.

use loopstore::extend::session::{Fork, fork};
use loopstore::extend::{self as store, append};
use loopstore::{
    AsOf, BuildOptions, HeuristicTokenCounter, LoopId, SqliteStore, build_context_from_session,
};

use crate::support::histories::{History, answer, loop_id, open, user};

/// Returns every table with the number of its rows.
fn tables(store: &SqliteStore) -> Vec<(String, i64)> {
    let connection = crate::support::keyed::raw(store.path().unwrap()).unwrap();
    let mut names = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .unwrap();
    let names = names.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let count = |name: String| {
        let sql = format!("SELECT count(*) FROM {name}");
        let rows = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        (name, rows)
    };
    names.map(|name| count(name.unwrap())).collect()
}

/// Returns the tables that grew, and by how many rows.
fn grown(before: &[(String, i64)], after: &[(String, i64)]) -> Vec<(String, i64)> {
    let pairs = before.iter().zip(after);
    let rows = pairs.map(|((name, before), (_, after))| (name.clone(), after - before));
    rows.filter(|(_, rows)| *rows != 0).collect()
}

fn forked(store: &SqliteStore, history: &History<'_>, at: usize, turn: u32, id: &str) {
    let parent = history.row(at).key;
    let wanted = Fork {
        loop_id: LoopId::new(id).unwrap(),
        turn,
        seq: None,
        tag: "try".into(),
    };
    store::write(store, |write| fork(write, parent, &wanted)).unwrap();
}

#[test]
fn a_fork_of_a_long_loop_is_one_row() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let history = History::new(&store, "s");
    let key = history.row(0).key;
    store::write(&store, |write| {
        for batch in 0..100u32 {
            let turns = batch * 1000..(batch + 1) * 1000;
            let messages = turns.map(|turn| answer("a", &[], turn).into()).collect();
            append::append(write, key, messages, &HeuristicTokenCounter)?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(history.row(0).totals.turns, 100_000);
    let before = tables(&store);
    forked(&store, &history, 0, 70_000, "fork");
    let rows = grown(&before, &tables(&store));
    assert_eq!(rows, [("loops".to_owned(), 1)]);
    let changed = store.query("SELECT turns FROM v_loops WHERE loop_id = 'fork'");
    assert_eq!(changed.unwrap().rows[0][0].as_str(), "0");
}

#[test]
fn forks_and_looking_back_write_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let mut history = History::new(&store, "s");
    for turn in 0..12 {
        let text = format!("{turn} {}", "word ".repeat(40));
        history.append(0, vec![user(&text, turn), answer(&text, &[], turn)]);
    }
    let report = history.compact(0, (1, 2), true);
    let run = report["run_id"].as_str().unwrap().to_owned();
    let before = tables(&store);
    for turn in 0..12 {
        forked(&store, &history, 0, turn, &format!("fork-{turn}"));
    }
    assert_eq!(grown(&before, &tables(&store)), [("loops".to_owned(), 12)]);
    let before = tables(&store);
    let moments = (0..12).map(|turn| AsOf::Turn {
        loop_id: loop_id(0),
        turn,
    });
    for moment in moments.chain([AsOf::Run(run)]) {
        let options = BuildOptions {
            as_of: Some(moment),
            ..BuildOptions::default()
        };
        build_context_from_session(&store, &history.session, &options).unwrap();
    }
    assert_eq!(grown(&before, &tables(&store)), []);
}
