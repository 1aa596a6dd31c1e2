//! Contexts as of times at which the last turn was in flight.

use loopstore::compaction::{CompactionConfig, CompactionScope, OlderLoops, RecentWindow};
use loopstore::{
    AsOf, BuildOptions, CompactRequest, CompactTrigger, Context, ContextConfig, KeepRecent, Policy,
    SqliteStore, build_context_from_session, compact_session_loops,
};

use crate::support::histories::{History, Random, answer, loop_id, result, user};

/// Returns all combinations of build options.
fn all_options() -> Vec<BuildOptions> {
    let older = [None, Some(OlderLoops::Skip), Some(OlderLoops::Rollup)];
    let scopes = [
        None,
        Some(CompactionScope::FixedCount(0)),
        Some(CompactionScope::FixedCount(1)),
        Some(CompactionScope::TokenBudget),
    ];
    let way = |older_loops| {
        scopes.map(|scope| BuildOptions {
            older_loops,
            scope,
            ..BuildOptions::default()
        })
    };
    older.into_iter().flat_map(way).collect()
}

/// Returns a context as text. For a loop that had ended and was continued, the time of its end is not recorded, so its
/// open calls are not reported as faults.
fn text_of(context: &Context, was_ended: bool) -> String {
    let messages = serde_json::to_string(&context.messages).unwrap();
    let faults = if was_ended { &[][..] } else { &context.faults };
    format!(
        "{messages}\n{:?}\n{faults:?}\n{} {}",
        context.parts, context.tokens, context.bytes
    )
}

fn build(history: &History<'_>, options: &BuildOptions, was_ended: bool) -> String {
    let built = build_context_from_session(history.store, &history.session, options);
    text_of(&built.unwrap(), was_ended)
}

/// A context of a loop, and its tick.
struct ContextAt {
    at: AsOf,
    manifest: AsOf,
    options: BuildOptions,
    was_ended: bool,
    text: String,
}

fn see(history: &History<'_>, at: &AsOf, leaf: usize, seen: &mut Vec<ContextAt>) {
    let was_ended = history.row(leaf).status.is_ended();
    for options in all_options() {
        let now = BuildOptions {
            leaf: Some(loop_id(leaf)),
            record: true,
            ..options.clone()
        };
        let built = build_context_from_session(history.store, &history.session, &now).unwrap();
        seen.push(ContextAt {
            at: at.clone(),
            text: text_of(&built, was_ended),
            manifest: AsOf::manifest(built.manifest.unwrap()),
            was_ended,
            options,
        });
    }
}

fn compare(history: &History<'_>, seen: &[ContextAt], what: &str) {
    for one in seen {
        let (at, options) = (&one.at, &one.options);
        let then = BuildOptions {
            as_of: Some(at.clone()),
            ..options.clone()
        };
        let found = build(history, &then, one.was_ended);
        assert_eq!(found, one.text, "{what}: {at:?} {options:?}");
        let recorded = BuildOptions {
            as_of: Some(one.manifest.clone()),
            ..BuildOptions::default()
        };
        let found = build(history, &recorded, one.was_ended);
        assert_eq!(found, one.text, "{what}: a manifest of {options:?}");
    }
}

fn turn(at: usize, turn: u32) -> AsOf {
    AsOf::Turn {
        loop_id: loop_id(at),
        turn,
    }
}

/// Records four loops, the last of which is running; the options of each build come from a run.
fn chain(store: &SqliteStore, recent_window: RecentWindow, recent: u32) -> History<'_> {
    let mut history = History::new(store, "s");
    for at in 0..4 {
        if at > 0 {
            history.start_loop(Some(at - 1), None);
        }
        for turn in 0..3 * u32::from(at < 3) {
            let text = format!("{at} {turn} {}", "word ".repeat(50));
            history.append(at, vec![user(&text, turn), answer(&text, &[], turn)]);
        }
        history.end_loop(at);
    }
    let request = CompactRequest {
        policy: Policy::of(
            ContextConfig::default(),
            CompactionConfig {
                keep_first_turns: 0,
                keep_recent: KeepRecent::Turns(recent),
                max_summary_tokens: 40,
                compaction_scope: CompactionScope::FixedCount(0),
                older_loops: OlderLoops::Skip,
                recent_window,
                ..CompactionConfig::default()
            },
        ),
        leaf: Some(loop_id(2)),
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    };
    compact_session_loops(store, &history.session, &request).unwrap();
    history
}

