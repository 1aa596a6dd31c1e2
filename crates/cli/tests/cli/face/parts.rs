//! The sizes of a context's parts from stored totals equal those of the context that is built.

use loopstore::context::context_parts;
use loopstore::{BuildOptions, OlderLoops, SqliteStore, build_context_from_session};

use crate::support::histories::{History, Random, loop_id};

#[test]
fn sizes_give_the_parts_that_a_build_gives() {
    let mut compared = 0;
    for seed in 0..12 {
        let store = SqliteStore::in_memory().unwrap();
        let mut random = Random::new(seed);
        let mut history = History::new(&store, "s");
        for _ in 0..30 {
            history.step(&mut random);
        }
        for at in 0..40 {
            for older_loops in [None, Some(OlderLoops::Skip)] {
                let options = BuildOptions {
                    leaf: Some(loop_id(at)),
                    older_loops,
                    ..BuildOptions::default()
                };
                let id = "s".parse().unwrap();
                let Ok(context) = build_context_from_session(&store, &id, &options) else {
                    continue;
                };
                let parts = context_parts(&store, &id, &options).unwrap();
                assert_eq!(parts, context.parts, "seed {seed}, loop {at}");
                compared += parts.len();
            }
        }
    }
    assert!(compared > 100, "{compared}");
}
