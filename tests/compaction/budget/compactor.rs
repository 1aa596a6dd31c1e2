//! Preparing a context before each model call.

use std::sync::atomic::{AtomicU32, Ordering};

use loopstore::compact::CompactOutcome;
use loopstore::compaction::*;
use loopstore::model::*;
use loopstore::provider::Form;
use loopstore::*;

use crate::budget::stage::*;
use crate::support::histories::{History, Random, answer, result, user};
use crate::support::provider_faults::provider_faults;

/// The policy of [`request`].
fn policy(window: u64) -> Policy {
    Policy::new(window)
        .keep_first(1)
        .keep_recent(KeepRecent::Turns(4))
        .max_summary_tokens(100)
}

fn chat(store: &Store, policy: Policy) -> SessionHandle {
    store.session("s").unwrap().with_policy(policy)
}

fn outcomes(ready: &Prepared) -> Vec<CompactOutcome> {
    let reports = ready.compactions.iter();
    reports.map(|report| report.outcome).collect()
}

#[test]
fn nothing_happens_until_the_trigger_fires() {
    let store = Store::in_memory().unwrap();
    let history = History::new(store.database(), "s");
    work(&history, 0..4, 400);
    let chat = chat(&store, policy(1_200));
    let ready = chat.prepare().unwrap();
    assert_eq!(outcomes(&ready), []);
    assert_eq!(*ready.context, context(&history));
    work(&history, 4..12, 400);
    let ready = chat.prepare().unwrap();
    assert_eq!(outcomes(&ready), [CompactOutcome::Committed]);
    assert_eq!(*ready.context, context(&history));
    let request = ready.to(Form::Anthropic).unwrap();
    assert_eq!(provider_faults(&request, Form::Anthropic), []);
}

/// Fails, or compacts the session itself while it runs.
struct FaultyStrategy {
    calls: AtomicU32,
    rival: Option<SessionHandle>,
}

impl BlockCompactionStrategy for FaultyStrategy {
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
            Some(rival) => {
                if first {
                    rival.compact(&request(1_300)).unwrap();
                }
                DefaultBlockCompaction.keep_compacted(slice, turns, config)
            }
        }
    }
}

#[test]
fn a_strategy_that_fails_gives_way_to_the_digest() {
    let store = Store::in_memory().unwrap();
    let history = History::new(store.database(), "s");
    work(&history, 0..12, 400);
    let bad = FaultyStrategy {
        calls: AtomicU32::new(0),
        rival: None,
    };
    let ready = chat(&store, policy(1_200).strategy(bad)).prepare().unwrap();
    assert_eq!(
        outcomes(&ready),
        [CompactOutcome::Failed, CompactOutcome::Committed]
    );
    assert_eq!(ready.compactions[0].error.as_deref(), Some("no idea"));
    assert_eq!(ready.compactions[1].strategy, "digest");
}

#[test]
fn a_lost_race_is_run_again() {
    let store = Store::in_memory().unwrap();
    let history = History::new(store.database(), "s");
    work(&history, 0..12, 400);
    let bad = FaultyStrategy {
        calls: AtomicU32::new(0),
        rival: Some(store.session("s").unwrap()),
    };
    let ready = chat(&store, policy(1_200).strategy(bad)).prepare().unwrap();
    assert_eq!(
        outcomes(&ready),
        [CompactOutcome::Conflict],
        "the other one was enough"
    );
    assert!(ready.context.tokens <= 1_020);
}

#[test]
fn few_messages_that_are_too_large_are_compacted_all_the_same() {
    let store = Store::in_memory().unwrap();
    let history = History::new(store.database(), "s");
    work(&history, 0..2, 40_000);
    let policy = Policy::new(18_000).compaction_policy(CompactionPolicy::reserves());
    let ready = chat(&store, policy).prepare().unwrap();
    assert_eq!(outcomes(&ready), [CompactOutcome::Committed]);
    assert!(ready.context.tokens <= 5_600, "{}", ready.context.tokens);
}

#[test]
fn what_nothing_fits_is_a_typed_error_each_time() {
    let store = Store::in_memory().unwrap();
    let history = History::new(store.database(), "s");
    // A prompt without an answer is never compacted.
    history.append(0, vec![user(&"look ".repeat(1_000), 0)]);
    let chat = chat(&store, policy(1_000));
    for _ in 0..3 {
        let error = chat.prepare().unwrap_err();
        let Error::BudgetTooSmall { needed, budget, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((needed, budget), (1_254, 1_000));
    }
    let runs = SqliteStore::downcast(store.database())
        .unwrap()
        .query("SELECT count(*) FROM v_compaction_runs")
        .unwrap();
    assert_eq!(format!("{:?}", runs.rows), "[[1]]", "tried once");
}

/// An agent prepares before each call: prompts, calls with outputs of any size, answers.
#[test]
fn an_agent_never_sees_more_than_its_window_nor_what_a_provider_refuses() {
    const WINDOW: u64 = 32_000;
    let store = Store::in_memory().unwrap();
    let mut history = History::new(store.database(), "s");
    let mut random = Random::new(7);
    let chat = chat(&store, Policy::new(WINDOW));
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
            let ready = chat.prepare().unwrap();
            assert!(ready.context.tokens <= WINDOW);
            for form in Form::ALL {
                let request = provider::write(form, &ready.context).unwrap();
                assert_eq!(provider_faults(&request, form), []);
            }
            committed += usize::from(outcomes(&ready).contains(&CompactOutcome::Committed));
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
    assert!(loopstore_verify::verify(store.database()).unwrap().ok);
}
