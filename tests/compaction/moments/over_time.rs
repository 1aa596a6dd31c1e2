//! The sizes of contexts at many ticks, computed at once, equal those computed one by one.

use loopstore::SqliteStore;
use loopstore::extend::active_blocks::ChainView;
use loopstore::extend::{self as store, SizesOverTime, leaf_of, session_of, shown_chain};

use crate::support::amount::amount;
use crate::support::histories::{History, Random, loop_id};

/// Compares all ticks of all leaves.
fn compare(history: &History<'_>) {
    store::read(history.store, |read| {
        let owner = session_of(read, &history.session)?;
        let sizes = SizesOverTime::of(read, owner.key)?;
        for at in 0..history.loops {
            let leaf = leaf_of(read, &owner, Some(&loop_id(at)))?;
            for tick in (0..=owner.tick).map(Some).chain([None]) {
                let view = ChainView {
                    at: tick,
                    ..ChainView::default()
                };
                let alone = shown_chain(read, &leaf, view)?.size;
                let (among_all, _) = sizes.size(&leaf, view)?;
                assert_eq!(among_all, alone, "loop {at} at {tick:?}");
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_sizes_of_random_histories_are_those_of_each_moment() {
    for seed in 0..amount("LOOPSTORE_HISTORIES", 12) {
        let store = SqliteStore::in_memory().unwrap();
        let (mut history, mut random) = (History::new(&store, "s"), Random::new(seed));
        for _ in 0..40 {
            history.step(&mut random);
        }
        compare(&history);
    }
}

#[test]
fn so_are_those_of_runs_that_were_undone_again_and_again() {
    let store = SqliteStore::in_memory().unwrap();
    let (mut history, mut random) = (History::new(&store, "s"), Random::new(7));
    for turn in 0..8 {
        let messages = history.random_turn(&mut random, turn);
        history.append(0, messages);
    }
    for round in 0..30 {
        history.compact(0, (1, 2), true);
        // Some runs stay live below many that do not.
        if round % 10 > 1 {
            history.flip(0, false);
        }
        if round % 7 == 0 {
            history.flip(0, true);
        }
    }
    compare(&history);
}
