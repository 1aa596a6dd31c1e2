//! A simulated agent that asks for its context before each call: `cargo bench --bench agent`.
//!
//! 3,000 turns over 200 loops with a window of 32,000 tokens. It must never see more than its
//! window nor a request that a provider refuses, compact at most once in 20 turns, and a
//! compaction must not cost more late in the session than early. Then chains of more and more
//! loops: the second compaction of each costs what is new, not what is there.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use loopstore::export::provider::{Provider, provider_faults, provider_messages};
use loopstore::orchestrate::CompactOutcome;
use loopstore::store::{self, append, session};
use loopstore::*;

const TURNS: u32 = 15;
const LOOPS: usize = 200;
const WINDOW: u64 = 32_000;

/// A small deterministic generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// Words with now and then something that looks like a name.
    fn text(&mut self, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            match self.below(9) {
                0 => text.push_str(&format!(
                    "src/mod_{}/file_{}.rs ",
                    self.below(40),
                    self.below(99)
                )),
                1 => text.push_str(&format!("id={:x}\n", self.below(1 << 40))),
                _ => text.push_str("the quick brown fox "),
            }
        }
        text
    }

    /// The size of a tool's output: most are small, a few are large.
    fn output(&mut self) -> usize {
        match self.below(40) {
            0 => 8_000,
            1..=5 => 2_000,
            _ => 200 + self.below(600) as usize,
        }
    }
}

struct Agent {
    store: SqliteStore,
    session: SessionId,
    random: Random,
}

impl Agent {
    fn new(file: &std::path::Path) -> Result<Self, Box<dyn std::error::Error>> {
        let store = SqliteStore::open(file)?;
        let id = SessionId::new("agent")?;
        store::write(&store, |write| {
            session::create_session(write, &Session::new(id.clone(), "agent"), None, None)
        })?;
        Ok(Self {
            store,
            session: id,
            random: Random(0x9E37_79B9_7F4A_7C15),
        })
    }

    fn start(&self, at: usize) -> Result<(), Box<dyn std::error::Error>> {
        let id = |at: usize| LoopId::new(format!("loop-{at}"));
        let parent = at.checked_sub(1).map(id).transpose()?;
        let record = LoopRecord::new(id(at)?, parent);
        store::write(&self.store, |write| {
            let Some(row) = write.session(&self.session)? else {
                return Err(StoreError::NoSession(self.session.to_string()));
            };
            session::create_loop(write, row.key, &record)
        })?;
        Ok(())
    }

    fn append(&self, messages: Vec<Message>, turn: u32) -> Result<(), StoreError> {
        let place = || TurnId::new("l", turn);
        let messages = messages
            .into_iter()
            .map(|m| AgentMessage::from(m).in_turn(place()).into());
        store::write(&self.store, |write| {
            let Some(row) = write.session(&self.session)? else {
                return Err(StoreError::NoSession(self.session.to_string()));
            };
            let Some(current) = row.current_loop else {
                return Err(StoreError::Invalid("no loop".into()));
            };
            append::append(write, current, messages.collect(), &HeuristicTokenCounter)
        })?;
        Ok(())
    }

    /// A call with its output, and now and then a prompt before it.
    fn turn(&mut self, turn: u32) -> Result<(), StoreError> {
        let id = format!("call_{turn}_{:x}", self.random.below(1 << 30));
        let path =
            Json::of(&serde_json::json!({ "path": self.random.text(20) })).unwrap_or_default();
        let answer = Message::Assistant(AssistantMessage {
            content: vec![
                Content::text(self.random.text(200)),
                Content::tool_call(id.as_str(), "read", path),
            ],
            ..AssistantMessage::default()
        });
        let bytes = self.random.output();
        let result = Message::ToolResult(ToolResultMessage {
            tool_call_id: id,
            tool_name: "read".into(),
            content: vec![Content::text(self.random.text(bytes))],
            ..ToolResultMessage::default()
        });
        self.append(vec![answer, result], turn)
    }
}

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

fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times
        .get(times.len() / 2)
        .map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

fn judge(name: &str, value: f64, bound: f64, met: &mut bool) {
    let ok = value <= bound;
    *met &= ok;
    let word = if ok { "ok" } else { "missed" };
    println!("goal {name} {value:.2} {bound} {word}");
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
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