#[test]
fn a_turn_in_flight_is_in_flight_as_of_its_moment() {
    for window in [RecentWindow::CurrentLoop, RecentWindow::Chain] {
        for recent in [1, 2, 3, 4, 5] {
            let store = SqliteStore::in_memory().unwrap();
            let mut history = chain(&store, window, recent);
            history.start_loop(Some(2), None);
            let leaf = history.loops - 1;
            let mut seen = Vec::new();
            let texts = |n: u32| format!("turn {n} {}", "word ".repeat(20));
            // A prompt without an answer, a call without its result, a complete turn.
            history.append(leaf, vec![user(&texts(0), 0)]);
            see(&history, &turn(leaf, 0), leaf, &mut seen);
            let called = answer(&texts(1), &["c"], 1);
            history.append(leaf, vec![user(&texts(1), 1), called]);
            see(&history, &turn(leaf, 1), leaf, &mut seen);
            history.append(leaf, vec![user(&texts(2), 2), answer(&texts(2), &[], 2)]);
            see(&history, &turn(leaf, 2), leaf, &mut seen);
            // A late result, more turns, a compaction and an undo come afterwards.
            history.append(
                leaf,
                vec![result("c", Vec::new(), 3), answer("late", &[], 3)],
            );
            for turn in 4..7 {
                history.append(leaf, vec![user("more", turn), answer("yes", &[], turn)]);
            }
            compare(&history, &seen, &format!("{window:?} {recent}"));
            history.compact(leaf, (0, 1), true);
            history.flip(leaf, false);
            compare(&history, &seen, &format!("{window:?} {recent}, compacted"));
        }
    }
}

#[test]
fn a_run_on_an_ended_loop_is_seen_as_it_was() {
    let store = SqliteStore::in_memory().unwrap();
    let mut history = chain(&store, RecentWindow::Chain, 4);
    history.start_loop(Some(2), None);
    let leaf = history.loops - 1;
    for turn in 0..5 {
        let text = format!("{turn} {}", "word ".repeat(60));
        history.append(leaf, vec![user(&text, turn), answer(&text, &[], turn)]);
    }
    // The loop ended with an open call: all of its turns are complete.
    history.append(leaf, vec![user("last", 5), answer("I call.", &["open"], 5)]);
    history.end_loop(leaf);
    let report = history.compact(leaf, (0, 7), true);
    assert_eq!(report["outcome"], "committed");
    let run = report["run_id"].as_str().unwrap();
    let mut seen = Vec::new();
    see(&history, &AsOf::Run(run.into()), leaf, &mut seen);
    history.append(leaf, vec![user("more", 6), answer("yes", &[], 6)]);
    compare(&history, &seen, "after more turns");
}

#[test]
fn random_moments_are_shown_again() {
    for seed in 0..5 {
        println!("seed {seed}");
        let store = SqliteStore::in_memory().unwrap();
        let mut random = Random::new(seed + 500);
        let mut history = History::new(&store, "s");
        let mut seen: Vec<(usize, u32, Vec<ContextAt>)> = Vec::new();
        for _ in 0..40 {
            history.step(&mut random);
            let (tick, leaf) = now(&history);
            let row = history.row(leaf);
            let last = row.totals.turns.checked_sub(1);
            // The time at which a loop ended is not recorded.
            let Some(last) = last.filter(|_| !row.status.is_ended()) else {
                continue;
            };
            // Only if the last event is the last message of the turn.
            if turn_tick(&history, leaf, last) == tick {
                let mut here = Vec::new();
                see(&history, &turn(leaf, last), leaf, &mut here);
                seen.retain(|(at, turn, _)| (*at, *turn) != (leaf, last));
                seen.push((leaf, last, here));
            }
        }
        for (leaf, last, here) in seen {
            // A loop that was not continued may have ended since.
            let row = history.row(leaf);
            if last + 1 < row.totals.turns {
                compare(&history, &here, &format!("seed {seed}"));
            }
        }
    }
}

fn now(history: &History<'_>) -> (i64, usize) {
    loopstore::extend::read(history.store, |read| {
        let session = read.session(&history.session)?.unwrap();
        let row = read.loop_by_key(session.current_loop.unwrap())?;
        let number = row.loop_id.as_str().rsplit('-').next().unwrap();
        Ok((session.tick, number.parse().unwrap()))
    })
    .unwrap()
}

fn turn_tick(history: &History<'_>, at: usize, turn: u32) -> i64 {
    let key = history.row(at).key;
    loopstore::extend::read(history.store, |read| {
        Ok(read.turn(key, turn)?.unwrap().tick)
    })
    .unwrap()
}
