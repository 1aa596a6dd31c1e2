//! The algebra of `merge`, on random histories: the order of the databases makes no difference.

use loopstore::extend::{SessionStore, read};
use loopstore::model::SessionId;
use loopstore::{Database, Store};
use loopstore_testing::amount::amount;
use loopstore_testing::histories::{History, Random};

use crate::document::SessionText;
use crate::merge::merge;
use crate::rows::read_text;
use crate::{SyncOptions, sync};

fn text_in(store: &Store, id: &SessionId) -> SessionText {
    let database: &dyn Database = store.database();
    let counter = SessionStore::counter(database).name();
    let text = read(database, |read| {
        Ok(read_text(read, counter, id).ok().flatten())
    });
    text.unwrap().unwrap()
}

/// Returns states of a session that three databases continued after they had the same one.
fn states(seed: u64) -> (SessionId, [SessionText; 3]) {
    let id = SessionId::new("one").unwrap();
    let stores: [Store; 3] = std::array::from_fn(|_| Store::in_memory().unwrap());
    let mut random = Random::new(seed);
    let mut history = History::new(stores[0].database(), "one");
    (0..6).for_each(|_| history.step(&mut random));
    let loops = history.loops;
    for other in &stores[1..] {
        let options = SyncOptions::default();
        let (a, b) = (stores[0].database(), other.database());
        assert_eq!(sync(a, b, &options, &mut |_, _| {}).unwrap().sent.len(), 1);
    }
    for (at, store) in (1..).zip(&stores) {
        let mut history = History {
            store: store.database(),
            session: id.clone(),
            loops,
            committed: 0,
            next_id: at * 1_000_000,
            open: Vec::new(),
        };
        (0..random.below(6)).for_each(|_| history.step(&mut random));
    }
    let texts = stores.each_ref().map(|store| text_in(store, &id));
    (id, texts)
}

/// Fails with the first line that differs.
fn same(a: &SessionText, b: &SessionText, seed: u64) {
    for (at, (a, b)) in a.lines.iter().zip(&b.lines).enumerate() {
        assert_eq!(a, b, "seed {seed}, line {at}");
    }
    assert_eq!(a.lines.len(), b.lines.len(), "seed {seed}");
}

#[test]
fn a_union_is_the_same_in_any_order_and_holds_both() {
    // A loop that continues the very turn in which the databases differ, without a message of its own, may be on
    // either side.
    let (mut refused, mut differing) = (0, 0);
    let trials = amount("LOOPSTORE_SYNC_TRIALS", 5);
    for seed in 0..trials {
        let (id, [a, b, c]) = states(seed);
        let union =
            |a: &SessionText, b: &SessionText| merge(&id, a, b, None).map(|union| union.text).ok();
        let ab = union(&a, &b);
        let (Some(ab), Some(ba)) = (ab, union(&b, &a)) else {
            refused += 1;
            continue;
        };
        same(&ab, &ba, seed);
        same(&union(&a, &a).unwrap(), &a, seed);
        same(&union(&ab, &a).unwrap(), &ab, seed);
        same(&union(&b, &ab).unwrap(), &ab, seed);
        // A third database receives the union, and has everything then.
        let (Some(all), Some(ac), Some(bc)) = (union(&ab, &c), union(&a, &c), union(&b, &c)) else {
            refused += 1;
            continue;
        };
        same(&union(&all, &c).unwrap(), &all, seed);
        same(&union(&ab, &all).unwrap(), &all, seed);
        for (pair, third) in [(&ac, &b), (&bc, &a)] {
            let Some(other) = union(pair, third) else {
                refused += 1;
                continue;
            };
            same(&other, &union(third, pair).unwrap(), seed);
            differing += u64::from(other != all);
        }
    }
    assert!(
        differing * 20 <= trials,
        "{differing} unions of {trials} depend on the order"
    );
    assert!(refused * 4 <= trials, "{refused} of {trials} were refused");
}
