//! Overlays over time: undo and redo on branches, forks, contexts as of a tick, diffs of contexts, and manifests.

use crate::support::histories::{History, Random, answer, loop_id, result, user};
use loopstore::compact::FlipRequest;
use loopstore::context::BuildError;
use loopstore::extend::session::{self, Fork};
use loopstore::extend::{self as store, StoreError};
use loopstore::model::{AgentMessage, Content, Json, LoopId};
use loopstore::*;
use loopstore_admin::inspect::{ContextDiff, DiffRequest, DiffSide, diff, diff_contexts};
use loopstore_verify::verify;

fn turn(number: u32) -> Vec<AgentMessage> {
    let call = format!("call-{number}");
    vec![
        user("please", number),
        answer(&"words ".repeat(30), &[&call], number),
        result(&call, vec![Content::text("line\n".repeat(40))], number),
    ]
}

/// Records a session of one loop with some turns.
fn recorded_session(store: &SqliteStore, turns: u32) -> History<'_> {
    let history = History::new(store, "s");
    (0..turns).for_each(|number| history.append(0, turn(number)));
    history
}

fn context(history: &History<'_>, at: usize) -> Context {
    let options = BuildOptions {
        leaf: Some(loop_id(at)),
        ..BuildOptions::default()
    };
    build_context_from_session(history.store, &history.session, &options).unwrap()
}

fn as_of(history: &History<'_>, as_of: AsOf) -> Context {
    build_context_as_of(history.store, &history.session, as_of).unwrap()
}

fn record(history: &History<'_>, options: BuildOptions) -> String {
    let options = BuildOptions {
        record: true,
        ..options
    };
    let context = build_context_from_session(history.store, &history.session, &options).unwrap();
    context.manifest.unwrap()
}

fn compact(history: &mut History<'_>, at: usize) -> String {
    let report = history.compact(at, (1, 2), false);
    assert_eq!(report["outcome"], "committed", "{report}");
    report["run_id"].as_str().unwrap().to_owned()
}

fn differ(history: &History<'_>, from: Option<DiffSide>, to: Option<DiffSide>) -> ContextDiff {
    let request = DiffRequest {
        from,
        to,
        leaf: None,
    };
    diff(history.store, &history.session, &request).unwrap()
}

/// Returns the changes as lines.
fn changes(diff: &ContextDiff) -> Vec<String> {
    let word = |state: Option<loopstore::context::TurnState>| state.map_or("-", |s| s.as_str());
    diff.changes
        .iter()
        .map(|change| {
            let (before, after) = (word(change.before), word(change.after));
            let (from, to) = (change.from_turn, change.to_turn);
            format!("{} {from}-{to} {before} {after}", change.loop_id)
        })
        .collect()
}

fn run_at(run: &str) -> Option<DiffSide> {
    Some(DiffSide::At(AsOf::Run(run.to_owned())))
}

fn rows(store: &SqliteStore) -> Vec<(String, i64)> {
    let tables = "messages turns blocks block_messages coverage blobs runs flips loops";
    let count = |table: &str| {
        let found = store.query(&format!("SELECT count(*) AS n FROM {table}"));
        (
            table.to_owned(),
            found.unwrap().records()[0].number("n").unwrap(),
        )
    };
    tables.split(' ').map(count).collect()
}

fn fork(history: &History<'_>, at: usize, turn: u32, id: &str) -> store::StoreResult<()> {
    let fork = Fork {
        loop_id: LoopId::new(id).unwrap(),
        turn,
        seq: None,
        tag: "other".into(),
    };
    let key = history.row(at).key;
    store::write(history.store, |write| session::fork(write, key, &fork)).map(|_| ())
}

