//! Forks within a turn, compared with a twin whose parent never contained more than the fork keeps.

use loopstore::extend::session;
use loopstore::extend::session::Fork;
use loopstore::{extend as store, *};
use loopstore_testing::whole::assert_whole;
use proptest::prelude::*;

use crate::support::histories::{History, Random, answer, user};

/// Returns what is compared of two histories.
fn compared(
    history: &History<'_>,
    database: &dyn Database,
    leaf: &str,
) -> (Vec<AgentMessage>, String) {
    let options = BuildOptions {
        leaf: Some(LoopId::new(leaf).unwrap()),
        ..BuildOptions::default()
    };
    let context = build_context_from_session(history.store, &history.session, &options).unwrap();
    let sql = format!(
        "SELECT loop_id, section, from_turn, to_turn, messages, tokens FROM v_context
         WHERE leaf_loop_id = '{leaf}' ORDER BY ordinal"
    );
    let rows = database.query_within(&sql, Default::default()).unwrap();
    let mut rows = format!("{:?}", rows.records());
    rows.push_str(&format!("{:?} {}", context.parts, context.tokens));
    (context.messages, rows)
}

/// Begins the same history in two stores; in the second, the parent of the last loop ends at the fork point.
fn twins(seed: u64) {
    let (one, two) = (
        SqliteStore::in_memory().unwrap(),
        SqliteStore::in_memory().unwrap(),
    );
    let mut random = Random::new(seed);
    let (mut cut, mut twin) = (History::new(&one, "s"), History::new(&two, "s"));
    let loops = 1 + random.below(3) as usize;
    for at in 0..loops {
        if at > 0 {
            cut.end_loop(at - 1);
            twin.end_loop(at - 1);
            cut.start_loop(Some(at - 1), None);
            twin.start_loop(Some(at - 1), None);
        }
        for turn in 0..1 + random.below(5) as u32 {
            let messages = cut.random_turn(&mut random, turn + 50);
            if at + 1 < loops {
                twin.append(at, messages.clone());
            }
            cut.append(at, messages);
        }
    }
    let parent = loops - 1;
    let row = cut.row(parent);
    let mut places = Vec::new();
    store::read(&one, |read| {
        read.sizes(row.key, 0..row.totals.next_seq, &mut |size| {
            places.extend(size.turn.map(|turn| (turn, size.seq)));
            Ok(std::ops::ControlFlow::Continue(()))
        })
    })
    .unwrap();
    if places.is_empty() {
        return;
    }
    let (turn, seq) = places[random.below(places.len() as u64) as usize];
    // The parent in the twin contains only what the fork keeps, and ends there.
    let mut kept = Vec::new();
    store::read(&one, |read| {
        read.messages(row.key, 0..seq + 1, &mut |row| {
            kept.push(store::decode(read, row.body)?);
            Ok(std::ops::ControlFlow::Continue(()))
        })
    })
    .unwrap();
    twin.append(parent, kept);
    twin.end_loop(parent);
    let fork = Fork {
        loop_id: LoopId::new(format!("loop-{loops}")).unwrap(),
        turn,
        seq: Some(seq),
        tag: "side".into(),
    };
    store::write(&one, |write| session::fork(write, row.key, &fork)).unwrap();
    cut.loops += 1;
    twin.start_loop(Some(parent), None);
    let leaf = format!("loop-{loops}");
    for turn in 0..1 + random.below(4) as u32 {
        let messages = cut.random_turn(&mut random, turn + 50);
        cut.append(loops, messages.clone());
        twin.append(loops, messages);
        assert_eq!(
            compared(&cut, &one, &leaf),
            compared(&twin, &two, &leaf),
            "seed {seed}"
        );
        let keep = (random.below(3) as u32, random.below(5) as u32);
        let force = random.one_in(2);
        let (a, b) = (
            cut.compact(loops, keep, force),
            twin.compact(loops, keep, force),
        );
        for key in [
            "outcome",
            "tokens_before",
            "tokens_after",
            "messages_after",
            "bytes_after",
            "fallback",
        ] {
            assert_eq!(a[key], b[key], "seed {seed}: {key}\n{a}\n{b}");
        }
        assert_eq!(
            compared(&cut, &one, &leaf),
            compared(&twin, &two, &leaf),
            "seed {seed}"
        );
        if random.one_in(4) {
            let redo = random.one_in(3);
            assert_eq!(cut.flip(loops, redo), twin.flip(loops, redo), "seed {seed}");
            assert_eq!(
                compared(&cut, &one, &leaf),
                compared(&twin, &two, &leaf),
                "seed {seed}"
            );
        }
    }
    assert_whole(&one);
    // The parent continues, without an effect on the branch.
    let before = compared(&cut, &one, &leaf);
    cut.append(
        parent,
        vec![user("And on?", 90), answer("And on.", &[], 90)],
    );
    cut.compact(parent, (1, 1), true);
    assert_eq!(compared(&cut, &one, &leaf), before, "seed {seed}");
    assert_whole(&one);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_branch_from_within_a_turn_is_that_of_a_parent_that_ended_there(seed in any::<u64>()) {
        twins(seed);
    }
}
