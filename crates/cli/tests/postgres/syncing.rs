//! A file and a server brought together: the same in every byte, also when both continued a session.

use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_sync::{SyncOptions, sync};
use loopstore_verify::verify;

use crate::support::histories::{History, Random};
use crate::support::{keyed, server};

fn ids(store: &dyn Database) -> Vec<SessionId> {
    let rows = extend::read(store, |read| read.sessions()).unwrap();
    let mut ids: Vec<SessionId> = rows.into_iter().map(|row| row.session_id).collect();
    ids.sort();
    ids
}

fn lines(store: &dyn Database, id: &SessionId) -> String {
    let mut out = Vec::new();
    export(store, id, None, ExportForm::Lines, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn assert_same(a: &dyn Database, b: &dyn Database) {
    assert_eq!(ids(a), ids(b));
    for id in ids(a) {
        assert_eq!(lines(a, &id), lines(b, &id), "{id}");
    }
    for store in [a, b] {
        let report = verify(store).unwrap();
        assert!(report.ok, "{:?}", report.problems);
    }
}

fn say(store: &dyn Database, random: &mut Random, loops: usize, first: u64) {
    let mut history = History {
        store,
        session: SessionId::new("both").unwrap(),
        loops,
        committed: 0,
        next_id: first,
        open: Vec::new(),
    };
    (0..4).for_each(|_| history.step(random));
}

#[test]
fn a_file_and_a_server_come_together() {
    let Some(there) = server::store() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = keyed::open(folder.path().join("a.db")).unwrap();
    let mut random = Random::new(5);
    let mut history = History::new(&file, "both");
    (0..8).for_each(|_| history.step(&mut random));
    let loops = history.loops;
    History::new(&there, "server").step(&mut random);
    let options = SyncOptions::default();
    let report = sync(&file, &there, &options, &mut |_, _| {}).unwrap();
    assert_eq!(report.failed, []);
    assert_same(&file, &there);
    let again = sync(&there, &file, &options, &mut |_, _| {}).unwrap();
    assert_eq!(again.unchanged, 2, "{again:?}");
    say(&file, &mut random, loops, 1_000_000);
    say(&there, &mut random, loops, 2_000_000);
    let report = sync(&there, &file, &options, &mut |_, _| {}).unwrap();
    assert_eq!(report.failed, []);
    assert_same(&file, &there);
}