#[test]
fn undo_after_further_turns_brings_the_turns_back_and_keeps_the_tail() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded_session(&store, 6);
    let first = compact(&mut history, 0);
    (6..12).for_each(|number| history.append(0, turn(number)));
    let one = context(&history, 0);
    compact(&mut history, 0);
    history.append(0, turn(12));
    assert!(history.flip(0, false));
    // The previous generation, with the later messages as its tail.
    let mut expected = one.messages;
    expected.extend(turn(12));
    assert_eq!(context(&history, 0).messages, expected);
    assert!(history.flip(0, false));
    let raw: Vec<AgentMessage> = (0..13).flat_map(turn).collect();
    assert_eq!(context(&history, 0).messages, raw);
    assert!(!history.flip(0, false), "nothing is left to undo");
    // The newest undo is redone first; further turns do not matter.
    history.append(0, turn(13));
    assert!(history.flip(0, true));
    expected.extend(turn(13));
    assert_eq!(context(&history, 0).messages, expected);
    assert!(history.flip(0, true));
    assert!(!history.flip(0, true), "nothing is left to redo");
    // After a new compaction, only a named run can be redone.
    assert!(history.flip(0, false) && history.flip(0, false));
    compact(&mut history, 0);
    assert!(!history.flip(0, true));
    let named = FlipRequest {
        run: Some(first),
        ..FlipRequest::default()
    };
    redo(&store, &history.session, &named).unwrap();
    assert!(verify(&store).unwrap().ok);
}

#[test]
fn an_undo_on_one_branch_does_not_reach_the_other() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded_session(&store, 6);
    let run = compact(&mut history, 0);
    history.append(0, turn(6));
    fork(&history, 0, 5, "loop-1").unwrap();
    history.loops += 1;
    history.append(1, vec![user("left", 0), answer("yes", &[], 0)]);
    fork(&history, 0, 5, "loop-2").unwrap();
    history.loops += 1;
    history.append(2, vec![user("right", 0), answer("no", &[], 0)]);
    let before = [0, 1, 2].map(|at| context(&history, at).messages);
    let request = FlipRequest {
        leaf: Some(loop_id(1)),
        run: Some(run),
        reason: Some("too short".into()),
    };
    undo(&store, &history.session, &request).unwrap();
    let mut raw: Vec<AgentMessage> = (0..6).flat_map(turn).collect();
    raw.extend([user("left", 0), answer("yes", &[], 0)]);
    assert_eq!(context(&history, 1).messages, raw);
    assert_eq!(context(&history, 0).messages, before[0]);
    assert_eq!(context(&history, 2).messages, before[2]);
    assert!(undo(&store, &history.session, &request).is_err());
    let runs = store.run_rows(Some(&history.session)).unwrap();
    let flips: serde_json::Value = runs[0].get("flips").read().unwrap();
    assert_eq!(flips[0]["kind"], "undo");
    assert_eq!(flips[0]["loop_id"], "loop-1");
    assert_eq!(flips[0]["reason"], "too short");
    // From the run's own loop it is still live.
    assert_eq!(runs[0].number("is_live"), Some(1));
    redo(&store, &history.session, &request).unwrap();
    assert_eq!(context(&history, 1).messages, before[1]);
}

#[test]
fn a_fork_is_one_row_and_begins_as_its_parent_stood() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded_session(&store, 6);
    let run = compact(&mut history, 0);
    let stood = as_of(&history, AsOf::Run(run));
    (6..12).for_each(|number| history.append(0, turn(number)));
    compact(&mut history, 0);
    let before = rows(&store);
    fork(&history, 0, 5, "loop-1").unwrap();
    history.loops += 1;
    let mut expected = before;
    expected.last_mut().unwrap().1 += 1;
    assert_eq!(rows(&store), expected, "only a row of loops");
    assert_eq!(context(&history, 1).messages, stood.messages);
    let row = history.row(1);
    assert_eq!(
        (row.parent_turn, row.kind.as_str()),
        (Some(5), r#"{"Branch":{"tag":"other"}}"#)
    );
    let current = store::read(&store, |read| read.session(&history.session)).unwrap();
    assert_eq!(current.unwrap().current_loop, Some(row.key));
    // Both branches continue independently.
    let parent = context(&history, 0).messages;
    (0..8).for_each(|number| history.append(1, turn(number + 20)));
    compact(&mut history, 1);
    assert_eq!(context(&history, 0).messages, parent);
    let child = context(&history, 1).messages;
    (20..26).for_each(|number| history.append(0, turn(number)));
    compact(&mut history, 0);
    assert_eq!(context(&history, 1).messages, child);
    assert!(verify(&store).unwrap().ok);
}

