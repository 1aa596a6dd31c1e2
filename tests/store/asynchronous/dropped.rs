//! Futures that are dropped at random points: a whole turn or none, and each acknowledged turn once.

use std::time::Duration;

use crate::support::asynchronous::*;
use crate::support::histories::Random;

#[test]
fn a_dropped_append_leaves_a_whole_turn_or_none() {
    let (store, runtime) = (store_with(&["l"]), runtime());
    let (mut random, mut ledger) = (Random::new(7), TurnLedger::default());
    {
        let (_inside, chat) = (runtime.enter(), chat(&store));
        for at in 0..200 {
            let append = chat.append(turn("l", at));
            ledger.drive(&mut random, at, append);
        }
    }
    // Waits for the tasks that still run on the pool.
    drop(runtime);
    ledger.check(&stored(&store, "l"));
}

#[test]
fn a_runtime_that_ends_leaves_whole_turns() {
    let store = store_with(&["l"]);
    for round in 0..20 {
        let runtime = runtime();
        let inside = runtime.enter();
        let chat = chat(&store);
        for at in 0..5 {
            let append = chat.append(turn("l", round * 5 + at));
            let _ = poll_for(append, Duration::ZERO);
        }
        drop(inside);
        runtime.shutdown_background();
    }
    // A write waits for those that are still running.
    runtime()
        .block_on(chat(&store).append(turn("l", 1000)))
        .unwrap();
    let stored = stored(&store, "l");
    assert!(stored.chunks(3).all(|turn| turn == [turn[0]; 3]));
    assert!(stored.contains(&1000));
}
