//! Sessions from a file to a server and back: the same in every byte.

use loopstore::copy::copy;
use loopstore::inspect::verify;
use loopstore::*;

use super::histories::{History, Random};
use super::{server, views};

/// A store with three random histories.
fn filled(store: &SqliteStore) {
    for seed in 40..43 {
        let mut history = History::new(store, &format!("session-{seed}"));
        let mut random = Random::new(seed);
        (0..15).for_each(|_| history.step(&mut random));
    }
}

#[test]
fn a_copy_is_the_same_there_and_back_goes_on_and_brings_what_is_new() {
    let Some(server) = server::store() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = SqliteStore::in_memory().unwrap();
    filled(&file);
    let moved = |from: &dyn SessionStore, to: &dyn SessionStore| {
        let report = copy(from, to, folder.path(), &mut |_, _| {}).unwrap();
        assert_eq!(report.differ, []);
        (report.copied, report.same)
    };
    assert_eq!(moved(&file, &server), (3, 0));
    assert_eq!(moved(&file, &server), (0, 3));
    for row in store::read(&file, |read| read.sessions()).unwrap() {
        views::compare(&file, &server, &row.session_id);
    }
    let mut grown = History::new(&file, "session-new");
    let mut random = Random::new(7);
    (0..6).for_each(|_| grown.step(&mut random));
    assert_eq!(moved(&file, &server), (1, 3));
    let back = SqliteStore::in_memory().unwrap();
    assert_eq!(moved(&server, &back), (4, 0));
    for report in [verify(&server).unwrap(), verify(&back).unwrap()] {
        assert!(report.ok, "{:?}", report.problems);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
