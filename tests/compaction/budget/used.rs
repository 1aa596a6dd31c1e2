//! The share of its goal that a compaction uses. The goal is the target of the policy, less the room for later turns.
//!
//! A compaction uses at least 85 %, or keeps all the requested turns at the end, or the newest turn that it gave up
//! would not have fitted even with its tool output truncated as far as pruning truncates.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use loopstore::compact::{BlockReport, CompactOutcome};
use loopstore::extend as store;
use loopstore::extend::active_blocks::{ChainLink, ChainView, chain};
use loopstore::extend::{BlockKind, Turns};
use loopstore::model::SessionId;
use loopstore::*;
use loopstore_transcripts::{ImportOptions, import_paths};

use crate::support::amount::amount;
use crate::support::histories::{History, Random, answer, result, user};

/// The tokens that pruning leaves of a tool output.
const LEAST_OUTPUT: u64 = 100;

/// The percentages of the target that each step used, printed for people.
#[derive(Default)]
struct Shares(BTreeMap<String, Vec<u64>>);

impl Shares {
    fn add(&mut self, step: Option<&str>, share: u64) {
        let step = step.unwrap_or("as asked").to_owned();
        self.0.entry(step).or_default().push(share);
    }

    /// Returns the median of a step; 100 if the step was never taken.
    fn median(&mut self, step: &str) -> u64 {
        let shares = self.0.entry(step.into()).or_default();
        shares.sort_unstable();
        shares.get(shares.len() / 2).copied().unwrap_or(100)
    }

    fn print(&mut self) {
        for step in self.0.keys().cloned().collect::<Vec<_>>() {
            let median = self.median(&step);
            let shares = &self.0[&step];
            println!(
                "{step}: {} runs, least {} %, median {median} %",
                shares.len(),
                shares[0]
            );
        }
    }
}

fn request(config: CompactionConfig, window: u64) -> CompactRequest {
    CompactRequest {
        policy: Policy::of(
            ContextConfig {
                max_context_tokens: window,
                ..ContextConfig::default()
            },
            config,
        ),
        dry_run: true,
        ..CompactRequest::default()
    }
}

/// Returns the tokens that a compaction goes down to: six typical turns below the size at which the policy fires.
fn goal(request: &CompactRequest, report: &CompactReport) -> u64 {
    let limit = report.after.tokens + report.room;
    let least = (limit / 4).min(1_000).max(limit * 8 / 100);
    let room = (6 * report.turn_tokens).clamp(least, limit / 2);
    request.policy.target().tokens.min(limit - room)
}

/// Compacts at many windows.
fn check(store: &SqliteStore, id: &SessionId, shares: &mut Shares) {
    let whole = build_context_from_session(store, id, &BuildOptions::default()).unwrap();
    for percent in [95, 80, 60, 45, 30, 20, 10, 5] {
        let window = whole.tokens * percent / 100;
        if window < 500 {
            continue;
        }
        for (turns, policy) in [
            (10, CompactionPolicy::headroom()),
            (10, CompactionPolicy::target()),
            (1_000, CompactionPolicy::headroom()),
        ] {
            let config = CompactionConfig {
                policy,
                keep_recent: KeepRecent::Turns(turns),
                ..CompactionConfig::default()
            };
            let request = request(config, window);
            let report = compact_session_loops(store, id, &request).unwrap();
            if report.outcome != CompactOutcome::Committed {
                continue;
            }
            let share = report.after.tokens * 100 / goal(&request, &report);
            shares.add(report.fallback.as_deref(), share);
            let kept = report.blocks.iter().filter_map(|block| block.keep_recent);
            let kept: u32 = kept.map(|turns| turns.end() - turns.first).sum();
            if report.fallback.is_some() && share < 85 && kept < turns {
                assert_nothing_more_fits(store, id, &request, &report);
            }
        }
    }
}

