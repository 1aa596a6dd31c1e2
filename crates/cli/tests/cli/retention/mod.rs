//! The share of the facts needed later by agents that a compaction keeps.
//!
//! The transcripts in `tests/fixtures/retention/` are hand-written. If `LOOPSTORE_REAL_TRANSCRIPTS` names a folder of
//! recorded transcripts, those are measured too: their figures are in the guide.

mod extractor;

use std::path::PathBuf;
use std::sync::Arc;

use extractor::Extractor;
use loopstore::{
    HeuristicTokenCounter, SqliteStore, SummarizeCompaction, Summarizer, SummarizerError,
    SummaryAnswer, SummaryRequest, total_tokens,
};
use loopstore_eval::{
    EvalStrategy, EvalSummarize, History, RetentionReport, STRATEGIES, needed_values, recall_svg,
    retention, strategy,
};
use loopstore_transcripts::{ImportOptions, import_paths};

/// Measures every strategy; the summariser of `summarize` is not a model.
fn measure(paths: &[PathBuf], budgets: &[f64]) -> RetentionReport {
    let summarize = EvalSummarize::new(SummarizeCompaction::new(Arc::new(Extractor)));
    let found = measure_with(&summarize, paths, budgets);
    println!("{}", found.table());
    println!(
        "the digest stood in for {} summaries",
        summarize.fallbacks()
    );
    found
}

fn measure_with(summarize: &EvalSummarize, paths: &[PathBuf], budgets: &[f64]) -> RetentionReport {
    let store = SqliteStore::in_memory().unwrap();
    let report = import_paths(&store, paths, &ImportOptions::default(), &mut |_| {}).unwrap();
    let mut strategies: Vec<&dyn EvalStrategy> = STRATEGIES.map(|s| s as _).to_vec();
    strategies.push(summarize);
    retention(&store, &report.sessions, budgets, &strategies).unwrap()
}

fn hand_written(file: &str) -> PathBuf {
    crate::support::root::fixture("retention").join(file)
}

fn assert_floors(report: &RetentionReport, floors: &[(f64, f64)]) {
    // `summarize` is left out, since its summariser here is not a model.
    for (budget, floor) in floors {
        let recall = report.recall("digest", *budget).unwrap();
        assert!(recall >= *floor, "{recall} at {budget}\n{}", report.table());
        for other in ["one-liner", "tiered", "truncate", "clear"] {
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
fn each_strategy_is_found_by_its_name() {
    for one in STRATEGIES {
        assert_eq!(strategy(one.name()).unwrap().name(), one.name());
    }
    assert!(strategy("magic").is_none());
}

/// A model that cannot be reached.
struct UnreachableModel;

impl Summarizer for UnreachableModel {
    fn name(&self) -> &str {
        "nobody"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        Err(SummarizerError::Timeout)
    }
}

#[test]
fn a_summary_keeps_to_its_budget() {
    let store = SqliteStore::in_memory().unwrap();
    let paths = [hand_written("weir.json")];
    let report = import_paths(&store, &paths, &ImportOptions::default(), &mut |_| {}).unwrap();
    let history = History::load(&store, &report.sessions[0]).unwrap();
    let (before, _) = history.cut();
    let extracted = EvalSummarize::new(SummarizeCompaction::new(Arc::new(Extractor)));
    for budget in [200, 250, 3_000] {
        let made = extracted.compact(before, budget, &HeuristicTokenCounter);
        let tokens = total_tokens(&made.unwrap());
        assert!(tokens > 100 && tokens <= budget, "{tokens}, {budget}");
    }
    assert_eq!(extracted.fallbacks(), 0);
    // An answer that is too long is truncated, to any limit.
    let made = extracted.compact(before, 40, &HeuristicTokenCounter);
    assert!(total_tokens(&made.unwrap()) <= 40);
    assert_eq!(extracted.fallbacks(), 0);
}

#[test]
fn a_digest_in_place_of_a_summary_is_counted() {
    let nobody = EvalSummarize::new(SummarizeCompaction::new(Arc::new(UnreachableModel)));
    let budgets = [0.2, 0.4];
    let report = measure_with(&nobody, &[hand_written("desks.json")], &budgets);
    assert_eq!(nobody.fallbacks(), 4);
    for budget in budgets {
        let recall = |name| report.recall(name, budget).unwrap();
        assert_eq!(recall("summarize"), recall("digest"));
    }
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
    assert_eq!(json["results"].as_array().unwrap().len(), 12);
    assert_eq!(json["results"][9]["strategy"], "digest");
    assert_eq!(json["results"][9]["budget"], 0.125);
    let table = report.table();
    assert!(table.contains("  12.5 %"), "{table}");
    let svg = recall_svg(&report);
    assert_eq!(svg.matches("<polyline").count(), 6);
    assert!(svg.contains("prefers-color-scheme:dark"));
    assert_eq!(svg.matches('<').count(), svg.matches('>').count());
}

/// Checks that the guide has a row with these figures for each strategy.
fn assert_in_guide(report: &RetentionReport) {
    for line in report.table().lines().skip(2) {
        let cells = line.split("  ").map(str::trim);
        let cells: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
        let more = match cells[0] {
            "summarize" => ", no model",
            _ => "",
        };
        let row = format!("| `{}`{more} | {} |", cells[0], cells[1..].join(" | "));
        let guide = include_str!("../../../../../docs/guide.md");
        assert!(guide.contains(&row), "not in the guide: {row}");
    }
}

#[test]
fn recorded_transcripts_keep_what_is_needed() {
    let Some(folder) = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from) else {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing measured");
        return;
    };
    let report = measure(&[folder.join("openai-chat")], &[0.05, 0.1, 0.2]);
    assert_in_guide(&report);
    assert_floors(&report, &[(0.05, 0.45), (0.1, 0.72), (0.2, 0.95)]);
    let report = measure(&[folder.join("claude-code")], &[0.01, 0.03, 0.05]);
    assert_in_guide(&report);
    assert_floors(&report, &[(0.01, 0.3), (0.03, 0.5), (0.05, 0.54)]);
    let sessions = ["glued-lines-2.1.7-2.1.12", "partial-auto-compaction-2.1.5"];
    let coding = sessions.map(|name| folder.join(format!("claude-code/{name}.jsonl")));
    let report = measure(&coding, &[0.01, 0.03, 0.05]);
    // The missing facts are line numbers of listings, which a document leaves out.
    assert_floors(&report, &[(0.01, 0.5), (0.03, 0.85), (0.05, 0.91)]);
}
