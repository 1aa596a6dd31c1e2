//! Databases, and what is compared of them.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::extend::read;
use loopstore::*;
use loopstore_export::{ExportForm, export};
use loopstore_sync::{SyncOptions, SyncReport, sync};
use loopstore_verify::verify;

pub fn memory() -> Store {
    Store::in_memory().unwrap()
}

pub fn both(here: &Store, there: &Store) -> SyncReport {
    sync(
        here.database(),
        there.database(),
        &SyncOptions::default(),
        &mut |_, _| {},
    )
    .unwrap()
}

/// Brings two databases together; fails if a session was left.
pub fn whole(here: &Store, there: &Store) -> SyncReport {
    let report = both(here, there);
    assert_eq!(report.failed, []);
    report
}

pub fn ids(store: &Store) -> Vec<SessionId> {
    let rows = read(store.database(), |read| read.sessions()).unwrap();
    let mut ids: Vec<SessionId> = rows.into_iter().map(|row| row.session_id).collect();
    ids.sort();
    ids
}

pub fn lines(store: &Store, id: &SessionId) -> String {
    let mut out = Vec::new();
    export(store.database(), id, None, ExportForm::Lines, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Fails unless both databases have the same sessions in every byte and in every context, and are sound.
pub fn assert_same(a: &Store, b: &Store) {
    assert_eq!(ids(a), ids(b));
    for id in ids(a) {
        let (left, right) = (lines(a, &id), lines(b, &id));
        for (at, (left, right)) in left.lines().zip(right.lines()).enumerate() {
            assert_eq!(left, right, "line {at} of {id}");
        }
        assert_eq!(left, right, "{id}");
        assert_eq!(contexts(a, &id), contexts(b, &id), "{id}");
    }
    for store in [a, b] {
        let report = verify(store.database()).unwrap();
        assert!(report.ok, "{:?}", report.problems);
    }
}

/// Returns the context of each loop as JSON.
pub fn contexts(store: &Store, id: &SessionId) -> BTreeMap<String, String> {
    let mut contexts = BTreeMap::new();
    for loop_id in loops(store, id) {
        let options = BuildOptions {
            leaf: Some(loop_id.clone()),
            ..BuildOptions::default()
        };
        let built = match build_context_from_session(store.database(), id, &options) {
            Ok(context) => serde_json::to_string(&context.messages).unwrap(),
            Err(error) => error.to_string(),
        };
        contexts.insert(loop_id.to_string(), built);
    }
    contexts
}

pub fn loops(store: &Store, id: &SessionId) -> Vec<LoopId> {
    let rows = read(store.database(), |read| {
        let row = read.session(id)?.unwrap();
        read.loops(row.key)
    });
    let ids = rows.unwrap().into_iter().map(|row| row.core.loop_id);
    ids.collect()
}

/// Returns how often each message is stored in a session, by its digest.
pub fn messages(store: &Store, id: &SessionId) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for line in lines(store, id).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["record"] == "message" {
            let digest = line["digest"].as_str().unwrap().to_owned();
            *count.entry(digest).or_default() += 1;
        }
    }
    count
}

/// Returns the runs of a session.
pub fn runs(store: &Store, id: &SessionId) -> BTreeSet<String> {
    let mut runs = BTreeSet::new();
    for line in lines(store, id).lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["record"] == "run" {
            runs.insert(line["run"].as_str().unwrap().to_owned());
        }
    }
    runs
}