/// Checks that the newest turn that was given up does not fit, even at its smallest size.
fn assert_nothing_more_fits(
    store: &SqliteStore,
    id: &SessionId,
    request: &CompactRequest,
    report: &CompactReport,
) {
    let target = goal(request, report);
    let (links, least) = store::read(store, |read| {
        let session = read.session(id)?.unwrap();
        let leaf = session.current_loop.unwrap();
        let links = chain(read, leaf, ChainView::default())?;
        let Some((link, turn)) = newest_given_up(&links, &report.blocks) else {
            return Ok((links, None));
        };
        let first = read.turn(link.row.key, turn)?.unwrap().first_seq;
        let next = read.turn(link.row.key, turn + 1)?;
        let end = next.map_or(link.end_seq, |turn| turn.first_seq);
        let mut least = 0;
        read.sizes(link.row.key, first..end, &mut |message| {
            least += match message.role {
                Role::Extension => 0,
                Role::ToolResult => message.size.tokens.min(LEAST_OUTPUT),
                _ => message.size.tokens,
            };
            Ok(ControlFlow::Continue(()))
        })?;
        let name = (link.row.loop_id.clone(), turn, least);
        Ok((links, Some(name)))
    })
    .unwrap();
    let Some((loop_id, turn, least)) = least else {
        // Every turn is kept: the rest of the target is due to the requested truncation.
        assert!(!links.is_empty());
        return;
    };
    // The size of a text is an estimate until it is made, so a step aims lower.
    let aim = target * 92 / 100;
    assert!(
        report.after.tokens + least > aim,
        "{id}: turn {turn} of {loop_id} has {least} tokens, target {target}: {report:?}"
    );
}

/// Returns the newest turn of which a run shows nothing.
fn newest_given_up<'a>(
    links: &'a [ChainLink],
    blocks: &[BlockReport],
) -> Option<(&'a ChainLink, u32)> {
    for link in links.iter().rev() {
        let Some(block) = blocks.iter().find(|b| b.loop_id == link.row.loop_id) else {
            continue;
        };
        let last_hidden = block.keep_compacted.map(|turns: Turns| turns.last);
        let was_hidden = |turn: u32| {
            let before = link.block.as_ref();
            let hidden = before.and_then(|block| block.layout.compacted);
            hidden.is_some_and(|turns| (turns.first..=turns.last).contains(&turn))
        };
        match last_hidden {
            Some(turn) if was_hidden(turn) => return None,
            Some(turn) => return Some((link, turn)),
            None if block.kind == BlockKind::Rollup => return None,
            None => {}
        }
    }
    None
}

#[test]
fn recorded_sessions_use_their_target() {
    let Some(folder) = std::env::var_os("LOOPSTORE_REAL_TRANSCRIPTS").map(PathBuf::from) else {
        println!("LOOPSTORE_REAL_TRANSCRIPTS is not set: nothing measured");
        return;
    };
    let store = SqliteStore::in_memory().unwrap();
    let options = ImportOptions::default();
    let report = import_paths(&store, &[folder], &options, &mut |_| {}).unwrap();
    let mut shares = Shares::default();
    for id in &report.sessions {
        check(&store, id, &mut shares);
    }
    shares.print();
    for step in ["prune", "keep_first", "last_turns"] {
        assert!(shares.median(step) >= 85, "{step}");
    }
}

/// Generates an agent's session: prompts, calls with outputs of any size, loops.
fn generate(history: &mut History<'_>, random: &mut Random) {
    for turn in 0..30 + random.below(60) as u32 {
        if random.one_in(12) {
            history.start_loop(Some(history.loops - 1), None);
        }
        let call = format!("c{turn}");
        let bytes = [200, 600, 1_500, 6_000, 40_000][random.below(5).min(random.below(5)) as usize];
        let mut messages = Vec::new();
        if random.one_in(4) {
            let text = "please ".repeat(random.below(300) as usize);
            messages.push(user(&format!("{turn} {text}"), turn));
        }
        let text = "so ".repeat(random.below(700) as usize);
        messages.push(answer(&format!("step {turn} {text}"), &[&call], turn));
        let text = format!("begin-{turn} {}", "value 17 ".repeat(bytes / 9));
        messages.push(result(&call, vec![Content::text(text)], turn));
        history.append(history.loops - 1, messages);
    }
}

#[test]
fn random_sessions_use_their_target() {
    let mut shares = Shares::default();
    for seed in 0..amount("LOOPSTORE_USED", 30) {
        let store = SqliteStore::in_memory().unwrap();
        let mut random = Random::new(seed);
        let mut history = History::new(&store, "s");
        generate(&mut history, &mut random);
        check(&store, &history.session, &mut shares);
    }
    shares.print();
    for step in ["prune", "keep_first", "last_turns"] {
        assert!(shares.median(step) >= 85, "{step}");
    }
}
