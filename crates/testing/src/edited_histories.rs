//! Random histories with edits, pins, redactions, compactions and rollups, compared with a slow model.

use std::sync::Arc;

use loopstore::compaction::{CompactionConfig, CompactionScope};
use loopstore::context::context_parts;
use loopstore::extend::context::faults_of;
use loopstore::extend::{self as store, Tick};
use loopstore::handback::{SummaryRelation, handback, working_state};
use loopstore::model::*;
use loopstore::{
    AsOf, BuildOptions, CompactRequest, CompactTrigger, CompactionPolicy, ContextConfig, Database,
    DigestCompaction, EditFilter, EditRequest, EditTarget, FlipRequest, KeepRecent, Policy,
    StoreError, build_context_from_session, compact_session_loops, edit, redo, undo,
};

use loopstore_admin::retention::{RedactRequest, redact_session};

use crate::edit_model::Rows;
use crate::histories::{History, Random, answer, loop_id, result, user};
use crate::whole::assert_whole;

/// Plays a history, and compares its contexts with the model's.
pub fn play(database: &dyn Database, seed: u64, steps: u32) {
    let mut random = Random::new(seed);
    let mut history = History::new(database, &format!("s{seed}"));
    for number in 0..3 {
        append(&mut history, &mut random, 0, number);
    }
    for step in 0..steps {
        step_once(&mut history, &mut random);
        step_aside(&history, database, Random::new(seed + u64::from(step) * 31));
        if step % 4 == 3 {
            compare(&history, &format!("seed {seed}, step {step}"));
        }
    }
    compare(&history, &format!("seed {seed}"));
    moments(&history, seed);
    all_comes_back(&history, seed);
}

/// Pins or unpins a message, or redacts the session. These steps have their own random numbers, so that they do not
/// change the rest of a seed.
fn step_aside(history: &History<'_>, database: &dyn Database, mut random: Random) {
    let from = random.below(history.loops as u64) as usize;
    match random.below(20) {
        0..=3 => history.random_pin(&mut random, from),
        4 => {
            let request = RedactRequest::new(history.session.clone());
            redact_session(database, &request).unwrap();
        }
        _ => {}
    }
}

/// Words that no other text of the history contains.
fn words(history: &mut History<'_>, random: &mut Random) -> String {
    history.next_id += 1;
    let id = history.next_id;
    let count = 1 + random.below(40);
    let mut words: Vec<String> = (0..count).map(|nth| format!("w{id}x{nth}z")).collect();
    if id.is_multiple_of(5) {
        // A redaction replaces the password.
        words.push(format!(
            "https://me:hunter{id}hunter{id}@example.org/w{id}x{count}z"
        ));
    }
    words.join([" ", "\n"][random.below(2) as usize])
}

fn append(history: &mut History<'_>, random: &mut Random, at: usize, turn: u32) {
    let mut messages = vec![user(&words(history, random), turn)];
    let calls: Vec<String> = (0..random.below(3))
        .map(|nth| format!("call-{}-{nth}", history.next_id))
        .collect();
    let names: Vec<&str> = calls.iter().map(String::as_str).collect();
    messages.push(answer(&words(history, random), &names, turn));
    for call in &calls {
        let mut content = vec![Content::text(words(history, random))];
        if random.one_in(3) {
            content.push(Content::text(words(history, random)));
        }
        messages.push(result(call, content, turn));
    }
    history.append(at, messages);
}

fn step_once(history: &mut History<'_>, random: &mut Random) {
    let at = match random.one_in(4) {
        true => random.below(history.loops as u64) as usize,
        false => history.loops - 1,
    };
    let turns = history.row(at).totals.turns;
    match random.below(16) {
        0..=4 => append(history, random, at, turns),
        5 => {
            history.end_loop(at);
            history.start_loop(Some(at), None);
            let at = history.loops - 1;
            append(history, random, at, 0);
        }
        6 if turns > 0 => {
            let turn = random.below(u64::from(turns)) as u32;
            history.start_loop(Some(at), Some(turn));
        }
        7 | 8 => compact(history, random, at),
        9 | 10 => flip(history, random, at),
        _ => random_edit(history, random, at),
    }
}

