//! A replay shows what the model saw: in random histories, each context equals the one that the store returned at that
//! time.

use crate::support::amount::amount;
use crate::support::histories::{History, Random, answer, loop_id, result, user};
use loopstore::context::AsOf;
use loopstore::model::*;
use loopstore::{
    BuildOptions, Context, OlderLoops, SqliteStore, StoreError, build_context_from_session,
};
use loopstore_admin::replay::{Replay, ReplayStep, ReplayedTurn};
use std::collections::HashMap;

fn context(history: &History<'_>, options: BuildOptions) -> Context {
    build_context_from_session(history.store, &history.session, &options).unwrap()
}

fn now(history: &History<'_>, at: usize, older_loops: Option<OlderLoops>) -> Context {
    let leaf = Some(loop_id(at));
    context(
        history,
        BuildOptions {
            leaf,
            older_loops,
            ..BuildOptions::default()
        },
    )
}

fn before(history: &History<'_>, at: usize, seq: u32, older: Option<OlderLoops>) -> Context {
    let as_of = Some(AsOf::Before {
        loop_id: loop_id(at),
        seq,
    });
    context(
        history,
        BuildOptions {
            as_of,
            older_loops: older,
            ..BuildOptions::default()
        },
    )
}

fn turns(history: &History<'_>, leaf: usize) -> Vec<ReplayedTurn> {
    let replay = Replay::new(history.store, &history.session, Some(&loop_id(leaf))).unwrap();
    let steps = replay.with_contexts(true).map(Result::unwrap);
    steps
        .filter_map(|step| match step {
            ReplayStep::Turn(turn) => Some(*turn),
            ReplayStep::Change(_) => None,
        })
        .collect()
}

/// The contexts that were built live, by loop and sequence of the answer.
type Live = HashMap<(usize, u32), [Context; 2]>;

const OLDER: [Option<OlderLoops>; 2] = [None, Some(OlderLoops::Skip)];

/// Appends a turn, and builds the context just before the answer.
fn live_turn(history: &mut History<'_>, random: &mut Random, live: &mut Live) {
    let at = match random.one_in(3) {
        true => random.below(history.loops as u64) as usize,
        false => history.loops - 1,
    };
    let row = history.row(at);
    let messages = history.random_turn(random, row.totals.turns + 50);
    let answer = messages.iter().position(|m| m.role() == Role::Assistant);
    let Some(answer) = answer else {
        return history.append(at, messages);
    };
    let seq = row.totals.next_seq + answer as u32;
    if random.one_in(3) {
        // Everything in one append: the messages before the answer were never the end of a context.
        let mut contexts = OLDER.map(|older| now(history, at, older));
        let prompts = messages[..answer]
            .iter()
            .filter(|m| m.role() != Role::Extension);
        contexts[0].messages.extend(prompts.cloned());
        history.append(at, messages);
        let [whole, _] = contexts;
        let shown = before(history, at, seq, None);
        assert_eq!(texts(&shown), texts(&whole));
        return;
    }
    let mut prompts = messages;
    let answers = prompts.split_off(answer);
    history.append(at, prompts);
    if random.one_in(6) {
        history.compact(at, (1, 2), true);
    }
    live.insert((at, seq), OLDER.map(|older| now(history, at, older)));
    history.append(at, answers);
}

/// Appended and loaded messages may differ in how they represent an absent field.
fn texts(context: &Context) -> Vec<String> {
    let text = |message| serde_json::to_string(message).unwrap();
    context.messages.iter().map(text).collect()
}

fn same(live: &Context, replayed: &Context) {
    assert_eq!(live.messages, replayed.messages);
    assert_eq!(live.parts, replayed.parts);
    assert_eq!(
        (live.tokens, live.bytes, &live.leaf),
        (replayed.tokens, replayed.bytes, &replayed.leaf)
    );
}

fn play(seed: u64) -> usize {
    let store = SqliteStore::in_memory().unwrap();
    let mut random = Random::new(seed);
    let mut history = History::new(&store, "s");
    let mut live = Live::new();
    for _ in 0..40 {
        if random.one_in(2) {
            live_turn(&mut history, &mut random, &mut live);
            continue;
        }
        let rows: Vec<_> = (0..history.loops).map(|at| history.row(at)).collect();
        history.step(&mut random);
        for (at, row) in rows.iter().enumerate() {
            forget_replaced(&mut live, at, row, &history.row(at));
        }
    }
    for ((at, seq), contexts) in &live {
        for (live, older) in contexts.iter().zip(OLDER) {
            same(live, &before(&history, *at, *seq, older));
        }
    }
    let mut replayed = 0;
    for leaf in 0..history.loops {
        for turn in turns(&history, leaf) {
            let at = (0..history.loops).find(|at| loop_id(*at) == turn.loop_id);
            let key = (at.unwrap(), turn.answer_seq.unwrap_or(u32::MAX));
            assert_eq!(turn.answer_seq.is_some(), turn.context.is_some());
            if let (Some([live, _]), Some(shown)) = (live.get(&key), &turn.context) {
                same(live, shown);
                replayed += 1;
            }
        }
    }
    replayed
}

/// A replaced turn is gone, and with it the contexts from before its replacement.
fn forget_replaced(
    live: &mut Live,
    at: usize,
    before: &loopstore::extend::LoopRow,
    now: &loopstore::extend::LoopRow,
) {
    let (was, is) = (&before.totals, &now.totals);
    if before.progress.chain == now.progress.chain || is.turns > was.turns {
        return;
    }
    let last = was.turns.saturating_sub(1);
    let of_loop = |context: &Context| {
        let parts = &mut context.parts.iter();
        parts.any(|part| part.loop_id == loop_id(at) && part.to_turn >= last)
    };
    live.retain(|(loop_key, _), contexts| *loop_key != at && !contexts.iter().any(of_loop));
}

