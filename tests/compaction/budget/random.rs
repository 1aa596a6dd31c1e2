//! Random sessions and windows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use loopstore::compact::CompactOutcome;
use loopstore::compaction::*;
use loopstore::extend as store;
use loopstore::extend::active_blocks::{self, ChainView};
use loopstore::*;

use crate::support::amount::{amount, from_variable};
use crate::support::histories::{History, Random, loop_id};

fn request(random: &mut Random, at: usize) -> CompactRequest {
    let keep = random.below(6) as u32;
    let policies = [
        CompactionPolicy::headroom(),
        CompactionPolicy::target(),
        CompactionPolicy::Reserves {
            system: 20,
            output: 10,
            safety: 10,
            share: 0.8,
        },
    ];
    CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: [120, 300, 1_000, 4_000][random.below(4) as usize],
                system_prompt_tokens: random.below(30),
                max_context_bytes: random.one_in(4).then(|| 500 + random.below(4_000)),
                ..ContextConfig::default()
            },
            CompactionConfig {
                policy: policies[random.below(3) as usize],
                keep_first_turns: random.below(3) as u32,
                keep_recent: [
                    KeepRecent::Turns(keep),
                    KeepRecent::UserTurns(keep),
                    KeepRecent::Messages(keep),
                ][random.below(3) as usize],
                max_summary_tokens: [0, 60, 500][random.below(3) as usize],
                max_rollup_tokens: [0, 60, 500][random.below(3) as usize],
                compaction_scope: match random.below(4) {
                    3 => CompactionScope::TokenBudget,
                    count => CompactionScope::FixedCount(count as usize),
                },
                older_loops: [OlderLoops::Rollup, OlderLoops::Skip][usize::from(random.one_in(4))],
                recent_window: [RecentWindow::Chain, RecentWindow::CurrentLoop]
                    [usize::from(random.one_in(4))],
                block_strategy: Some(match random.below(2) {
                    0 => std::sync::Arc::new(DefaultBlockCompaction),
                    _ => std::sync::Arc::new(DigestCompaction::default()),
                }),
                ..CompactionConfig::default()
            },
        ),
        leaf: Some(loop_id(at)),
        ..CompactRequest::default()
    }
}