fn compact(history: &History<'_>, random: &mut Random, at: usize) {
    let compaction = CompactionConfig {
        policy: CompactionPolicy::Headroom {
            compact_at_pct: 0.0,
            compact_budget_threshold_pct: 0.05,
        },
        keep_first_turns: random.below(2) as u32,
        keep_recent: KeepRecent::Turns(random.below(4) as u32),
        tool_output_max_lines: 4,
        max_summary_tokens: 200,
        compaction_scope: CompactionScope::FixedCount(1),
        block_strategy: Some(Arc::new(DigestCompaction::default())),
        ..CompactionConfig::default()
    };
    let request = CompactRequest {
        policy: Policy::of(ContextConfig::default(), compaction),
        leaf: Some(loop_id(at)),
        trigger: match random.one_in(2) {
            true => CompactTrigger::Force,
            false => CompactTrigger::Policy,
        },
        ..CompactRequest::default()
    };
    compact_session_loops(history.store, &history.session, &request).unwrap();
}

/// Undoes or redoes a run: the last one, or any.
fn flip(history: &History<'_>, random: &mut Random, at: usize) {
    let rows = Rows::read(history.store, &history.session);
    let runs = rows.edit_runs();
    let run = match runs.len() as u64 {
        0 => None,
        _ if random.one_in(3) => None,
        count => Some(runs[random.below(count) as usize].run_id.clone()),
    };
    let request = FlipRequest {
        leaf: Some(loop_id(at)),
        run,
        ..FlipRequest::default()
    };
    // There may be no such run.
    let _ = match random.one_in(2) {
        true => undo(history.store, &history.session, &request),
        false => redo(history.store, &history.session, &request),
    };
}

fn random_edit(history: &mut History<'_>, random: &mut Random, from: usize) {
    let any = history.row(random.below(history.loops as u64) as usize);
    let (id, turns) = (any.loop_id.clone(), any.totals.turns.max(1));
    let turn = random.below(u64::from(turns)) as u32;
    let seq = random.below(u64::from(any.totals.next_seq.max(1))) as u32;
    let turn_of_seq = store::read(history.store, |read| {
        let mut turn = 0;
        read.sizes(any.key, seq..seq + 1, &mut |size| {
            turn = size.turn.unwrap_or(0);
            Ok(std::ops::ControlFlow::Break(()))
        })?;
        Ok(turn)
    });
    let turn_of_seq = turn_of_seq.unwrap();
    let part = random.below(3) as u32;
    let target = match random.below(6) {
        0 => EditTarget::Turns(id, turn..=turn),
        1 | 2 => EditTarget::Message(id, turn_of_seq, seq),
        3 | 4 => EditTarget::Part(id, turn_of_seq, seq, part),
        _ => EditTarget::Matching(EditFilter {
            tool: Some("tool".into()),
            older_than: Some(random.below(4) as u32),
            ..EditFilter::default()
        }),
    };
    let mut request = match random.below(5) {
        0 | 1 => EditRequest::remove([target]),
        2 | 3 => EditRequest::clear([target]),
        _ => EditRequest::replace(target, words(history, random)),
    };
    request.leaf = Some(loop_id(from));
    match edit(history.store, &history.session, &request) {
        // It may be on another branch, in flight, removed already, or have no such part.
        Ok(_) | Err(StoreError::EditRefused(_)) => {}
        Err(error) => panic!("{error}: {request:?}"),
    }
}

