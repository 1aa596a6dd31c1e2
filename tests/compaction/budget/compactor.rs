//! What an agent calls before each model call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use loopstore::compact::CompactOutcome;
use loopstore::compaction::*;
use loopstore::model::*;
use loopstore::provider::Form;
use loopstore::*;

use crate::budget::stage::*;
use crate::support::histories::{History, Random, answer, result, user};
use crate::support::provider_faults::provider_faults;

fn compactor(store: &SqliteStore, window: u64) -> Compactor<'_> {
    let request = request(window);
    Compactor::new(store, request.config, request.window)
}

fn outcomes(next: &NextCall) -> Vec<CompactOutcome> {
    next.reports.iter().map(|report| report.outcome).collect()
}

#[test]
fn nothing_happens_until_the_trigger_fires() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..4, 400);
    let compactor = compactor(&store, 1_200).for_provider(Form::Anthropic);
    let next = compactor.maybe_compact(&history.session, None).unwrap();
    assert_eq!(outcomes(&next), [CompactOutcome::NotNeeded]);
    assert_eq!(next.context, context(&history));
    work(&history, 4..12, 400);
    let next = compactor.maybe_compact(&history.session, None).unwrap();
    assert_eq!(outcomes(&next), [CompactOutcome::Committed]);
    assert_eq!(next.context, context(&history));
    let request = serde_json::to_value(next.request.unwrap()).unwrap();
    assert_eq!(provider_faults(&request, Form::Anthropic), []);
}

/// Fails, or compacts the session itself while it works.
struct Bad {
    calls: AtomicU32,
    rival: Option<(Arc<SqliteStore>, SessionId)>,
}

impl BlockCompactionStrategy for Bad {
    fn name(&self) -> &str {
        "bad"
    }

    fn keep_compacted(
        &self,
        slice: &LoopSlice<'_>,
        turns: loopstore::extend::Turns,
        config: &CompactionConfig,
    ) -> Result<Summary, StrategyError> {
        let first = self.calls.fetch_add(1, Ordering::Relaxed) == 0;
        match &self.rival {
            None => Err(StrategyError::Failed("no idea".into())),
            Some((store, session)) => {
                if first {
                    compact_session_loops(&**store, session, &request(1_300)).unwrap();
                }
                DefaultBlockCompaction.keep_compacted(slice, turns, config)
            }
        }
    }
}

#[test]
fn a_strategy_that_fails_gives_way_to_the_digest() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..12, 400);
    let mut request = request(1_200);
    request.config.block_strategy = Arc::new(Bad {
        calls: AtomicU32::new(0),
        rival: None,
    });
    let compactor = Compactor::new(&store, request.config, request.window);
    let next = compactor.maybe_compact(&history.session, None).unwrap();
    assert_eq!(
        outcomes(&next),
        [CompactOutcome::Failed, CompactOutcome::Committed]
    );
    assert_eq!(next.reports[0].error.as_deref(), Some("no idea"));
    assert_eq!(next.reports[1].strategy, "digest");
}

#[test]
fn a_lost_race_is_run_again() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let history = History::new(&*store, "s");
    work(&history, 0..12, 400);
    let mut request = request(1_200);
    request.config.block_strategy = Arc::new(Bad {
        calls: AtomicU32::new(0),
        rival: Some((Arc::clone(&store), history.session.clone())),
    });
    let compactor = Compactor::new(&*store, request.config, request.window);
    let next = compactor.maybe_compact(&history.session, None).unwrap();
    assert_eq!(
        outcomes(&next),
        [CompactOutcome::Conflict, CompactOutcome::NotNeeded],
        "the other one was enough"
    );
    assert!(next.context.tokens <= 1_020);
}

#[test]
fn few_messages_that_are_too_large_are_compacted_all_the_same() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..2, 40_000);
    let window = ContextConfig {
        max_context_tokens: 18_000,
        ..ContextConfig::default()
    };
    let compactor = Compactor::new(&store, CompactionConfig::reserves(), window);
    let next = compactor.maybe_compact(&history.session, None).unwrap();
    assert_eq!(
        outcomes(&next),
        [CompactOutcome::NotNeeded, CompactOutcome::Committed]
    );
    assert!(next.context.tokens <= 5_600, "{}", next.context.tokens);
}

#[test]
fn what_nothing_fits_is_a_typed_error_each_time() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    history.append(
        0,
        vec![user(&"look ".repeat(1_000), 0), answer("yes", &[], 0)],
    );
    let compactor = compactor(&store, 1_000);
    for _ in 0..3 {
        let error = compactor.maybe_compact(&history.session, None).unwrap_err();
        let CompactorError::BudgetTooSmall(error) = error else {
            panic!("{error}");
        };
        assert_eq!((error.needed, error.budget), (1_259, 1_000));
    }
    let runs = store
        .query("SELECT count(*) FROM v_compaction_runs")
        .unwrap();
    assert_eq!(format!("{:?}", runs.rows), "[[1]]", "tried once");
}

/// An agent that asks before each call: prompts, calls with outputs of any size, answers.
#[test]
fn an_agent_never_sees_more_than_its_window_nor_what_a_provider_refuses() {
    const WINDOW: u64 = 32_000;
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    let mut random = Random::new(7);
    let window = ContextConfig {
        max_context_tokens: WINDOW,
        ..ContextConfig::default()
    };
    let compactor = Compactor::new(&store, CompactionConfig::default(), window);
    let (mut turns, mut committed) = (0, 0);
    for at in 0..20 {
        if at > 0 {
            history.end_loop(at - 1);
            history.start_loop(Some(at - 1), None);
        }
        for turn in 0..15 {
            if turn % 8 == 0 {
                history.append(at, vec![user(&format!("do {at} {turn}"), turn)]);
            }
            let next = compactor.maybe_compact(&history.session, None).unwrap();
            assert!(next.context.tokens <= WINDOW);
            for form in Form::ALL {
                let request = provider::write(form, &next.context).unwrap();
                assert_eq!(provider_faults(&request, form), []);
            }
            committed += usize::from(outcomes(&next).contains(&CompactOutcome::Committed));
            let call = format!("c{at}-{turn}");
            let bytes = [200, 600, 1_500, 6_000][random.below(4).min(random.below(8)) as usize];
            let text = format!("found {at} {turn} {}", "value ".repeat(bytes / 6));
            history.append(at, vec![answer("looking", &[&call], turn)]);
            history.append(at, vec![result(&call, vec![Content::text(text)], turn)]);
            turns += 1;
        }
    }
    assert!(committed >= 2, "{committed}");
    assert!(committed * 20 <= turns, "{committed} in {turns} turns");
    assert!(inspect::verify(&store).unwrap().ok);
}
