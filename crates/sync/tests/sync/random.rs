//! Random histories in two and three databases, brought together in random order.

use loopstore::*;
use loopstore_sync::{SyncOptions, sync};
use loopstore_testing::amount::{amount, from_variable};
use loopstore_testing::histories::{History, Random};
use loopstore_testing::synced_histories;

use crate::stage::{assert_same, both, contexts, ids, lines, loops, memory, messages, runs};

/// Continues the history of a session in a database.
fn continue_in(store: &Store, id: &str, random: &mut Random, steps: u64, texts: u64) {
    let session = SessionId::new(id).unwrap();
    if !ids(store).contains(&session) {
        let mut history = History::new(store.database(), id);
        history.next_id = texts;
        (0..steps).for_each(|_| history.step(random));
        return;
    }
    let own = loops(store, &session);
    let own = own.iter().filter(|id| !id.as_str().contains('~')).count();
    let mut history = History {
        store: store.database(),
        session,
        loops: own,
        committed: 0,
        next_id: texts,
        open: Vec::new(),
    };
    (0..steps).for_each(|_| history.step(random));
}

/// One trial: `count` databases that continue the same sessions, each on its own, between syncs.
fn trial(seed: u64, count: usize) -> u64 {
    let stores: Vec<Store> = (0..count).map(|_| memory()).collect();
    let mut random = Random::new(seed);
    let names = ["one", "two", "three"];
    let mut left = 0;
    for round in 0..4 {
        for (at, store) in stores.iter().enumerate() {
            for name in names {
                if random.one_in(2) {
                    let texts = (round * 10 + at as u64 + 1) * 1_000_000;
                    let steps = 1 + random.below(6);
                    continue_in(store, name, &mut random, steps, texts);
                }
            }
        }
        let here = random.below(count as u64) as usize;
        let there = (here + 1 + random.below(count as u64 - 1) as usize) % count;
        let before = [here, there].map(|at| state(&stores[at]));
        let report = both(&stores[here], &stores[there]);
        left += report.failed.len() as u64;
        for failed in &report.failed {
            eprintln!(
                "seed {seed}, round {round}: {}: {}",
                failed.session_id, failed.reason
            );
        }
        if report.failed.is_empty() {
            assert_same(&stores[here], &stores[there]);
            nothing_is_lost(&before, &stores[here]);
            let again = both(&stores[here], &stores[there]);
            assert_eq!(
                again.unchanged as usize,
                ids(&stores[here]).len(),
                "seed {seed}: {again:?}"
            );
        }
    }
    if left > 0 {
        return left;
    }
    // Two rounds over all pairs bring everything everywhere.
    for _ in 0..2 {
        for there in 1..count {
            let report = both(&stores[0], &stores[there]);
            left += report.failed.len() as u64;
            for failed in &report.failed {
                eprintln!("seed {seed}: {}: {}", failed.session_id, failed.reason);
            }
        }
    }
    if left == 0 {
        stores[1..]
            .iter()
            .for_each(|store| assert_same(&stores[0], store));
    }
    left
}

struct State {
    id: SessionId,
    messages: Vec<String>,
    runs: Vec<String>,
    contexts: Vec<String>,
}

fn state(store: &Store) -> Vec<State> {
    let of = |id: SessionId| State {
        messages: messages(store, &id).into_keys().collect(),
        runs: runs(store, &id).into_iter().collect(),
        contexts: contexts(store, &id).into_values().collect(),
        id,
    };
    ids(store).into_iter().map(of).collect()
}

/// Every message and every run of either database is there, and every message once.
fn nothing_is_lost(before: &[Vec<State>; 2], store: &Store) {
    let mut changed = 0;
    for state in before.iter().flatten() {
        let now = messages(store, &state.id);
        for digest in &state.messages {
            assert!(
                now.contains_key(digest),
                "a message of {} is lost",
                state.id
            );
        }
        let now = runs(store, &state.id);
        for run in &state.runs {
            assert!(now.contains(run), "run {run} of {} is lost", state.id);
        }
        let contexts: Vec<String> = contexts(store, &state.id).into_values().collect();
        changed += state
            .contexts
            .iter()
            .filter(|one| !contexts.contains(one))
            .count();
    }
    if from_variable("LOOPSTORE_SYNC_SHOWN").is_some() && changed > 0 {
        eprintln!("{changed} contexts are different now");
    }
}