/// Plays a history with a run of many edits, and with many runs of one edit each: on two loops and on a fork.
pub fn play_many_edits(database: &dyn Database, turns: u32) {
    let mut random = Random::new(u64::from(turns));
    let mut history = History::new(database, "many");
    for turn in 0..turns {
        append(&mut history, &mut random, 0, turn);
    }
    history.end_loop(0);
    history.start_loop(Some(0), None);
    for turn in 0..turns {
        append(&mut history, &mut random, 1, turn);
    }
    history.start_loop(Some(1), Some(turns / 2));
    let change = |request: EditRequest, from: usize| {
        let request = EditRequest {
            leaf: Some(loop_id(from)),
            ..request
        };
        edit(history.store, &history.session, &request).unwrap()
    };
    let all = |at| EditTarget::Turns(loop_id(at), 0..=turns - 2);
    let cleared = change(EditRequest::clear([all(0), all(1)]), 1);
    assert!(
        cleared.edits.len() > 4 * turns as usize,
        "{}",
        cleared.edits.len()
    );
    compare(&history, "one run");
    for turn in (1..turns).step_by(2) {
        let target = EditTarget::Turns(loop_id(0), turn..=turn);
        change(EditRequest::remove([target]), 1);
        let target = EditTarget::Turns(loop_id(1), turn / 2..=turn / 2);
        // The fork is before half of these runs.
        match turn % 4 {
            1 => change(EditRequest::clear([target]), 2),
            _ => change(EditRequest::remove([target]), 1),
        };
    }
    compare(&history, "many runs");
    assert_whole(database);
    let flip = FlipRequest {
        leaf: Some(loop_id(1)),
        run: cleared.run_id,
        ..FlipRequest::default()
    };
    undo(history.store, &history.session, &flip).unwrap();
    compare(&history, "the large run is undone");
    redo(history.store, &history.session, &flip).unwrap();
    compact(&history, &mut random, 1);
    compare(&history, "compacted");
    redact_session(database, &RedactRequest::new(history.session.clone())).unwrap();
    compare(&history, "redacted");
    assert_whole(database);
    moments(&history, u64::from(turns));
    all_comes_back(&history, u64::from(turns));
}

/// Compares the context of each loop with the model's, and its figures with its messages.
fn compare(history: &History<'_>, place: &str) {
    let rows = Rows::read(history.store, &history.session);
    for at in 0..history.loops {
        let (leaf, place) = (loop_id(at), format!("{place}, loop {at}"));
        let options = BuildOptions {
            leaf: Some(leaf.clone()),
            check: true,
            ..BuildOptions::default()
        };
        let context =
            build_context_from_session(history.store, &history.session, &options).unwrap();
        let expected = rows.context(&leaf, Tick::MAX);
        assert_eq!(json(&context.messages), json(&expected), "{place}");
        let counter = history.store.counter();
        let tokens = context.messages.iter().map(|m| counter.message_tokens(m));
        assert_eq!(tokens.sum::<u64>(), context.tokens, "{place}");
        let bytes = context
            .messages
            .iter()
            .map(|m| serde_json::to_string(m).unwrap().len());
        assert_eq!(bytes.sum::<usize>() as u64, context.bytes, "{place}");
        let parts = context_parts(history.store, &history.session, &options).unwrap();
        assert_eq!(parts, context.parts, "{place}");
        let row = history.row(at);
        let chain = store::read(history.store, |read| {
            let shown = store::shown_chain(read, &row, Default::default())?;
            Ok(shown.size)
        })
        .unwrap();
        let shown = (context.tokens, context.bytes, context.messages.len() as u64);
        assert_eq!(
            (chain.tokens, chain.bytes, chain.messages),
            shown,
            "{place}"
        );
        // Without a check, texts that no context shows are not read.
        let unchecked = BuildOptions {
            check: false,
            ..options
        };
        let unchecked =
            build_context_from_session(history.store, &history.session, &unchecked).unwrap();
        assert_eq!(json(&unchecked.messages), json(&expected), "{place}");
        assert_eq!(
            (unchecked.tokens, unchecked.bytes),
            (context.tokens, context.bytes),
            "{place}"
        );
        let faults = faults_of(&context.messages, true);
        assert!(faults.is_empty(), "{place}: {faults:?}");
        let text = serde_json::to_string(&context.messages).unwrap();
        has_nothing_removed(&rows, &leaf, &text, &place);
    }
    let current = store::read(history.store, |read| {
        let session = read.session(&history.session)?.unwrap();
        read.loop_by_key(session.current_loop.unwrap())
    });
    let current = current.unwrap().core.loop_id;
    for text in handed_back(history) {
        has_nothing_removed(&rows, &current, &text, &format!("{place}, handed back"));
    }
}

