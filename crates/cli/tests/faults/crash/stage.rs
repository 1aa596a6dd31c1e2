//! Databases to damage, and the state that must be preserved.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use loopstore::extend as store;
use loopstore::model::Content;
use loopstore::*;
use loopstore_verify::verify;

use crate::support::amount::from_variable;
use crate::support::histories::{History, Random, answer, loop_id, result, user};

/// Creates a temporary folder, in memory if possible.
pub fn folder() -> tempfile::TempDir {
    let memory = tempfile::Builder::new().tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).unwrap()
}

/// Returns random numbers; `LOOPSTORE_SEED` selects another series.
pub fn random(salt: u64) -> Random {
    Random::new(from_variable("LOOPSTORE_SEED").unwrap_or(1) * 1000 + salt)
}

pub fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

pub fn turn(number: u32) -> Vec<AgentMessage> {
    let call = format!("call-{number}");
    let output = vec![
        Content::text(format!("result {number}\n{}", "a line\n".repeat(60))),
        Content::image("aGVsbG8=", "image/png"),
    ];
    vec![
        user(&format!("prompt {number}"), number),
        answer(
            &format!("answer {number} {}", "words ".repeat(40)),
            &[&call],
            number,
        ),
        result(&call, output, number),
        answer(&format!("paid {number}"), &[], number),
    ]
}

/// Records a session of two loops, both ended.
pub fn tell<'a>(store: &'a SqliteStore, id: &str) -> History<'a> {
    let mut history = History::new(store, id);
    for number in 0..6 {
        history.append(0, turn(number));
    }
    history.end_loop(0);
    history.start_loop(Some(0), Some(4));
    history.append(1, turn(0));
    history.end_loop(1);
    history
}

/// Returns the bytes of a database after it was closed.
pub fn bytes_of(make: impl FnOnce(&SqliteStore)) -> Vec<u8> {
    let folder = folder();
    let file = folder.path().join("a.db");
    let store = crate::support::keyed::open(&file).unwrap();
    make(&store);
    drop(store);
    std::fs::read(file).unwrap()
}

/// The content of each session that must be preserved, without values that differ from run to run: salts, ids of runs
/// and times.
pub type State = BTreeMap<String, String>;

const PARTS: [&str; 9] = [
    "SELECT title, agent_id, current_loop_id, loops, turns, messages, tokens, source FROM v_sessions",
    "SELECT loop_id, parent_loop_id, parent_turn, continuation_kind, status, turns, messages, tokens
       FROM v_loops",
    "SELECT loop_id, seq, turn, role, tokens, bytes, payload FROM v_messages",
    // A failed attempt adds a row.
    "SELECT loop_id, trigger, strategy, outcome, is_live, tokens_before, tokens_after
       FROM (SELECT * FROM v_compaction_runs WHERE outcome <> 'failed')",
    "SELECT loop_id, generation, kind, keep_compacted_start, keep_compacted_end, is_active
       FROM v_compaction_blocks",
    "SELECT block_loop_id, generation, loop_id, from_seq, to_seq, disposition FROM v_coverage",
    "SELECT leaf_loop_id, ordinal, loop_id, section, from_turn, to_turn, messages, tokens
       FROM v_context",
    "SELECT loop_id, model, total FROM v_usage",
    "SELECT loop_id, turn, seq, pinned, is_last, from_loop_id, from_turns FROM v_pins",
];

pub fn state(store: &SqliteStore) -> State {
    let sessions = store.query("SELECT session_id FROM v_sessions").unwrap();
    let ids = sessions.rows.iter().map(|row| row[0].read::<String>());
    ids.map(|id| id.unwrap())
        .map(|id| (id.clone(), state_of(store, &id)))
        .collect()
}

fn state_of(store: &SqliteStore, id: &str) -> String {
    let mut told = String::new();
    for part in PARTS {
        let (columns, from) = part.split_once("FROM ").unwrap();
        let order = (1..=columns.split(',').count()).map(|at| at.to_string());
        let order = order.collect::<Vec<_>>().join(", ");
        let sql = format!("{columns} FROM {from} WHERE session_id = ?1 ORDER BY {order}");
        for row in store.query_with(&sql, &[id]).unwrap().rows {
            let cells: Vec<&str> = row.iter().map(Json::as_str).collect();
            writeln!(told, "{}", cells.join("|")).unwrap();
        }
    }
    let options = BuildOptions::default();
    let context = build_context_from_session(store, &session(id), &options).unwrap();
    told + &serde_json::to_string(&context.messages).unwrap()
}

/// Checks that nothing is damaged, including the index.
pub fn assert_whole(store: &SqliteStore, case: &str) {
    let report = verify(store).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(report.ok, "{case}: {:#?}", report.problems);
    assert!(report.index.is_empty(), "{case}: {:?}", report.index);
}

/// Returns the sessions in which two states differ.
pub fn differing(left: &State, right: &State) -> Vec<String> {
    let all = left.keys().chain(right.keys());
    let mut ids: Vec<String> = all
        .filter(|id| left.get(*id) != right.get(*id))
        .cloned()
        .collect();
    ids.dedup();
    ids
}

pub fn fixture(name: &str) -> PathBuf {
    crate::support::root::fixture(name)
}

/// Appends turn `number` to the second loop of the session `s`.
pub fn append(store: &dyn SessionStore, number: u32) -> Result<(), StoreError> {
    store::write(store, |write| {
        let session = write.session(&session("s"))?.unwrap().key;
        let key = write.loop_by_id(session, &loop_id(1))?.unwrap().key;
        let new = turn(number).into_iter().map(Into::into).collect();
        store::append::append(write, key, new, &HeuristicTokenCounter).map(|_| ())
    })
}
