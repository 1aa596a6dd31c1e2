//! How much of what agents later needed is left after a compaction.
//!
//! The transcripts in `tests/fixtures/retention/` are hand-written. With the folder of recorded
//! ones in `LOOPSTORE_REAL_TRANSCRIPTS`, those are measured too.

use std::path::{Path, PathBuf};

use loopstore::SqliteStore;
use loopstore::eval::{EvalStrategy, History, RetentionReport, needed_values, recall_svg};
use loopstore::eval::{retention, strategy};
use loopstore::import::{ImportOptions, import_paths};

fn measure(paths: &[PathBuf], budgets: &[f64]) -> RetentionReport {
    let store = SqliteStore::in_memory().unwrap();
    let report = import_paths(&store, paths, &ImportOptions::default(), &mut |_| {}).unwrap();
    let names = ["one-liner", "tiered", "truncate", "digest"];
    let strategies: Vec<&dyn EvalStrategy> = names.map(|n| strategy(n).unwrap()).to_vec();
    let found = retention(&store, &report.sessions, budgets, &strategies).unwrap();
    println!("{}", found.table());
    found
}

fn hand_written(file: &str) -> PathBuf {
    Path::new("tests/fixtures/retention").join(file)
}

fn assert_floors(report: &RetentionReport, floors: &[(f64, f64)]) {
    for (budget, floor) in floors {
        let recall = report.recall("digest", *budget).unwrap();
        assert!(recall >= *floor, "{recall} at {budget}\n{}", report.table());
        for other in ["one-liner", "tiered", "truncate"] {
            let other = report.recall(other, *budget).unwrap();
            assert!(other <= recall, "{}", report.table());
        }
    }
}

#[test]
fn conversations_at_desks_keep_what_is_needed() {
    let report = measure(&[hand_written("desks.json")], &[0.1, 0.2, 0.4]);
    assert_eq!((report.cases, report.needed), (2, 13));
    assert_floors(&report, &[(0.1, 0.45), (0.2, 0.75), (0.4, 0.95)]);
}

#[test]
fn a_coding_session_keeps_what_is_needed() {
    let report = measure(&[hand_written("weir.json")], &[0.01, 0.03, 0.05]);
    assert_eq!(report.cases, 1);
    assert_floors(&report, &[(0.01, 0.6), (0.03, 0.8), (0.05, 0.8)]);
}

#[test]
fn the_cut_and_the_needed_values_are_as_written() {
    let store = SqliteStore::in_memory().unwrap();
    let paths = [hand_written("desks.json")];
    let report = import_paths(&store, &paths, &ImportOptions::default(), &mut |_| {}).unwrap();
    let history = History::load(&store, &report.sessions[1]).unwrap();
    let (before, after) = history.cut();
    assert_eq!((before.len(), after.len()), (8, 8));
    let needed = needed_values(before, after);
    // The user names the new room after the cut, and the number of the change is made after it.
    let expected = [
        "KG-4407",
        "PJ-118",
        "2031-02-03T10:00",
        "yamamoto@kaigi.example",
    ];
    let mut sorted = needed;
    sorted.sort();
    let mut expected = expected.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(sorted, expected);
}

#[test]
fn a_report_is_json_a_table_and_a_picture() {
    let report = measure(&[hand_written("desks.json")], &[0.05, 0.125]);
    let again = measure(&[hand_written("desks.json")], &[0.05, 0.125]);
    assert_eq!(report, again);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["cases"], 2);
    assert_eq!(json["results"].as_array().unwrap().len(), 8);
    assert_eq!(json["results"][7]["strategy"], "digest");
    assert_eq!(json["results"][7]["budget"], 0.125);
    let table = report.table();
    assert!(table.contains("  12.5 %"), "{table}");
    let svg = recall_svg(&report);
    assert_eq!(svg.matches("<polyline").count(), 4);
    assert!(svg.contains("prefers-color-scheme:dark"));
    assert_eq!(svg.matches('<').count(), svg.matches('>').count());
}

#[test]
fn recorded_transcripts_keep_what_is_needed() {
    let Some(folder) = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from) else {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing measured");
        return;
    };
    let desks = [folder.join("openai-chat/tau-airline-8-runs.json")];
    let report = measure(&desks, &[0.05, 0.1, 0.2]);
    assert_floors(&report, &[(0.05, 0.45), (0.1, 0.72), (0.2, 0.95)]);
    let sessions = ["glued-lines-2.1.7-2.1.12", "partial-auto-compaction-2.1.5"];
    let coding = sessions.map(|name| folder.join(format!("claude-code/{name}.jsonl")));
    let report = measure(&coding, &[0.01, 0.03, 0.05]);
    assert_floors(&report, &[(0.01, 0.42), (0.03, 0.76), (0.05, 0.85)]);
}