/// Checks that each turn of the chain is shown, covered by a section, or rolled up.
fn assert_every_turn(history: &History<'_>, at: usize) {
    let leaf = history.row(at).key;
    store::read(history.store, |read| {
        let links = active_blocks::chain(read, leaf, ChainView::default())?;
        for link in &links {
            let Some(block) = &link.block else { continue };
            let layout = &block.layout;
            let sections = [layout.first, layout.compacted, layout.recent];
            let next = sections.into_iter().flatten().fold(0, |next, turns| {
                assert_eq!(turns.first, next, "{layout:?}");
                turns.end()
            });
            assert!(next <= link.turns, "{layout:?} of {} turns", link.turns);
        }
        let mut rolled_up = BTreeSet::new();
        let mut rollup = links.first().filter(|link| link.is_anchor());
        let anchor = rollup.map(|link| link.row.key);
        let mut next = rollup.take().and_then(|link| link.block.clone());
        while let Some(block) = next {
            let rows = read.coverage(block.key)?;
            let rows = rows.iter().filter(|row| row.loop_key <= block.loop_key);
            rolled_up.extend(rows.map(|row| row.loop_key));
            next = None;
            read.walk(leaf, &mut |row| {
                let mut of_loop = read.blocks_of_loop(row.key)?.into_iter();
                next = next.take().or(of_loop
                    .find(|other| Some(other.key) == block.extends)
                    .map(|row| row.core));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        read.walk(leaf, &mut |row| {
            let is_older = anchor.is_some_and(|anchor| row.key <= anchor);
            assert!(!is_older || row.totals.turns == 0 || rolled_up.contains(&row.key));
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
}

/// Returns the tokens that no plan may give up: a turn in flight, and the turns whose calls it answers.
fn in_flight(history: &History<'_>, at: usize) -> u64 {
    let row = history.row(at);
    let last = row.totals.turns.checked_sub(1);
    let Some(last) = last.filter(|_| row.totals.complete < row.totals.turns) else {
        return 0;
    };
    let (mut tokens, mut calls) = (BTreeMap::new(), BTreeMap::new());
    let mut held = BTreeSet::from([last]);
    store::read(history.store, |read| {
        read.messages(row.key, 0..row.totals.next_seq, &mut |stored| {
            let Some(turn) = stored.turn else {
                return Ok(ControlFlow::Continue(()));
            };
            *tokens.entry(turn).or_insert(0) += stored.body.tokens;
            let message = store::decode(read, stored.body)?;
            match message.message() {
                Some(Message::ToolResult(result)) if turn == last => {
                    held.extend(calls.get(&result.tool_call_id));
                }
                Some(message) => {
                    calls.extend(message.tool_calls().map(|call| (call.id.clone(), turn)));
                }
                None => {}
            }
            Ok(ControlFlow::Continue(()))
        })
    })
    .unwrap();
    held.iter().filter_map(|turn| tokens.get(turn)).sum()
}

fn play(seed: u64, tally: &mut BTreeMap<String, usize>) {
    let store = SqliteStore::in_memory().unwrap();
    let mut random = Random::new(seed);
    let mut history = History::new(&store, "s");
    for _ in 0..random.below(40) + 6 {
        history.step(&mut random);
        if !random.one_in(4) {
            continue;
        }
        let at = random.below(history.loops as u64) as usize;
        let request = request(&mut random, at);
        let report = compact_session_loops(&store, &history.session, &request).unwrap();
        let word = match (&report.fallback, report.outcome) {
            (Some(step), CompactOutcome::Committed) => step.clone(),
            (_, outcome) => format!("{outcome:?}"),
        };
        *tally.entry(word).or_default() += 1;
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            ..BuildOptions::default()
        };
        let seen = build_context_from_session(&store, &history.session, &options).unwrap();
        let target = request.policy.target();
        let hard = request.policy.window.budget();
        let size = store::Size {
            tokens: seen.tokens,
            bytes: seen.bytes,
            messages: seen.messages.len() as u64,
        };
        match report.outcome {
            CompactOutcome::Committed => {
                assert!(
                    hard.fits(size),
                    "seed {seed}: {size:?} {request:?}\n{report:?}"
                );
                assert_eq!(size, report.after, "seed {seed}: {request:?}\n{report:?}");
                let is_last = report.fallback.as_deref() == Some("last_turns");
                // Neither pinned messages nor turns in flight are given up.
                let pinned = pins(&store, &history.session, Some(&loop_id(at))).unwrap();
                let is_bound = !pinned.pins.is_empty() || in_flight(&history, at) > target.tokens;
                assert!(
                    is_last || target.fits(size) || is_bound,
                    "seed {seed}: {size:?} over {target:?}\n{report:?}"
                );
                assert_every_turn(&history, at);
            }
            CompactOutcome::NotNeeded if report.error.is_none() => {
                // A few messages never reach the reserves.
                let is_few = matches!(
                    request.policy.compaction.policy,
                    CompactionPolicy::Reserves { .. }
                );
                let fits = hard.fits(report.before);
                assert!(is_few || fits, "seed {seed}: {report:?} {request:?}");
            }
            CompactOutcome::Failed => assert!(
                report.too_small.is_some(),
                "seed {seed}: {request:?} {report:?}"
            ),
            _ => {}
        }
        let again = compact_session_loops(&store, &history.session, &request).unwrap();
        assert_ne!(
            again.outcome,
            CompactOutcome::Committed,
            "seed {seed}: {request:?}\n{report:?}\n{again:?}"
        );
        let unchanged = build_context_from_session(&store, &history.session, &options).unwrap();
        assert_eq!(unchanged, seen, "seed {seed}");
    }
    let verified = loopstore_verify::verify(&store).unwrap();
    assert!(verified.ok, "seed {seed}: {:#?}", verified.problems);
}

#[test]
fn a_context_fits_or_there_is_a_typed_error() {
    let histories = amount("LOOPSTORE_HISTORIES", 1_000);
    let seeds = match from_variable("LOOPSTORE_SEED") {
        Some(seed) => vec![seed],
        None => (0..histories).collect(),
    };
    let mut tally = BTreeMap::new();
    for seed in seeds {
        play(seed, &mut tally);
    }
    if tally.values().sum::<usize>() > 1_000 {
        for word in ["Committed", "Failed", "prune", "keep_first", "last_turns"] {
            assert!(tally.contains_key(word), "{tally:?}");
        }
    }
}
