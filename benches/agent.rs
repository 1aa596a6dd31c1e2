//! A simulated agent that asks for its context before each call: `cargo bench --bench agent`.
//!
//! 3,000 turns over 200 loops with a window of 32,000 tokens. It must never see more than its
//! window nor a request that a provider refuses, compact at most once in 20 turns, and a
//! compaction must not cost more late in the session than early. Then chains of more and more
//! loops: the second compaction of each costs what is new, not what is there.

mod workload;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use loopstore::export::provider::{Provider, provider_faults, provider_messages};
use loopstore::orchestrate::CompactOutcome;
use loopstore::*;
use workload::{Agent, judge, median};

const TURNS: u32 = 15;
const LOOPS: usize = 200;
const WINDOW: u64 = 32_000;

struct Figures {
    calls: u32,
    largest: u64,
    refused: usize,
    /// When, counted in turns, and how long.
    compactions: Vec<(u32, Duration)>,
    builds: Vec<Duration>,
}

fn live(agent: &mut Agent) -> Result<Figures, Box<dyn std::error::Error>> {
    let window = ContextConfig {
        max_context_tokens: WINDOW,
        ..ContextConfig::default()
    };
    let mut figures = Figures {
        calls: 0,
        largest: 0,
        refused: 0,
        compactions: Vec::new(),
        builds: Vec::new(),
    };
    for at in 0..LOOPS {
        agent.start(at)?;
        for turn in 0..TURNS {
            if turn % 8 == 0 {
                let prompt = Message::user(agent.random.text(120));
                agent.append(vec![prompt], turn)?;
            }
            let compactor =
                Compactor::new(&agent.store, CompactionConfig::default(), window.clone());
            let begun = Instant::now();
            let next = compactor.maybe_compact(&agent.session, None)?;
            let took = begun.elapsed();
            figures.calls += 1;
            figures.largest = figures.largest.max(next.context.tokens);
            let committed = |r: &CompactReport| r.outcome == CompactOutcome::Committed;
            if next.reports.iter().any(committed) {
                figures.compactions.push((figures.calls, took));
            } else {
                figures.builds.push(took);
            }
            for provider in [Provider::OpenAi, Provider::Anthropic] {
                let form = provider_messages(&next.context.messages, provider);
                let form = serde_json::to_value(form)?;
                figures.refused += provider_faults(&form["messages"], provider).len();
            }
            agent.turn(turn)?;
        }
    }
    Ok(figures)
}

/// Compacts a chain of `loops` loops, adds one loop, and returns the time of the next compaction.
fn second_compaction(loops: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let mut agent = Agent::new(&folder.path().join("chain.db"))?;
    let request = CompactRequest {
        trigger: CompactTrigger::Length,
        ..CompactRequest::default()
    };
    let mut times = Vec::new();
    for at in 0..loops + 5 {
        agent.start(at)?;
        let prompt = Message::user(agent.random.text(60));
        agent.append(vec![prompt], 0)?;
        for turn in 1..5 {
            agent.turn(turn)?;
        }
        if at + 1 >= loops {
            let begun = Instant::now();
            let report = compact_session_loops(&agent.store, &agent.session, &request)?;
            assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
            times.push(begun.elapsed());
        }
    }
    Ok(median(times.into_iter().skip(1)))
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let mut agent = Agent::new(&folder.path().join("agent.db"))?;
    let figures = live(&mut agent)?;
    let quarter = figures.calls / 4;
    let of = |range: std::ops::Range<u32>| {
        let within = figures
            .compactions
            .iter()
            .filter(move |(at, _)| range.contains(at));
        median(within.map(|(_, time)| *time))
    };
    let (early, late) = (of(quarter..2 * quarter), of(3 * quarter..figures.calls + 1));
    println!(
        "{} calls over {LOOPS} loops, window {WINDOW}",
        figures.calls
    );
    println!(
        "{} compactions, {early:.2} ms early, {late:.2} ms late",
        figures.compactions.len()
    );
    println!(
        "a call without one {:.2} ms",
        median(figures.builds.iter().copied())
    );
    let mut met = true;
    judge(
        "largest context, tokens",
        figures.largest as f64,
        WINDOW as f64,
        &mut met,
    );
    judge("requests refused", figures.refused as f64, 0.0, &mut met);
    let share = figures.compactions.len() as f64 * 20.0 / f64::from(figures.calls);
    judge("compactions in 20 turns", share, 1.0, &mut met);
    judge("late compaction / early", late / early, 1.25, &mut met);
    let (short, long) = (second_compaction(100)?, second_compaction(10_000)?);
    println!("next compaction of a chain: 100 loops {short:.2} ms, 10,000 loops {long:.2} ms");
    judge("10,000 loops / 100", long / short, 1.25, &mut met);
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
