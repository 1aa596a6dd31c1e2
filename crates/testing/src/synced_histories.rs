//! Random histories of the same sessions in several databases that are brought together in random order.

use std::collections::{BTreeMap, BTreeSet};

use loopstore::extend::{self as store, session};
use loopstore::model::*;
use loopstore::{
    BuildOptions, Database, EditRequest, EditTarget, StoreError, build_context_from_session, edit,
};
use loopstore_admin::retention::{EraseRequest, erase};
use loopstore_export::{ExportForm, export};
use loopstore_transcripts::{ImportOptions, import_paths};
use loopstore_verify::verify;

use crate::histories::{History, Random, loop_id};
use crate::root;

/// A function that brings two databases together and returns the sessions that it left, with the reasons.
pub type SyncPair<'a> = dyn Fn(&dyn Database, &dyn Database) -> Vec<(SessionId, String)> + 'a;

/// A transcript that several databases import.
const TRANSCRIPT: &str = "claude-code/compactions.jsonl";
/// The number of rounds over all pairs after which nothing may change any more.
const ROUNDS: usize = 8;

/// Databases that continue the same sessions, each on its own, between syncs.
pub struct SyncedHistories<'a> {
    databases: &'a [&'a dyn Database],
    sync: &'a SyncPair<'a>,
    random: Random,
    seed: u64,
    /// The number of texts so far.
    texts: u64,
    /// Sessions that were begun, erased and hidden, by the ids that they began with.
    begun: BTreeSet<String>,
    erased: BTreeSet<String>,
    hidden: BTreeSet<String>,
}

/// Plays a history in each database, with syncs in random order, and then brings all of them together.
pub fn play(databases: &[&dyn Database], seed: u64, rounds: u32, sync: &SyncPair<'_>) {
    let mut histories = SyncedHistories {
        databases,
        sync,
        random: Random::new(seed),
        seed,
        texts: 0,
        begun: BTreeSet::new(),
        erased: BTreeSet::new(),
        hidden: BTreeSet::new(),
    };
    for _ in 0..rounds {
        for at in 0..databases.len() {
            let steps = histories.random.below(5);
            (0..steps).for_each(|_| histories.act(at));
        }
        let count = databases.len() as u64;
        let here = histories.random.below(count);
        let there = (here + 1 + histories.random.below(count - 1)) % count;
        sync(databases[here as usize], databases[there as usize]);
    }
    histories.converge();
}

impl<'a> SyncedHistories<'a> {
    /// Does something to a session of a database.
    fn act(&mut self, at: usize) {
        let database = self.databases[at];
        let name = format!("s{}", self.random.below(4));
        if self.erased.contains(&name) {
            return;
        }
        let known: Vec<SessionId> = ids(database)
            .into_iter()
            .filter(|id| root_of(id) == name)
            .collect();
        let Some(id) = known.first() else {
            if self.begun.insert(name.clone()) {
                self.texts += 1_000_000;
                let mut history = History::new(database, &name);
                history.next_id = self.texts;
                (0..3).for_each(|_| history.step(&mut self.random));
            }
            return;
        };
        match self.random.below(24) {
            0 if self.random.one_in(2) => {
                erase(database, &EraseRequest::new(id.clone())).unwrap();
                self.erased.insert(name);
            }
            2 if self.hidden.insert(name.clone()) => {
                store::write(database, |write| {
                    let row = write.session(id)?.unwrap();
                    session::hide(write, row.key)
                })
                .unwrap();
            }
            3 => import(database),
            5..=7 => self.edit(at, id),
            _ => {
                let steps = 1 + self.random.below(3);
                let mut history = self.history(at, id);
                let mut random = Random::new(self.texts);
                (0..steps).for_each(|_| history.step(&mut random));
            }
        }
    }

