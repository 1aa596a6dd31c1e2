//! A context that is kept from call to call is the one that a build gives, whatever happened between.

use crate::support::amount::amount;
use crate::support::histories::{History, Random, answer, loop_id, open, user};
use loopstore::retention::redact_session;
use loopstore::*;

fn built(history: &History<'_>, leaf: Option<usize>) -> Context {
    let options = BuildOptions {
        leaf: leaf.map(loop_id),
        ..BuildOptions::default()
    };
    build_context_from_session(history.store, &history.session, &options).unwrap()
}

#[test]
fn it_is_what_a_build_gives_after_random_changes() {
    for seed in 0..amount("LOOPSTORE_HISTORIES", 40) {
        let store = SqliteStore::in_memory().unwrap();
        let mut history = History::new(&store, "s");
        let mut random = Random::new(seed);
        let mut of_root = LiveContext::new(&store, history.session.clone()).of_leaf(loop_id(0));
        let mut of_current = LiveContext::new(&store, history.session.clone());
        for step in 0..60 {
            history.step(&mut random);
            // One that was not asked for some time has more to catch up with.
            if random.one_in(2) {
                let live = of_current.refresh().unwrap();
                assert_eq!(*live, built(&history, None), "seed {seed}, step {step}");
            }
            if random.one_in(3) {
                let live = of_root.refresh().unwrap();
                assert_eq!(*live, built(&history, Some(0)), "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn what_was_redacted_is_gone_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("some.db"));
    let history = History::new(&store, "s");
    // As long as its marker, so that no size tells that it is gone.
    let secret = "s3cr3t".repeat(5);
    let address = format!("use postgres://me:{secret}@host/db");
    history.append(0, vec![user(&address, 0), answer("yes", &[], 0)]);
    history.append(0, vec![user("and now", 1), answer("done", &[], 1)]);
    let mut live = LiveContext::new(&store, history.session.clone());
    let before = live.refresh().unwrap();
    let size = (before.tokens, before.bytes);
    assert!(format!("{before:?}").contains(&secret));

    redact_session(&store, &history.session, None).unwrap();
    let after = live.refresh().unwrap();
    assert_eq!((after.tokens, after.bytes), size);
    assert!(!format!("{after:?}").contains(&secret));
    assert_eq!(*after, built(&history, None));
}

#[test]
fn an_agent_that_compacts_keeps_one_within_its_window() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    let window = ContextConfig {
        max_context_tokens: 3_000,
        ..ContextConfig::default()
    };
    let compactor = Compactor::new(&store, CompactionConfig::default(), window);
    let mut live = compactor.live(history.session.clone(), None);
    let mut committed = 0;
    for turn in 0..60 {
        let long = format!("step {turn} {}", "of a long way ".repeat(20));
        history.append(0, vec![user(&long, turn), answer(&long, &[], turn)]);
        let (context, reports) = compactor.refresh(&mut live).unwrap();
        assert!(context.tokens <= 3_000);
        assert_eq!(*context, built(&history, None));
        let is_committed = |report: &CompactReport| {
            report.outcome == loopstore::compact::CompactOutcome::Committed
        };
        committed += reports.iter().filter(|report| is_committed(report)).count();
    }
    assert!(committed > 1);
}

#[test]
fn one_that_does_not_fit_or_is_not_there_is_an_error() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    history.append(0, vec![user("a few words", 0)]);
    let mut live = LiveContext::new(&store, history.session).within(1, None);
    let refused = live.refresh();
    assert!(matches!(
        refused,
        Err(context::BuildError::NeedsCompaction { .. })
    ));
    assert!(live.context().is_none());

    let mut stranger = LiveContext::new(&store, SessionId::new("x' OR 1=1 --").unwrap());
    assert!(stranger.refresh().is_err());
}