#[test]
fn two_databases_converge_whatever_each_of_them_did() {
    let (mut trials, mut left) = (0, 0);
    for seed in 0..amount("LOOPSTORE_SYNC_TRIALS", 12) {
        trials += 1;
        left += u64::from(trial(seed, 2) > 0);
    }
    eprintln!("{left} of {trials} trials have sessions that could not be brought together");
    assert_eq!(left, 0, "of {trials}");
}

#[test]
fn three_databases_converge_in_any_order() {
    let (mut trials, mut left) = (0, 0);
    for seed in 100..100 + amount("LOOPSTORE_SYNC_TRIALS", 12) {
        trials += 1;
        left += u64::from(trial(seed, 3) > 0);
    }
    eprintln!("{left} of {trials} trials have sessions that could not be brought together");
    assert_eq!(left, 0, "of {trials}");
}

#[test]
fn it_is_the_same_whichever_database_begins() {
    for seed in 200..200 + amount("LOOPSTORE_SYNC_TRIALS", 12) {
        let results = [false, true].map(|is_reverse| {
            let (a, b) = (memory(), memory());
            let mut random = Random::new(seed);
            continue_in(&a, "one", &mut random, 6, 0);
            both(&a, &b);
            // The salts of messages are random: both orders begin with copies of the same databases.
            (a, b, is_reverse, random)
        });
        let [(a, b, _, mut random), (c, d, _, _)] = results;
        continue_in(&a, "one", &mut random, 5, 1_000_000);
        continue_in(&b, "one", &mut random, 5, 2_000_000);
        // The other pair gets the states of both.
        for (from, to) in [(&a, &c), (&b, &d)] {
            let text = lines(from, &SessionId::new("one").unwrap());
            replace(to, &text);
        }
        let (one, two) = (both(&a, &b), both(&d, &c));
        if one.failed.is_empty() {
            assert_eq!(two.failed, []);
            assert_same(&a, &d);
        }
    }
}

/// Replaces the session of a database by the lines of another one.
fn replace(store: &Store, text: &str) {
    use loopstore_admin::retention::{EraseRequest, erase};
    use loopstore_transcripts::{SessionLines, Source, import_source};
    let id = SessionId::new("one").unwrap();
    erase(store.database(), &EraseRequest::new(id)).unwrap();
    let mut reader = std::io::Cursor::new(text.as_bytes());
    let mut source = Source {
        path: std::path::Path::new("lines"),
        reader: &mut reader,
    };
    import_source(store.database(), &SessionLines, &mut source, None).unwrap();
}

/// Plays histories with everything that can be done to a session in `count` databases, and brings them together.
fn play(count: usize, first: u64) {
    let seeds = match from_variable("LOOPSTORE_SYNC_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + amount("LOOPSTORE_SYNC_TRIALS", 6),
    };
    for seed in seeds {
        let stores: Vec<Store> = (0..count).map(|_| memory()).collect();
        let databases: Vec<&dyn Database> = stores
            .iter()
            .map(|store| store.database() as &dyn Database)
            .collect();
        synced_histories::play(&databases, seed, 6, &|here, there| {
            let report = sync(here, there, &SyncOptions::default(), &mut |_, _| {}).unwrap();
            if from_variable("LOOPSTORE_SYNC_SHOWN").is_some() {
                eprintln!("{report:?}");
            }
            let left = report.failed.into_iter();
            left.map(|failed| (failed.session_id, failed.reason))
                .collect()
        });
    }
}

#[test]
fn two_databases_with_everything_that_can_be_done_to_them_become_the_same() {
    play(2, 1000);
}

#[test]
fn three_databases_with_everything_that_can_be_done_to_them_become_the_same() {
    play(3, 0);
}
