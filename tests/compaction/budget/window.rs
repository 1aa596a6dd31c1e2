//! Summaries whose size depends on the window: the size that a policy gives them, and the bonus of a first one.

use loopstore::compact::CompactOutcome;
use loopstore::model::Turns;
use loopstore::*;

use super::stage::compact;
use crate::support::histories::{History, answer, result, user};

const WINDOW: u64 = 40_000;

/// Records turns in which an agent reads, finds and answers, each with different words.
fn work(history: &History<'_>, turns: std::ops::Range<u32>) {
    for turn in turns {
        let call = format!("c{turn}");
        let lines = (0..30).map(|line| {
            format!(
                "gate_{turn}_{line} of sluice {} holds {} litres\n",
                turn * 7 + line,
                turn * 131 + line * 17
            )
        });
        let output: String = lines.collect();
        let found = format!(
            "Step {turn}: the weir number {turn} leaks because bolt B{turn}-{} is loose. I decided to \
             replace it with type R{}.",
            turn * 13,
            turn % 9
        );
        history.append(
            history.loops - 1,
            vec![
                user(
                    &format!("please look after weir {turn} and its bolts"),
                    turn,
                ),
                answer(&found, &[&call], turn),
                result(&call, vec![loopstore::Content::text(output)], turn),
            ],
        );
    }
}

fn request(policy: &Policy) -> CompactRequest {
    policy.request()
}

fn summary(report: &CompactReport) -> (u64, Option<Turns>) {
    let block = report.blocks.last().unwrap();
    (report.after.tokens, block.keep_compacted)
}

#[test]
fn a_first_summary_fills_the_window_and_a_later_one_extends_it() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..400);
    let request = request(&Policy::new(WINDOW));
    let target = request.policy.target().tokens;
    assert_eq!(
        (request.policy.compaction.max_summary_tokens, target),
        (8_500, 34_000)
    );
    let first = compact(&history, &request);
    assert_eq!(
        (first.outcome, &first.fallback),
        (CompactOutcome::Committed, &None)
    );
    let (tokens, turns) = summary(&first);
    assert!(
        (target * 80 / 100..=target).contains(&tokens),
        "{tokens} of {target}"
    );
    assert_eq!(turns.map(|turns| (turns.first, turns.last)), Some((2, 389)));
    // The second compaction continues from the first: the first summary is not read again, and there is room to grow.
    work(&history, 400..440);
    let second = compact(&history, &request);
    assert_eq!(
        (second.outcome, &second.fallback),
        (CompactOutcome::Committed, &None)
    );
    let (tokens, _) = summary(&second);
    assert!(tokens < target * 80 / 100, "{tokens} of {target}");
}

#[test]
fn the_same_session_gives_the_same_bytes() {
    let texts = || {
        let store = SqliteStore::in_memory().unwrap();
        let history = History::new(&store, "s");
        work(&history, 0..150);
        compact(&history, &request(&Policy::new(WINDOW)));
        super::stage::texts(&super::stage::context(&history))
    };
    assert_eq!(texts(), texts());
}

#[test]
fn who_names_a_number_gets_no_more() {
    let store = SqliteStore::in_memory().unwrap();
    let history = History::new(&store, "s");
    work(&history, 0..150);
    let request = request(&Policy::new(WINDOW).max_summary_tokens(900));
    let report = compact(&history, &request);
    let kept = 12 * report.before.tokens / 150;
    assert!(
        report.after.tokens <= kept + 1_100,
        "{}",
        report.after.tokens
    );
}

#[test]
fn policies_follow_the_window_and_the_strategy() {
    let tokens = |policy: Policy| {
        let config = policy.request().policy.compaction;
        (config.max_summary_tokens, config.max_rollup_tokens)
    };
    assert_eq!(tokens(Policy::new(128_000)), (27_200, 27_200));
    assert_eq!(tokens(Policy::new(6_000)), (2_000, 2_000));
    let lines = Policy::new(128_000).strategy(DefaultBlockCompaction);
    assert_eq!(tokens(lines), (2_000, 2_000));
    let target = Policy::new(100_000).compaction_policy(CompactionPolicy::target());
    assert_eq!(tokens(target.max_rollup_tokens(70)), (12_500, 70));
}
