//! The record of an attempt that panics: its request and its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loopstore::compact::{CompactOutcome, CompactReport};
use loopstore::*;
use loopstore_verify::verify;

/// Panics in every method.
struct Panics;

impl BlockCompactionStrategy for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn keep_compacted(
        &self,
        _: &LoopSlice<'_>,
        _: Turns,
        _: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        panic!("no text today")
    }
}

#[derive(Default)]
struct Hook {
    before: bool,
    after: bool,
    calls: AtomicUsize,
}

impl CompactionHook for Hook {
    fn before(&self, _: &CompactionStarted) -> Decision {
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(!self.before, "before, and no more");
        Decision::Proceed
    }

    fn after(&self, _: &CompactionEnded) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(!self.after, "after, and no more");
    }
}

struct SummarizerThatPanics;

impl Summarizer for SummarizerThatPanics {
    fn name(&self) -> &str {
        "broken"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        panic!("no model today")
    }
}

fn chat() -> (Store, SessionHandle) {
    let store = Store::in_memory().unwrap();
    let chat = store.session("weather").unwrap();
    let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
    chat.append([Message::user("How is the weather?")]).unwrap();
    chat.append((0..40).map(report)).unwrap();
    (store, chat)
}

fn forced() -> CompactRequest {
    CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    }
}

/// Returns strategy, outcome and error of all runs in order.
fn runs(store: &Store) -> Vec<(String, String, String)> {
    let sql = "SELECT strategy, outcome, coalesce(error, '') AS error FROM v_compaction_runs
        ORDER BY CASE outcome WHEN 'failed' THEN 0 ELSE 1 END";
    let rows = SqliteStore::downcast(store.database())
        .unwrap()
        .query(sql)
        .unwrap();
    let text =
        |row: &loopstore::extend::sqlite::Record, name: &str| row.text(name).unwrap_or_default();
    rows.records()
        .iter()
        .map(|row| {
            (
                text(row, "strategy"),
                text(row, "outcome"),
                text(row, "error"),
            )
        })
        .collect()
}

/// Checks that the store works as if the attempt had not happened.
fn is_whole(store: &Store, chat: &SessionHandle) {
    chat.append([Message::user("And now?"), Message::assistant("Still rain.")])
        .unwrap();
    let report = verify(store.database()).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
    assert!(chat.context().unwrap().messages.len() > 2);
}

fn compact(chat: &SessionHandle, request: &CompactRequest) -> CompactReport {
    let report = chat.compact(request).unwrap();
    assert_eq!(report.outcome, CompactOutcome::Committed);
    report
}

#[test]
fn a_strategy_that_panics_fails_its_run_and_the_digest_stands_in() {
    let (store, chat) = chat();
    let mut request = forced();
    request.policy.compaction.block_strategy = Some(Arc::new(Panics));
    let report = compact(&chat, &request);
    assert_eq!(report.strategy, "digest");
    assert_eq!(report.fallback.as_deref(), Some("digest"));
    assert!(report.error.unwrap().ends_with("panicked: no text today"));
    let runs = runs(&store);
    let [failed, committed] = &runs[..] else {
        panic!("{runs:?}");
    };
    assert_eq!((&*failed.0, &*failed.1), ("panics", "failed"));
    assert!(failed.2.contains("no text today"), "{failed:?}");
    assert_eq!((&*committed.0, &*committed.1), ("digest", "committed"));
    is_whole(&store, &chat);
}

#[test]
fn a_hook_that_panics_does_not_reach_the_agent() {
    let (store, chat) = chat();
    let mut request = forced();
    let hook = Arc::new(Hook {
        before: true,
        ..Hook::default()
    });
    request.policy.hooks.push(hook);
    compact(&chat, &request);
    assert_eq!(runs(&store)[0].1, "failed");
    is_whole(&store, &chat);
    let mut request = forced();
    let hook = Arc::new(Hook {
        after: true,
        ..Hook::default()
    });
    request.policy.hooks.push(hook.clone());
    let report = chat.compact(&request).unwrap();
    assert!(report.error.unwrap().contains("after, and no more"));
    assert_eq!(hook.calls.load(Ordering::Relaxed), 2);
    is_whole(&store, &chat);
}

#[test]
fn a_summariser_that_panics_is_replaced_by_the_digest() {
    let (store, chat) = chat();
    let mut request = forced();
    let summarizer = Arc::new(SummarizerThatPanics);
    request.policy.compaction.block_strategy = Some(Arc::new(SummarizeCompaction::new(summarizer)));
    let report = compact(&chat, &request);
    assert_eq!(report.fallback.as_deref(), Some("digest"));
    assert_eq!(runs(&store).len(), 1);
    is_whole(&store, &chat);
}

#[test]
fn a_run_says_what_was_asked_for_and_what_was_reached() {
    let (store, chat) = chat();
    let config = |name: &str| {
        let sql = format!("SELECT {name} AS config FROM v_compaction_runs ORDER BY run_id");
        let rows = SqliteStore::downcast(store.database())
            .unwrap()
            .query(&sql)
            .unwrap();
        let text = rows.records().pop()?.text("config")?;
        Some(serde_json::from_str::<serde_json::Value>(&text).unwrap())
    };
    let mut request = forced();
    request.policy.window.max_context_tokens = 2_000;
    let report = compact(&chat, &request);
    assert!(report.fallback.is_some(), "it fits as asked: {report:?}");
    let (asked, reached) = (config("config").unwrap(), config("reached").unwrap());
    assert_eq!(
        asked["keep_recent"],
        request.policy.compaction.keep_recent.to_string()
    );
    assert_ne!(asked, reached);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["reached"], reached);
    request.policy.window.max_context_tokens = 128_000;
    compact(&chat, &request);
    assert_eq!(config("reached"), None);
    is_whole(&store, &chat);
}