#[test]
fn a_fork_needs_a_complete_turn_and_a_new_id() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded_session(&store, 2);
    let said = |error: StoreError| error.to_string();
    let beyond = fork(&history, 0, 2, "f").map_err(said).unwrap_err();
    assert_eq!(beyond, "loop `loop-0` has no turn 2; its last turn is 1");
    let key = history.row(0).key;
    let open = store::write(&store, |write| {
        store::append::set_status(write, key, LoopStatus::Running)
    });
    open.unwrap();
    history.append(0, vec![user("and now", 2), answer("I look", &["open"], 2)]);
    let in_flight = fork(&history, 0, 2, "f").map_err(said).unwrap_err();
    assert!(
        in_flight.starts_with("turn 2 of loop `loop-0` is still open"),
        "{in_flight}"
    );
    let taken = fork(&history, 0, 1, "loop-0");
    assert!(matches!(taken, Err(StoreError::LoopExists(_))), "{taken:?}");
    history.start_loop(Some(0), Some(1));
    let empty = fork(&history, 1, 0, "f").map_err(said).unwrap_err();
    assert_eq!(empty, "loop `loop-1` has no turns yet");
    assert_eq!(rows(&store).last().unwrap().1, 2, "nothing was written");
}

#[test]
fn a_moment_is_read_as_it_stood_whatever_came_since() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded_session(&store, 6);
    // A run in the middle of a turn: the turn in flight is its tail.
    history.append(0, vec![user("and now", 6), answer("I look", &["late"], 6)]);
    let run = compact(&mut history, 0);
    let after_run = context(&history, 0);
    history.append(0, vec![result("late", vec![Content::text("found")], 6)]);
    let after_turn = context(&history, 0);
    history.append(0, turn(7));
    history.start_loop(Some(0), Some(6));
    history.append(1, vec![user("other", 0), answer("way", &[], 0)]);
    let branch = context(&history, 1);
    assert!(history.flip(1, false));
    history.append(1, vec![user("more", 1), answer("done", &[], 1)]);
    let undone = context(&history, 1);
    assert!(history.flip(0, false));
    (8..14).for_each(|number| history.append(0, turn(number)));
    compact(&mut history, 0);
    let at = |at: usize, turn: u32| AsOf::Turn {
        loop_id: loop_id(at),
        turn,
    };
    assert_eq!(as_of(&history, AsOf::Run(run)), after_run);
    assert_eq!(as_of(&history, at(0, 6)), after_turn);
    assert_eq!(as_of(&history, at(1, 0)), branch);
    assert_eq!(as_of(&history, at(1, 1)), undone);
    let raw: Vec<AgentMessage> = (0..4).flat_map(turn).collect();
    assert_eq!(as_of(&history, at(0, 3)).messages, raw);
    for missing in [AsOf::Run("nope".into()), at(0, 99), at(7, 0)] {
        let error = build_context_as_of(&store, &history.session, missing.clone());
        assert!(matches!(error, Err(BuildError::Store(_))), "{missing:?}");
    }
}

#[test]
fn a_diff_says_what_became_of_each_turn() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded_session(&store, 8);
    assert!(
        differ(&history, None, None).changes.is_empty(),
        "nothing is active"
    );
    let first = compact(&mut history, 0);
    let found = differ(&history, None, None);
    assert_eq!(
        (found.from, found.to),
        (format!("before {first}"), "now".to_owned())
    );
    let expected = [
        "loop-0 0-0 raw kept",
        "loop-0 1-1 raw summarised",
        "loop-0 2-5 raw dropped",
        "loop-0 6-7 raw truncated",
    ];
    let found = differ(&history, None, None);
    assert_eq!(changes(&found), expected);
    assert_eq!(found.counts["raw"], [8, 0]);
    assert_eq!(found.counts["dropped"], [0, 4]);
    let raw = differ(&history, Some(DiffSide::Raw), run_at(&first));
    assert_eq!((changes(&raw), raw.tokens), (changes(&found), found.tokens));
    // Two generations differ in the turns that aged, the new turns, and the text of the older summary.
    (8..10).for_each(|number| history.append(0, turn(number)));
    let second = compact(&mut history, 0);
    let found = differ(&history, run_at(&first), run_at(&second));
    let expected = ["loop-0 6-7 truncated dropped", "loop-0 8-9 - truncated"];
    assert_eq!(changes(&found), expected);
    let rewritten = &found.rewritten[0];
    assert_eq!((rewritten.from_turn, rewritten.to_turn), (1, 1));
    assert_eq!(
        (&*rewritten.before, &*rewritten.after),
        ("loop-0#1", "loop-0#2")
    );
    let back = differ(&history, run_at(&second), run_at(&first));
    assert_eq!(back.tokens, [found.tokens[1], found.tokens[0]]);
    assert_eq!(changes(&back)[1], "loop-0 8-9 truncated -");
    // A branch that leaves the loop early does not have its later turns.
    fork(&history, 0, 7, "loop-1").unwrap();
    let found = differ(&history, run_at(&second), Some(DiffSide::Now));
    assert_eq!(changes(&found)[1], "loop-0 8-9 truncated -");
}

