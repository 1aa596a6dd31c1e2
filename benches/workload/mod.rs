//! The common part of benchmarks: a generator of a tool-using agent's messages, and the judgement of figures.
#![allow(dead_code)]

pub mod digests;
pub mod growth;
pub mod store;
pub mod turns;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use loopstore::extend::{append, session};
use loopstore::*;

/// The result of a step of a benchmark.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// True if a short run is wanted (`LOOPSTORE_QUICK`).
pub fn is_quick() -> bool {
    std::env::var_os("LOOPSTORE_QUICK").is_some()
}

/// True if a long run is wanted (`LOOPSTORE_LONG`).
pub fn is_long() -> bool {
    std::env::var_os("LOOPSTORE_LONG").is_some()
}

/// A small deterministic generator (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// Words with now and then something that looks like a name.
    pub fn text(&mut self, bytes: usize) -> String {
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

    /// Returns the output of a tool: lines as long as those of recorded transcripts, 46 bytes each, whose
    /// quotes and line ends make JSON 4 % longer, as in the recorded ones.
    pub fn tool_text(&mut self, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            let (one, other) = (self.below(40), self.below(1 << 36));
            text.push_str(&match self.below(3) {
                0 => format!("    open(\"src/mod_{one}.rs\").read({other:x})\n"),
                1 => format!(
                    "src/mod_{one}/file_{}.rs: the quick brown {other:x}\n",
                    one % 7
                ),
                _ => format!("    // the quick brown fox jumps over {other:x}\n"),
            });
        }
        text
    }

    /// The size of a tool's output: most are small, a few are large.
    pub fn output(&mut self) -> usize {
        match self.below(40) {
            0 => 8_000,
            1..=5 => 2_000,
            _ => 200 + self.below(600) as usize,
        }
    }
}

impl Random {
    /// A log-normal size in bytes, of this median and deviation of the logarithm.
    pub fn log_normal(&mut self, median: f64, deviation: f64) -> usize {
        // The sum of twelve uniform numbers approximates a normal distribution of deviation 1.
        let sum: f64 = (0..12)
            .map(|_| self.below(1 << 20) as f64 / f64::from(1 << 20))
            .sum();
        (median * ((sum - 6.0) * deviation).exp()) as usize
    }
}

pub struct Agent {
    pub store: Arc<SqliteStore>,
    pub session: SessionId,
    pub random: Random,
    /// Tokens of each message.
    pub said: std::cell::RefCell<Vec<u64>>,
}

impl Agent {
    pub fn new(file: &std::path::Path) -> Result<Self, Box<dyn std::error::Error>> {
        Self::named(file, "agent")
    }

    /// An agent of this name.
    pub fn named(file: &std::path::Path, name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        Self::on(Arc::new(SqliteStore::open(file)?), name)
    }

    /// One of the agents of a store.
    pub fn on(store: Arc<SqliteStore>, name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let id = SessionId::new(name)?;
        loopstore::extend::write(&*store, |write| {
            session::create_session(write, &Session::new(id.clone(), "agent"), None, None)
        })?;
        Ok(Self {
            store,
            session: id,
            random: Random(0x9E37_79B9_7F4A_7C15),
            said: Default::default(),
        })
    }

    pub fn start(&self, at: usize) -> Result<(), Box<dyn std::error::Error>> {
        let id = |at: usize| LoopId::new(format!("loop-{at}"));
        let parent = at.checked_sub(1).map(id).transpose()?;
        let record = LoopRecord::new(id(at)?, parent);
        loopstore::extend::write(&*self.store, |write| {
            let Some(row) = write.session(&self.session)? else {
                return Err(StoreError::NoSession(self.session.to_string()));
            };
            session::create_loop(write, row.key, &record)
        })?;
        Ok(())
    }

    pub fn append(&self, messages: Vec<Message>, turn: u32) -> Result<(), StoreError> {
        let place = |message| AgentMessage::from(message).in_turn(TurnId::new("l", turn));
        let messages: Vec<AgentMessage> = messages.into_iter().map(place).collect();
        self.said
            .borrow_mut()
            .extend(messages.iter().map(message_tokens));
        let messages = messages.into_iter().map(Into::into);
        loopstore::extend::write(&*self.store, |write| {
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
    pub fn turn(&mut self, turn: u32) -> Result<(), StoreError> {
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

pub fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times
        .get(times.len() / 2)
        .map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

pub fn judge(name: &str, value: f64, bound: f64, met: &mut bool) {
    let ok = value <= bound;
    *met &= ok;
    let word = if ok { "ok" } else { "missed" };
    println!("goal {name} {value:.2} {bound} {word}");
}

/// Returns the most memory that the process ever had, in MiB.
pub fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.map_or(0.0, |kib: f64| kib / 1024.0)
}

/// Converts the result of a benchmark to the exit code: success if every goal is met.
pub fn exit(met: Result<bool, Box<dyn std::error::Error>>) -> ExitCode {
    match met {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
