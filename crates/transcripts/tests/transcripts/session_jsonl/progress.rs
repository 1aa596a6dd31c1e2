//! A session that grew adds only new rows; one that diverged is rejected.

use loopstore::SqliteStore;

use crate::session_jsonl::stage::{
    all_that_is_seen, exported, grown, imported, refused, rows, sound,
};
use crate::support::histories::{History, Random, answer, user};

#[test]
fn a_grown_session_adds_only_what_is_new() {
    for seed in 100..108 {
        println!("seed {seed}");
        let (store, other) = (
            SqliteStore::in_memory().unwrap(),
            SqliteStore::in_memory().unwrap(),
        );
        let mut random = Random::new(seed);
        let mut history = grown(&store, &mut random, 10);
        let mut exports = vec![exported(&store, &history.session)];
        imported(&other, &exports[0]).unwrap();
        for _ in 0..5 {
            for _ in 0..8 {
                history.step(&mut random);
            }
            let text = exported(&store, &history.session);
            imported(&other, &text).unwrap();
            assert!(exported(&other, &history.session) == text);
            exports.push(text);
        }
        let (counted, loops) = (rows(&other), history.loops);
        let seen = all_that_is_seen(&store, &history.session, loops);
        assert_eq!(all_that_is_seen(&other, &history.session, loops), seen);
        assert_eq!(rows(&store), counted);
        sound(&other);
        // Older exports add nothing.
        for text in &exports {
            assert_eq!(imported(&other, text).unwrap().added_messages, 0);
        }
        assert_eq!(rows(&other), counted);
        assert!(exported(&other, &history.session) == exports[5]);
    }
}

#[test]
fn a_session_that_went_on_otherwise_is_refused() {
    let (store, other) = (
        SqliteStore::in_memory().unwrap(),
        SqliteStore::in_memory().unwrap(),
    );
    let history = History::new(&store, "s");
    history.append(0, vec![user("one", 0), answer("two", &[], 0)]);
    imported(&other, &exported(&store, &history.session)).unwrap();
    let there = grown_there(&other);
    history.append(0, vec![user("five", 1), answer("six", &[], 1)]);
    history.append(0, vec![user("seven", 2), answer("eight", &[], 2)]);
    let before = (rows(&other), exported(&other, &history.session));
    let reason = refused(&other, &exported(&store, &history.session));
    assert!(reason.contains("went on differently"), "{reason}");
    // The other direction fails too: the older file has other messages.
    let reason = refused(&store, &there);
    assert!(reason.contains("went on differently"), "{reason}");
    assert_eq!((rows(&other), exported(&other, &history.session)), before);
}

/// Continues the session in another database.
fn grown_there(store: &SqliteStore) -> String {
    use loopstore::extend::{self as store, append};
    let id = loopstore::SessionId::new("s").unwrap();
    store::write(store, |write| {
        let session = write.session(&id)?.unwrap();
        let key = session.current_loop.unwrap();
        let messages = vec![user("three", 1).into(), answer("four", &[], 1).into()];
        append::append(write, key, messages, &loopstore::HeuristicTokenCounter)
    })
    .unwrap();
    exported(store, &id)
}

#[test]
fn a_run_that_the_newer_file_does_not_know_is_refused() {
    let (store, other) = (
        SqliteStore::in_memory().unwrap(),
        SqliteStore::in_memory().unwrap(),
    );
    let mut history = History::new(&store, "s");
    for turn in 0..8 {
        let text = format!("{turn} {}", "word ".repeat(60));
        history.append(0, vec![user(&text, turn), answer(&text, &[], turn)]);
    }
    let text = exported(&store, &history.session);
    imported(&other, &text).unwrap();
    history.compact(0, (1, 1), true);
    let compacted = exported(&store, &history.session);
    // The other database adds a run, this one adds two turns.
    let request = loopstore::CompactRequest {
        policy: loopstore::Policy::of(
            loopstore::ContextConfig::default(),
            loopstore::CompactionConfig {
                keep_first_turns: 0,
                keep_recent: loopstore::KeepRecent::Turns(2),
                ..loopstore::CompactionConfig::default()
            },
        ),
        trigger: loopstore::CompactTrigger::Force,
        ..loopstore::CompactRequest::default()
    };
    loopstore::compact_session_loops(&other, &history.session, &request).unwrap();
    let reason = refused(&other, &compacted);
    assert!(reason.contains("went on differently"), "{reason}");
    for turn in 8..10 {
        history.append(0, vec![user("more", turn), answer("yes", &[], turn)]);
    }
    let reason = refused(&other, &exported(&store, &history.session));
    assert!(reason.contains("went on differently"), "{reason}");
}