#[test]
fn a_diff_follows_rollups_to_the_root() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded_session(&store, 4);
    for at in 1..7 {
        history.start_loop(Some(at - 1), None);
        (0..4).for_each(|number| history.append(at, turn(number + 10 * at as u32)));
        history.compact(at, (1, 2), false);
    }
    let blocks = store.query("SELECT extends FROM v_compaction_blocks WHERE kind = 'rollup'");
    let extends = blocks.unwrap().records();
    assert!(
        extends.iter().any(|row| row.text("extends").is_some()),
        "no rollup extends another"
    );
    let found = differ(&history, Some(DiffSide::Raw), Some(DiffSide::Now));
    let rolled = found.changes.iter().filter(|change| {
        change
            .after
            .is_some_and(|state| state.as_str() == "rolled_up")
    });
    let loops: Vec<&str> = rolled.map(|change| change.loop_id.as_str()).collect();
    assert!(
        loops.starts_with(&["loop-0", "loop-1", "loop-2"]),
        "{:?}",
        changes(&found)
    );
    let total = |side: usize| found.counts.values().map(|turns| turns[side]).sum::<u64>();
    assert_eq!((total(0), total(1)), (28, 28), "no turn is without a word");
}

/// A diff lists every turn of both contexts, and agrees with the contexts.
#[test]
fn diffs_of_random_histories_know_every_turn() {
    let mut differing = 0;
    for seed in 1..60 {
        let store = SqliteStore::in_memory().unwrap();
        let mut random = Random::new(seed);
        let mut history = History::new(&store, "s");
        for _ in 0..random.below(40) + 5 {
            history.step(&mut random);
        }
        for at in 0..history.loops {
            let request = DiffRequest {
                from: Some(DiffSide::Raw),
                to: Some(DiffSide::Now),
                leaf: Some(loop_id(at)),
            };
            let found = diff(&store, &history.session, &request).unwrap();
            let [raw, now] = diff_contexts(&store, &history.session, &request).unwrap();
            assert_eq!(found.tokens, [raw.tokens, now.tokens], "seed {seed}");
            assert_eq!(now, context(&history, at), "seed {seed}");
            let total = |side: usize| found.counts.values().map(|turns| turns[side]).sum::<u64>();
            assert_eq!(total(0), total(1), "seed {seed} loop {at}: {found:?}");
            differing += usize::from(!found.changes.is_empty());
            let same = DiffRequest {
                from: Some(DiffSide::Now),
                ..request
            };
            let same = diff(&store, &history.session, &same).unwrap();
            assert!(
                same.changes.is_empty() && same.rewritten.is_empty(),
                "seed {seed}"
            );
        }
    }
    assert!(differing > 50, "{differing}: the test tests nothing");
}

