//! The same random histories on both backends: the same contexts, byte by byte.

use loopstore::context::{AsOf, build_context_as_of};
use loopstore::inspect::verify;
use loopstore::*;

use super::histories::{History, Random, loop_id};
use super::server;
use super::views;

/// Everything that a model could be shown of a session, as JSON.
fn contexts(store: &dyn SessionStore, history: &History<'_>) -> Vec<String> {
    let json = |context: &Context| {
        let messages = serde_json::to_string(&context.messages).unwrap();
        format!("{} {} {:?}", messages, context.tokens, context.faults)
    };
    let mut all = Vec::new();
    for at in 0..history.loops {
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            ..BuildOptions::default()
        };
        let built = build_context_from_session(store, &history.session, &options).unwrap();
        all.push(json(&built));
        for turn in 0..history.row(at).totals.turns {
            let moment = AsOf::Turn {
                loop_id: loop_id(at),
                turn,
            };
            let built = build_context_as_of(store, &history.session, moment).unwrap();
            all.push(json(&built));
        }
    }
    all
}

/// Plays one history on both.
fn play(postgres: &dyn Database, seed: u64) {
    let sqlite = SqliteStore::in_memory().unwrap();
    let id = format!("session-{seed}");
    let mut twins = [&sqlite as &dyn SessionStore, postgres as &dyn SessionStore]
        .map(|store| (History::new(store, &id), Random::new(seed)));
    let steps = 12 + seed % 20;
    for _ in 0..steps {
        for (history, random) in &mut twins {
            history.step(random);
        }
        let [(one, _), (two, _)] = &twins;
        assert_eq!(
            (one.loops, one.committed, one.next_id),
            (two.loops, two.committed, two.next_id),
            "seed {seed}"
        );
    }
    let [(one, _), (two, _)] = &twins;
    assert_eq!(
        contexts(&sqlite, one),
        contexts(postgres, two),
        "seed {seed}"
    );
    views::compare(&sqlite, postgres, &one.session);
}

#[test]
fn random_histories_give_the_same_contexts_and_views_on_both_backends() {
    let Some(store) = server::store() else { return };
    let histories = std::env::var("LOOPSTORE_HISTORIES").ok();
    let histories: u64 = histories.map_or(12, |count| count.parse().unwrap());
    for seed in 1..=histories.min(200) {
        play(&store, seed);
    }
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
}
