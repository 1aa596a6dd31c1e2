//! Recounting: every stored count is updated, nothing else changes, and an interrupted recount continues where it
//! stopped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use crate::support::edited_histories::play;
use crate::support::histories::{History, Random};
use crate::support::keyed;
use crate::support::letters::Letters;
use loopstore::extend as store;
use loopstore::extend::sqlite::{RecountReport, recount};
use loopstore::*;
use loopstore_verify::verify;

fn letters() -> SqliteOptions {
    with(Arc::new(Letters("letters")))
}

fn with(counter: Arc<dyn TokenCounter>) -> SqliteOptions {
    let options = keyed::options().durability(Durability::Normal);
    options.counter(counter)
}

fn heuristic() -> SqliteOptions {
    with(Arc::new(HeuristicTokenCounter))
}

/// Every column with a count, and the other columns of the same rows.
const COUNTS: &str = "
    SELECT 'message', id, tokens FROM messages
    UNION ALL SELECT 'turn', id, tokens FROM turns
    UNION ALL SELECT 'loop', key, tokens FROM loops
    UNION ALL SELECT 'system', key, system_tokens FROM loops
    UNION ALL SELECT 'block', key, tokens_block FROM blocks
    UNION ALL SELECT 'covered', key, tokens_covered FROM blocks
    UNION ALL SELECT 'block message', id, tokens FROM block_messages
    UNION ALL SELECT 'edit', id, tokens_before FROM edits
    UNION ALL SELECT 'edited', id, tokens_after FROM edits
    ORDER BY 1, 2";
const REST: &str = "
    SELECT id, digest, chain, bytes FROM messages
    UNION ALL SELECT key, digest, bytes_block, messages_block FROM blocks
    UNION ALL SELECT key, digest, tokens_before, tokens_after FROM runs
    UNION ALL SELECT id, digest, bytes_before, bytes_after FROM edits
    ORDER BY 1";

fn rows(path: &Path, sql: &str) -> Vec<String> {
    let connection = keyed::raw(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let line = |row: &rusqlite::Row<'_>| {
        let value = |at| format!("{:?}", row.get_ref(at).unwrap());
        Ok((0..columns).map(value).collect::<Vec<_>>().join("|"))
    };
    let rows = statement.query_map([], line).unwrap();
    rows.map(Result::unwrap).collect()
}

fn history(path: &Path, seed: u64) -> usize {
    let store = SqliteStore::open_with(path, heuristic()).unwrap();
    let mut random = Random::new(seed);
    let mut history = History::new(&store, "s");
    for _ in 0..60 {
        history.step(&mut random);
    }
    play(&store, seed, 30);
    history.committed
}

fn count_anew(path: &Path, options: SqliteOptions) -> RecountReport {
    recount(path, options, &mut |_| ()).unwrap()
}

fn assert_whole(path: &Path, options: SqliteOptions) {
    let store = SqliteStore::open_with(path, options).unwrap();
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
}

#[test]
fn every_count_follows_and_comes_back() {
    let mut committed = 0;
    for seed in 1..25 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        committed += history(&path, seed);
        let (counts, rest) = (rows(&path, COUNTS), rows(&path, REST));
        let report = count_anew(&path, letters());
        assert_eq!(
            (report.from.as_str(), report.to.as_str()),
            ("heuristic", "letters")
        );
        assert!(!report.resumed && report.messages > 0);
        assert_ne!(rows(&path, COUNTS), counts);
        assert_eq!(rows(&path, REST), rest);
        assert_whole(&path, letters());
        count_anew(&path, heuristic());
        assert_eq!(rows(&path, COUNTS), counts, "seed {seed}");
        assert_whole(&path, heuristic());
    }
    assert!(committed > 5, "{committed} runs: the test tests nothing");
}

#[test]
fn another_counter_is_an_error_that_names_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    history(&path, 1);
    let error = SqliteStore::open_with(&path, letters()).err().unwrap();
    assert!(matches!(error, OpenError::Counter { .. }));
    assert!(error.to_string().contains("recount it"), "{error}");
    let store = SqliteStore::open_with(&path, letters().stored_counter()).unwrap();
    assert_eq!(SessionStore::counter(&store).name(), "heuristic");
}

#[test]
fn a_recount_with_the_same_counter_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    history(&path, 2);
    let report = count_anew(&path, heuristic());
    assert_eq!((report.messages, report.blocks), (0, 0));
    assert_whole(&path, heuristic());
}

/// Dies after `steps` transactions, as a killed process does.
fn die_after(path: &Path, steps: usize) -> bool {
    let mut left = steps;
    let died = catch_unwind(AssertUnwindSafe(|| {
        recount(path, letters(), &mut |_| {
            left -= 1;
            assert!(left > 0, "killed");
        })
    }));
    died.is_err()
}

#[test]
fn a_recount_that_was_cut_off_goes_on() {
    for steps in 1..12 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        history(&path, 3);
        let counts = rows(&path, COUNTS);
        if !die_after(&path, steps) {
            break;
        }
        if rows(&path, "SELECT name FROM store_meta WHERE name = 'recount'").is_empty() {
            assert_whole(&path, letters());
            continue;
        }
        for options in [heuristic(), letters(), heuristic().stored_counter()] {
            let error = SqliteStore::open_with(&path, options).err().unwrap();
            assert!(matches!(error, OpenError::Recounting { .. }), "{error}");
        }
        let report = count_anew(&path, letters());
        assert!(report.resumed);
        assert_whole(&path, letters());
        count_anew(&path, heuristic());
        assert_eq!(rows(&path, COUNTS), counts);
    }
}

#[test]
fn after_a_cut_off_recount_any_counter_will_do() {
    for counter in ["heuristic", "third"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        history(&path, 4);
        assert!(die_after(&path, 2));
        let options = || match counter {
            "third" => with(Arc::new(Letters("third"))),
            _ => heuristic(),
        };
        count_anew(&path, options());
        assert_whole(&path, options());
    }
}

#[test]
fn who_opened_the_database_before_cannot_write_old_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    history(&path, 5);
    let old = SqliteStore::open_with(&path, heuristic()).unwrap();
    let write = || store::write(&old, |_| Ok(()));
    write().unwrap();
    recount(&path, letters(), &mut |_| assert!(write().is_err())).unwrap();
    let error = write().unwrap_err().to_string();
    assert!(
        error.contains("`letters`") && error.contains("open it again"),
        "{error}"
    );
}

#[test]
fn nothing_but_the_counts_of_a_block_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let seed = (1..).find(|seed| {
        let _ = std::fs::remove_file(&path);
        history(&path, *seed) > 0
    });
    assert!(seed.is_some());
    let connection = keyed::raw(&path).unwrap();
    let mut columns = connection
        .prepare("SELECT name FROM pragma_table_info('blocks')")
        .unwrap();
    let names = columns
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap();
    for name in names.map(Result::unwrap) {
        let counts = ["tokens_covered", "tokens_block"].contains(&name.as_str());
        let sql = format!("UPDATE blocks SET {name} = coalesce({name}, 0) || '7'");
        let sql = if counts {
            sql.replace(" || '7'", " + 7")
        } else {
            sql
        };
        assert_eq!(connection.execute(&sql, []).is_ok(), counts, "{name}");
    }
}

#[cfg(feature = "tiktoken")]
#[test]
fn a_database_is_counted_with_tiktoken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    history(&path, 6);
    let report = count_anew(&path, with(Arc::new(TiktokenCounter::o200k_base())));
    assert_eq!(report.to, "tiktoken:o200k_base");
    assert_whole(&path, heuristic().stored_counter());
}