#[test]
fn a_manifest_is_one_small_row() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = recorded_session(&store, 8);
    compact(&mut history, 0);
    let before = rows(&store);
    let id = record(&history, BuildOptions::default());
    assert_eq!(rows(&store), before, "no message is copied");
    let found = store.query("SELECT * FROM v_manifests").unwrap().records();
    assert_eq!(found.len(), 1);
    let (row, shown) = (&found[0], context(&history, 0));
    assert_eq!(row.text("manifest_id"), Some(id));
    assert_eq!(row.number("messages"), Some(shown.messages.len() as i64));
    assert_eq!(row.number("tokens"), Some(shown.tokens as i64));
    let parts: serde_json::Value = serde_json::from_str(&row.text("parts").unwrap()).unwrap();
    let expected = serde_json::json!([
        {"loop": "loop-0", "section": "first", "generation": 1, "from_seq": 0, "to_seq": 2,
         "messages": 3},
        {"loop": "loop-0", "section": "compacted", "generation": 1, "from_seq": null,
         "to_seq": null, "messages": parts[1]["messages"]},
        {"loop": "loop-0", "section": "recent", "generation": 1, "from_seq": 18, "to_seq": 23,
         "messages": 6},
    ]);
    assert_eq!(parts, expected);
    // No context is built if it does not fit.
    let tight = BuildOptions {
        budget: Some(3),
        record: true,
        ..BuildOptions::default()
    };
    let refused = build_context_from_session(&store, &history.session, &tight);
    assert!(matches!(refused, Err(BuildError::NeedsCompaction { .. })));
    assert_eq!(
        store.query("SELECT * FROM v_manifests").unwrap().rows.len(),
        1
    );
}

/// The context that a manifest names can be built again, whatever is appended, replaced, compacted or undone
/// afterwards.
#[test]
fn manifests_of_random_histories_stay_true() {
    let mut recorded = 0;
    for seed in 1..60 {
        let store = SqliteStore::in_memory().unwrap();
        let mut random = Random::new(seed);
        let mut history = History::new(&store, "s");
        for _ in 0..random.below(40) + 5 {
            history.step(&mut random);
            let older_loops = [None, Some(OlderLoops::Skip)][random.below(2) as usize];
            let leaf = random.below(history.loops as u64) as usize;
            let options = BuildOptions {
                leaf: Some(loop_id(leaf)),
                older_loops,
                ..BuildOptions::default()
            };
            record(&history, options);
            recorded += 1;
        }
        let report = verify(&store).unwrap();
        assert!(report.ok, "seed {seed}: {:#?}", report.problems);
        assert!(report.checked.manifests > 0);
    }
    assert!(recorded > 500);
}

#[test]
fn a_replaced_turn_in_flight_is_no_damage() {
    let store = SqliteStore::in_memory().unwrap();
    let history = recorded_session(&store, 2);
    let key = history.row(0).key;
    store::write(&store, |write| {
        store::append::set_status(write, key, LoopStatus::Running)
    })
    .unwrap();
    history.append(0, vec![user("half a prompt", 2)]);
    record(&history, BuildOptions::default());
    store::write(&store, |write| {
        let whole = vec![user("a whole prompt", 2).into()];
        store::append::replace_last_turn(write, key, whole, &HeuristicTokenCounter)
    })
    .unwrap();
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
}

/// Some models reuse the ids of calls in each turn.
#[test]
fn a_call_that_a_replaced_turn_named_again_is_open_as_before() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    history.append(0, vec![user("go", 0), answer("first", &["call"], 0)]);
    history.append(0, vec![user("go on", 1), answer("second", &["call"], 1)]);
    let open = history.row(0).progress.open_calls;
    assert_eq!(open.into_iter().collect::<Vec<_>>(), [("call".into(), 1)]);
    let key = history.row(0).key;
    store::write(&store, |write| {
        let other = vec![user("go on otherwise", 1).into()];
        store::append::replace_last_turn(write, key, other, &HeuristicTokenCounter)
    })
    .unwrap();
    let open = history.row(0).progress.open_calls;
    assert_eq!(open.into_iter().collect::<Vec<_>>(), [("call".into(), 0)]);
    let report = verify(&store).unwrap();
    assert!(report.ok, "{:#?}", report.problems);
}

#[test]
fn notes_are_in_no_manifest() {
    let store = SqliteStore::in_memory().unwrap();
    let history = recorded_session(&store, 1);
    let note = AgentMessage::extension("note", Json::string("aside"));
    history.append(0, vec![note]);
    record(&history, BuildOptions::default());
    let found = store.query("SELECT messages FROM v_manifests").unwrap();
    assert_eq!(found.records()[0].number("messages"), Some(3));
    assert!(verify(&store).unwrap().ok);
}
