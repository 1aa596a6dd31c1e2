//! The cost of many compactions and many loops: with four times as many, four times as much and no more.

use std::time::{Duration, Instant};

use loopstore::extend::active_blocks::ChainView;
use loopstore::extend::{self as store, SizesOverTime, leaf_of, session_of};
use loopstore::*;
use loopstore_admin::replay::changes;

use crate::workload::{Outcome, is_long, is_quick, judge, median};

/// The factor between a few and many.
const TIMES: usize = 4;
/// The largest ratio of their times; quadratic work takes sixteen times as long.
const BOUND: f64 = 6.0;
/// The number of loops of a session that is compacted repeatedly.
const LOOPS: usize = 8;
const ROUNDS: usize = 5;

fn request() -> CompactRequest {
    CompactRequest {
        trigger: CompactTrigger::Force,
        ..CompactRequest::default()
    }
}

/// Returns a session of eight loops that was compacted, and the compaction undone, `times` times.
fn undone(times: usize) -> Outcome<Store> {
    let store = Store::in_memory()?;
    let chat = store.session("session")?;
    for number in 0..LOOPS {
        let answer = |turn| Message::assistant(format!("Turn {turn}: {}", "rain, ".repeat(100)));
        chat.append([Message::user(format!("Question {number}"))])?;
        chat.append((0..8).map(answer))?;
    }
    for _ in 0..times {
        chat.compact(&request())?;
        chat.undo()?;
    }
    Ok(store)
}

/// Returns a session with this number of loops of a question and an answer.
fn of_loops(loops: usize) -> Outcome<Store> {
    let store = Store::in_memory()?;
    let all = (0..loops).flat_map(|number| {
        let question = Message::user(format!("Question {number}"));
        [question, Message::assistant(format!("Answer {number}"))]
    });
    store.session("session")?.append(all)?;
    Ok(store)
}

/// Returns the processor time of this thread, which does not depend on other programs as the elapsed time does;
/// the elapsed time if the system does not report it.
fn processor_time(begun: Instant) -> Duration {
    let report = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = report.split_whitespace().next();
    match nanos.and_then(|nanos| nanos.parse().ok()) {
        Some(nanos) => Duration::from_nanos(nanos),
        None => begun.elapsed(),
    }
}

/// Returns the processor time of some work, in milliseconds.
fn time(store: &Store, work: &dyn Fn(&Store) -> Outcome<()>) -> Outcome<f64> {
    let rounds = if is_long() { 1 } else { ROUNDS };
    let (begun, mut times) = (Instant::now(), Vec::new());
    for _ in 0..rounds {
        let before = processor_time(begun);
        work(store)?;
        times.push(processor_time(begun).saturating_sub(before));
    }
    Ok(median(times.into_iter()))
}

fn show(store: &Store) -> Outcome<()> {
    store.database().session_view(&SessionId::new("session")?)?;
    Ok(())
}

/// Reads the values of a report: the size of the context before and after each compaction and undo.
fn sizes(store: &Store) -> Outcome<()> {
    let id = SessionId::new("session")?;
    store::read(store.database(), |read| {
        let owner = session_of(read, &id)?;
        let leaf = leaf_of(read, &owner, None)?;
        let sizes = SizesOverTime::of(read, owner.key)?;
        for change in changes(read, leaf.key)? {
            for tick in [change.tick - 1, change.tick] {
                let view = ChainView {
                    at: Some(tick),
                    ..ChainView::default()
                };
                sizes.size(&leaf, view)?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

fn compact(store: &Store) -> Outcome<()> {
    let request = CompactRequest {
        dry_run: true,
        ..request()
    };
    store.session("session")?.compact(&request)?;
    Ok(())
}

/// Compares a few with more.
pub fn run(met: &mut bool) -> Outcome<()> {
    let (few_runs, few_loops) = match (is_quick(), is_long()) {
        (true, _) => (20, 500),
        (false, false) => (100, 4_000),
        (false, true) => (100, 125_000),
    };
    type Work = fn(&Store) -> Outcome<()>;
    let of_runs: [(&str, Work); 2] = [("show", show), ("sizes", sizes)];
    let of_many: [(&str, Work); 2] = [("first compaction", compact), ("show", show)];
    let runs = [undone(few_runs)?, undone(few_runs * TIMES)?];
    let loops = [of_loops(few_loops)?, of_loops(few_loops * TIMES)?];
    let mut compare = |what: &str, work: Work, [few, many]: &[Store; 2]| -> Outcome<()> {
        let [less, more] = [time(few, &work)?, time(many, &work)?];
        judge(
            &format!("{what}, {TIMES} times as many"),
            more / less,
            BOUND,
            met,
        );
        println!("    {less:.1} ms, {more:.1} ms");
        Ok(())
    };
    for (what, work) in of_runs {
        compare(&format!("{what} after compactions and undos"), work, &runs)?;
    }
    for (what, work) in of_many {
        compare(&format!("{what} of loops"), work, &loops)?;
    }
    Ok(())
}