#[test]
fn each_context_is_the_one_of_its_moment() {
    let histories = amount("LOOPSTORE_HISTORIES", 30);
    let mut replayed = 0;
    for seed in 0..histories {
        println!("seed {seed}");
        replayed += play(seed);
    }
    assert!(replayed > 4 * histories as usize, "{replayed}");
}

/// Records two loops; the second is compacted, undone and redone between its turns.
fn compacted(store: &SqliteStore) -> History<'_> {
    let mut history = History::new(store, "s");
    let turn = |at: u32| {
        let call = format!("c{at}");
        vec![
            user(&format!("ask {at} {}", "word ".repeat(80)), at),
            answer("I look.", &[&call], at),
            result(&call, vec![Content::text("found it")], at),
        ]
    };
    history.append(0, vec![AgentMessage::extension("note", Json::null())]);
    for at in 0..4 {
        history.append(0, turn(at));
    }
    history.end_loop(0);
    history.start_loop(Some(0), Some(2));
    history.append(1, turn(4));
    history.append(1, vec![user("and now?", 5)]);
    assert_eq!(history.compact(1, (0, 1), true)["outcome"], "committed");
    history.append(1, vec![answer("That.", &[], 5)]);
    assert!(history.flip(1, false));
    history.append(1, turn(6));
    assert!(history.flip(1, true));
    history
}

#[test]
fn a_replay_tells_turns_and_compactions_in_order() {
    let store = SqliteStore::in_memory().unwrap();
    let history = compacted(&store);
    let replay = Replay::new(&store, &history.session, None).unwrap();
    let told: Vec<String> = replay
        .with_contexts(true)
        .map(|step| match step.unwrap() {
            ReplayStep::Change(change) => format!("{:?} on {}", change.change, change.loop_id),
            ReplayStep::Turn(turn) => {
                let sections: Vec<_> = turn.context.iter().flat_map(|c| &c.parts).collect();
                let sections: Vec<_> = sections
                    .iter()
                    .map(|p| format!("{:?}", p.section))
                    .collect();
                format!(
                    "{}:{} from {} {} messages, saw {}",
                    turn.loop_id,
                    turn.turn,
                    turn.first_seq,
                    turn.messages.len(),
                    sections.join("+")
                )
            }
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    loop-0:0 from 0 4 messages, saw Raw
    loop-0:1 from 4 3 messages, saw Raw
    loop-0:2 from 7 3 messages, saw Raw
    loop-1:0 from 0 3 messages, saw Raw+Raw
    Compacted on loop-1
    loop-1:1 from 3 2 messages, saw Compacted+Raw
    Undone on loop-1
    loop-1:2 from 5 3 messages, saw Raw+Raw
    Redone on loop-1
    ");
}

#[test]
fn a_replay_of_an_earlier_branch_knows_nothing_of_the_other() {
    let store = SqliteStore::in_memory().unwrap();
    let history = compacted(&store);
    let leaf = loop_id(0);
    let replay = Replay::new(&store, &history.session, Some(&leaf)).unwrap();
    let steps: Vec<ReplayStep> = replay.map(Result::unwrap).collect();
    assert_eq!(steps.len(), 4);
    for step in steps {
        let ReplayStep::Turn(turn) = step else {
            panic!("{step:?}")
        };
        assert_eq!((turn.loop_id, turn.context), (leaf.clone(), None));
    }
}

#[test]
fn a_turn_without_an_answer_has_no_context_and_an_empty_loop_no_turn() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = History::new(&store, "s");
    assert_eq!(turns(&history, 0), []);
    history.append(0, vec![user("anyone?", 0)]);
    history.start_loop(Some(0), None);
    let told = turns(&history, 1);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].answer_seq, &told[0].context), (None, &None));
    let missing = Replay::new(&store, &history.session, Some(&loop_id(7))).err();
    assert!(
        matches!(missing, Some(StoreError::NoLoop(_))),
        "{missing:?}"
    );
    let none = SessionId::new("none").unwrap();
    assert!(Replay::new(&store, &none, None).is_err());
}

#[test]
fn a_moment_before_no_message_is_refused() {
    let store = SqliteStore::in_memory().unwrap();
    let history = compacted(&store);
    let as_of = Some(AsOf::Before {
        loop_id: loop_id(1),
        seq: 99,
    });
    let options = BuildOptions {
        as_of,
        ..BuildOptions::default()
    };
    let error = build_context_from_session(&store, &history.session, &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "loop `loop-1` has 8 messages; there is no message 99"
    );
}

#[test]
fn a_replay_holds_one_turn_at_a_time() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    for at in 0..200 {
        history.append(
            0,
            vec![user(&"x".repeat(10_000), at), answer("yes", &[], at)],
        );
    }
    let replay = Replay::new(&store, &history.session, None).unwrap();
    let mut count = 0;
    for step in replay {
        let ReplayStep::Turn(turn) = step.unwrap() else {
            continue;
        };
        assert_eq!(turn.messages.len(), 2);
        count += 1;
        if count == 100 {
            // The replay reads nothing ahead: the result that is appended meanwhile belongs to an existing turn.
            history.append(0, vec![user("late", 500)]);
        }
    }
    assert_eq!(count, 200);
}