/// Returns the texts that an agent would be handed back about the current loop.
fn handed_back(history: &History<'_>) -> Vec<String> {
    let (store, session) = (history.store, &history.session);
    let mut texts = vec![handback(store, session, None, 100_000).unwrap()];
    for relation in [SummaryRelation::Replaces, SummaryRelation::Supplements] {
        texts.push(working_state(store, session, relation, 100_000).unwrap());
    }
    texts
        .into_iter()
        .flatten()
        .map(|found| found.text)
        .collect()
}

/// Fails if a piece of a text that edits removed or replaced is in a text: a word that no other text contains.
fn has_nothing_removed(rows: &Rows, leaf: &LoopId, text: &str, place: &str) {
    for removed in rows.removed_texts(leaf) {
        let pieces = removed.split(|c: char| !c.is_ascii_alphanumeric());
        for piece in pieces.filter(|piece| is_own(piece)) {
            assert!(!text.contains(piece), "{place}: {piece}");
        }
    }
}

/// True for a word of [`words`].
fn is_own(word: &str) -> bool {
    let numbers = word
        .strip_prefix('w')
        .and_then(|word| word.strip_suffix('z'));
    let numbers = numbers.and_then(|numbers| numbers.split_once('x'));
    numbers.is_some_and(|(id, nth)| id.parse::<u64>().is_ok() && nth.parse::<u64>().is_ok())
}

/// Undoes all runs that are live from the last loop, newest first: its context has the originals again.
fn all_comes_back(history: &History<'_>, seed: u64) {
    let leaf = loop_id(history.loops - 1);
    let request = FlipRequest {
        leaf: Some(leaf.clone()),
        ..FlipRequest::default()
    };
    loop {
        match undo(history.store, &history.session, &request) {
            Ok(_) => {}
            Err(StoreError::EditRefused(why)) => panic!("seed {seed}: {why}"),
            // No live run is left.
            Err(_) => break,
        }
    }
    let options = BuildOptions {
        leaf: Some(leaf.clone()),
        check: true,
        ..BuildOptions::default()
    };
    let context = build_context_from_session(history.store, &history.session, &options).unwrap();
    let rows = Rows::read(history.store, &history.session);
    let originals = rows.originals(&leaf);
    assert_eq!(json(&context.messages), json(&originals), "seed {seed}");
}

/// Compares the contexts just after each run of edits with the model's.
fn moments(history: &History<'_>, seed: u64) {
    let rows = Rows::read(history.store, &history.session);
    for run in rows.edit_runs() {
        let leaf = store::read(history.store, |read| read.loop_by_key(run.point.loop_key));
        let leaf = leaf.unwrap().core.loop_id;
        let options = BuildOptions {
            as_of: Some(AsOf::run(run.run_id.clone())),
            ..BuildOptions::default()
        };
        let context =
            build_context_from_session(history.store, &history.session, &options).unwrap();
        let expected = rows.context(&leaf, run.tick);
        assert_eq!(
            json(&context.messages),
            json(&expected),
            "seed {seed}, run {}",
            run.tick
        );
    }
}

fn json(messages: &[AgentMessage]) -> Vec<String> {
    messages
        .iter()
        .map(|message| serde_json::to_string(message).unwrap())
        .collect()
}