    fn history(&mut self, at: usize, id: &SessionId) -> History<'a> {
        self.texts += 1_000_000;
        let database: &'a dyn Database = self.databases[at];
        let loops = loops(database, id);
        // Only the loops that a history began have these names.
        let named = (0..).take_while(|at| loops.contains(&loop_id(*at))).count();
        History {
            store: database,
            session: id.clone(),
            loops: named,
            committed: 0,
            next_id: self.texts,
            open: Vec::new(),
        }
    }

    /// Edits any message.
    fn edit(&mut self, at: usize, id: &SessionId) {
        let number = self.random.below(1 << 30);
        let history = self.history(at, id);
        let row = history.row(number as usize % history.loops);
        let seq = number as u32 % row.totals.next_seq.max(1);
        let turn = store::read(history.store, |read| {
            let mut turn = 0;
            read.sizes(row.key, seq..seq + 1, &mut |size| {
                turn = size.turn.unwrap_or(0);
                Ok(std::ops::ControlFlow::Break(()))
            })?;
            Ok(turn)
        });
        let target = EditTarget::Message(row.loop_id.clone(), turn.unwrap(), seq);
        let mut request = match number % 3 {
            0 => EditRequest::remove([target]),
            1 => EditRequest::clear([target]),
            _ => EditRequest::replace(target, format!("edited {}", history.next_id)),
        };
        request.leaf = Some(row.loop_id.clone());
        match edit(history.store, &history.session, &request) {
            // It may be in flight, removed already, or a note.
            Ok(_) | Err(StoreError::EditRefused(_)) => {}
            Err(error) => panic!("seed {}: {error}: {request:?}", self.seed),
        }
    }

    /// Brings all databases together until nothing changes, and compares them.
    fn converge(&mut self) {
        let seed = self.seed;
        for _ in 0..ROUNDS {
            let mut left = BTreeMap::new();
            for (at, here) in self.databases.iter().enumerate() {
                for there in &self.databases[at + 1..] {
                    left.extend((self.sync)(*here, *there));
                }
            }
            assert!(left.is_empty(), "seed {seed}: {left:?}");
            if self.is_same() {
                return self.check();
            }
        }
        for other in &self.databases[1..] {
            differences(self.databases[0], *other, seed);
        }
        panic!("seed {seed}: the databases still differ after {ROUNDS} rounds");
    }

    fn is_same(&self) -> bool {
        let first = state(self.databases[0]);
        self.databases[1..]
            .iter()
            .all(|other| state(*other) == first)
    }

    /// Checks that the databases are sound, have the same contexts, and that what was erased is gone.
    fn check(&self) {
        let seed = self.seed;
        let first = self.databases[0];
        for database in self.databases {
            let report = verify(*database).unwrap();
            assert!(report.ok, "seed {seed}: {:?}", report.problems);
            for id in ids(*database) {
                assert!(
                    !self.erased.contains(&root_of(&id)),
                    "seed {seed}: {id} is back"
                );
                let (here, there) = (contexts(first, &id), contexts(*database, &id));
                assert_eq!(here, there, "seed {seed}: {id}");
            }
        }
        let ids = ids(first);
        let roots: BTreeSet<String> = ids.iter().map(root_of).collect();
        assert_eq!(
            roots.len(),
            ids.len(),
            "seed {seed}: a session is there twice: {ids:?}"
        );
    }
}

/// Returns the id that a session had before it was hidden.
fn root_of(id: &SessionId) -> String {
    let id = id.as_str();
    id.split_once('~').map_or(id, |(root, _)| root).to_owned()
}

/// Imports the transcript, and keeps its file: without the file no other database knows its records again.
fn import(database: &dyn Database) {
    let options = ImportOptions::default();
    let path = root::fixture(TRANSCRIPT);
    import_paths(database, &[path], &options, &mut |_| {}).unwrap();
}

fn ids(database: &dyn Database) -> Vec<SessionId> {
    let rows = store::read(database, |read| read.sessions()).unwrap();
    let mut ids: Vec<SessionId> = rows.into_iter().map(|row| row.session_id).collect();
    ids.sort();
    ids
}

fn loops(database: &dyn Database, id: &SessionId) -> Vec<LoopId> {
    let rows = store::read(database, |read| {
        let row = read.session(id)?.unwrap();
        read.loops(row.key)
    });
    rows.unwrap()
        .into_iter()
        .map(|row| row.core.loop_id)
        .collect()
}

fn lines(database: &dyn Database, id: &SessionId) -> String {
    let mut out = Vec::new();
    export(database, id, None, ExportForm::Lines, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns all sessions of a database as their lines.
fn state(database: &dyn Database) -> BTreeMap<SessionId, String> {
    let lines = ids(database)
        .into_iter()
        .map(|id| (id.clone(), lines(database, &id)));
    lines.collect()
}

/// Prints the first line in which two databases differ.
fn differences(a: &dyn Database, b: &dyn Database, seed: u64) {
    let (a, b) = (state(a), state(b));
    let keys: BTreeSet<&SessionId> = a.keys().chain(b.keys()).collect();
    for id in keys {
        let (a, b) = (a.get(id), b.get(id));
        let pairs = a.into_iter().flat_map(|text| text.lines());
        let mut pairs = pairs.zip(b.into_iter().flat_map(|text| text.lines()));
        if a != b {
            let first = pairs.find(|(a, b)| a != b);
            eprintln!(
                "seed {seed}: {id}: {} {}: {first:?}",
                a.is_some(),
                b.is_some()
            );
        }
    }
}

/// Returns the context of each loop as JSON.
fn contexts(database: &dyn Database, id: &SessionId) -> BTreeMap<String, String> {
    let built = loops(database, id).into_iter().map(|loop_id| {
        let options = BuildOptions {
            leaf: Some(loop_id.clone()),
            ..BuildOptions::default()
        };
        let built = match build_context_from_session(database, id, &options) {
            Ok(context) => serde_json::to_string(&context.messages).unwrap(),
            Err(error) => error.to_string(),
        };
        (loop_id.to_string(), built)
    });
    built.collect()
}
