//! A simulated agent that asks for its context before each call: `cargo bench --bench agent`.
//!
//! 1,200 turns (`LOOPSTORE_TURNS=3000` for more) in loops of 15 with a window of 32,000 tokens. A context must
//! never exceed its window nor be a request that a provider rejects; there must be at most one compaction in 20
//! turns, and a compaction must not cost more late in the session than early. Then chains of more and more
//! loops: the second compaction of each costs as much as the new content, not as the whole chain.
//!
//! It also prints how much of a call a provider's prompt cache has: the share of its tokens that are byte for
//! byte the beginning of the call before, compared with `one-liner` and plain truncation.

mod workload;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loopstore::compact::CompactOutcome;
use loopstore::provider::{Form, ProviderRequest};
use loopstore::*;
use loopstore_testing::provider_faults::provider_faults;
use workload::{Agent, judge, median};

const TURNS: u32 = 15;
const WINDOW: u64 = 32_000;

fn loops() -> usize {
    let given = std::env::var("LOOPSTORE_TURNS").ok();
    let turns = given.and_then(|n| n.parse().ok()).unwrap_or(1_200);
    turns / TURNS as usize
}

struct Figures {
    calls: u32,
    largest: u64,
    refused: usize,
    /// The turn and the duration of each compaction.
    compactions: Vec<(u32, Duration)>,
    builds: Vec<Duration>,
    cached: Cached,
}

/// The share of the calls that a prompt cache has.
#[derive(Default)]
struct Cached {
    before: Vec<String>,
    known: u64,
    all: u64,
}

impl Cached {
    fn call(&mut self, context: &Context) -> Result<(), Box<dyn std::error::Error>> {
        let mut now = Vec::new();
        let mut is_prefix = true;
        for (at, message) in context.messages.iter().enumerate() {
            let json = serde_json::to_string(message)?;
            let tokens = message_tokens(message);
            is_prefix &= self.before.get(at) == Some(&json);
            self.known += if is_prefix { tokens } else { 0 };
            self.all += tokens;
            now.push(json);
        }
        self.before = now;
        Ok(())
    }

    fn share(&self) -> f64 {
        100.0 * self.known as f64 / self.all as f64
    }
}

/// Returns the share for calls with the last messages that fit: once the window is full, each call begins with
/// another message.
fn share_of_truncation(agent: &Agent) -> f64 {
    let said = agent.said.borrow();
    let (mut first, mut known, mut all) = (0, 0, 0);
    let mut tokens = 0;
    for (end, new) in said.iter().enumerate() {
        let (before, old) = (tokens, first);
        tokens += new;
        while tokens > WINDOW && first < end {
            tokens -= said[first];
            first += 1;
        }
        known += if first == old { before } else { 0 };
        all += tokens;
    }
    100.0 * known as f64 / all as f64
}

fn live(agent: &mut Agent, policy: Policy) -> Result<Figures, Box<dyn std::error::Error>> {
    let store = Store::from(Arc::clone(&agent.store) as Arc<dyn Database>);
    let chat = store.session(&agent.session)?.with_policy(policy);
    let mut figures = Figures {
        calls: 0,
        largest: 0,
        refused: 0,
        compactions: Vec::new(),
        builds: Vec::new(),
        cached: Cached::default(),
    };
    for at in 0..loops() {
        agent.start(at)?;
        for turn in 0..TURNS {
            if turn % 8 == 0 {
                let prompt = Message::user(agent.random.text(120));
                agent.append(vec![prompt], turn)?;
            }
            let begun = Instant::now();
            let ready = chat.prepare()?;
            let took = begun.elapsed();
            figures.calls += 1;
            figures.cached.call(&ready.context)?;
            figures.largest = figures.largest.max(ready.context.tokens);
            if ready.was_compacted() {
                figures.compactions.push((figures.calls, took));
            } else {
                figures.builds.push(took);
            }
            for form in Form::ALL {
                let request = ProviderRequest::new(form, ready.messages());
                let request = serde_json::to_value(request)?;
                figures.refused += provider_faults(&request, form).len();
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
            let report = compact_session_loops(&*agent.store, &agent.session, &request)?;
            assert_eq!(report.outcome, CompactOutcome::Committed, "{report:?}");
            times.push(begun.elapsed());
        }
    }
    Ok(median(times.into_iter().skip(1)))
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let mut agent = Agent::new(&folder.path().join("agent.db"))?;
    let figures = live(&mut agent, Policy::new(WINDOW))?;
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
        "{} calls over {} loops, window {WINDOW}",
        figures.calls,
        loops()
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
    let mut other = Agent::new(&folder.path().join("one-liner.db"))?;
    let one_liner = Policy::new(WINDOW).strategy(DefaultBlockCompaction);
    let one_liner = live(&mut other, one_liner)?.cached.share();
    println!(
        "tokens that the call before began with too: digest {:.1} %, one-liner {one_liner:.1} %, \
         plain truncation {:.1} %",
        figures.cached.share(),
        share_of_truncation(&agent)
    );
    let many = 50 * loops().min(200);
    let (short, long) = (second_compaction(100)?, second_compaction(many)?);
    println!("next compaction of a chain: 100 loops {short:.2} ms, {many} loops {long:.2} ms");
    judge("many loops / 100", long / short, 1.25, &mut met);
    Ok(met)
}

fn main() -> ExitCode {
    workload::exit(run())
}
