//! Events of compactions, of loopstore's own and of imported ones: they are stored before hooks are called.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use loopstore::compact::CompactOutcome;
use loopstore::{
    CompactRequest, CompactTrigger, CompactionEnded, CompactionHook, Database, Json, Message,
    SqliteStore, Store,
};
use loopstore_admin::replay::{Replay, ReplayStep};
use loopstore_transcripts::{ImportOptions, import_paths};

/// Records the outcomes of compactions, and the number of events stored at that time.
struct OutcomeRecorder(Arc<SqliteStore>, Mutex<Vec<(CompactOutcome, usize)>>);

impl CompactionHook for OutcomeRecorder {
    fn after(&self, ended: &CompactionEnded) {
        let stored = events(&self.0).len();
        self.1.lock().unwrap().push((ended.outcome, stored));
    }
}

struct Panics;

impl CompactionHook for Panics {
    fn after(&self, _: &CompactionEnded) {
        panic!("a hook that is broken");
    }
}

/// Returns the rows of the view, in order.
fn events(store: &SqliteStore) -> Vec<(String, String)> {
    let sql = "SELECT kind, at FROM v_compaction_events ORDER BY tick, run_id, kind DESC";
    let text = |cell: &Json| cell.read::<String>().unwrap();
    let rows = store.query(sql).unwrap().rows;
    rows.iter()
        .map(|row| (text(&row[0]), text(&row[1])))
        .collect()
}

#[test]
fn a_compaction_of_our_own_is_told_of_and_a_hook_that_panics_keeps_nothing_up() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let recorder = Arc::new(OutcomeRecorder(store.clone(), Mutex::default()));
    let database: Arc<dyn Database> = store.clone();
    let chat = Store::from(database).session("weather").unwrap();
    chat.append([Message::user("How is the weather?")]).unwrap();
    for hour in 0..40 {
        let report = format!("Hour {hour}: {}", "rain, ".repeat(200));
        chat.append([Message::assistant(report)]).unwrap();
    }
    let mut request = CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    request.policy.hooks.push(Arc::new(Panics));
    request.policy.hooks.push(recorder.clone());
    let report = chat.compact(&request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
    assert_eq!(
        *recorder.1.lock().unwrap(),
        [(CompactOutcome::Committed, 2)]
    );

    let kinds: Vec<String> = events(&store).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["compactionStarted", "compactionEnded"]);
    let run = &store.run_rows(None).unwrap()[0];
    let stored: Vec<Json> = run.get("events").read().unwrap();
    assert_eq!(stored.len(), 2);
    let replay = Replay::new(&*store, chat.id(), None).unwrap();
    let changes = replay.filter_map(|step| match step.unwrap() {
        ReplayStep::Change(change) => Some(change.events),
        ReplayStep::Turn(_) => None,
    });
    assert_eq!(changes.collect::<Vec<_>>(), [stored]);
}

#[test]
fn a_compaction_that_a_transcript_brought_is_told_of_once() {
    for path in [
        "../../tests/fixtures/claude-code/compactions.jsonl",
        "../../tests/fixtures/pi/first-version.jsonl",
        "../../tests/fixtures/codex/lighthouse.jsonl",
    ] {
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        let recorder = Arc::new(OutcomeRecorder(store.clone(), Mutex::default()));
        let mut options = ImportOptions::default();
        options.hooks.push(Arc::new(Panics));
        options.hooks.push(recorder.clone());
        let paths = [PathBuf::from(path)];
        let bring = || import_paths(&*store, &paths, &options, &mut |_| {}).unwrap();
        bring();
        // A run of edits is no compaction: it has no events, and hooks are not called.
        let mut runs = store.run_rows(None).unwrap();
        runs.retain(|run| run.text("trigger").as_deref() != Some("edit"));
        assert!(!runs.is_empty(), "{path}");
        let found = events(&store);
        assert_eq!(found.len(), 2 * runs.len(), "{path}");
        // The events were stored before the hook was called.
        let outcomes = recorder.1.lock().unwrap().clone();
        assert_eq!(outcomes.len(), runs.len(), "{path}");
        assert!(
            outcomes.iter().all(|(_, stored)| *stored == found.len()),
            "{path}"
        );
        for run in &runs {
            let stored: Vec<Json> = run.get("events").read().unwrap();
            let [started, ended] = &stored[..] else {
                panic!("{path}: {stored:?}")
            };
            let before = run.number("tokens_before").unwrap();
            assert!(
                started
                    .as_str()
                    .contains(&format!("\"tokensBefore\":{before},"))
            );
            let outcome = run.text("outcome").unwrap();
            assert!(
                ended
                    .as_str()
                    .contains(&format!("\"outcome\":\"{outcome}\""))
            );
        }
        bring();
        assert_eq!(
            (recorder.1.lock().unwrap().len(), events(&store)),
            (runs.len(), found)
        );
        assert_eq!(loopstore_verify::verify(&*store).unwrap().problems, []);
    }
}
