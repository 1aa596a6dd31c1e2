//! Random sessions: forks, aborted turns, compactions of any strategy, undos and redos.

use std::ops::ControlFlow;
use std::sync::Arc;

use loopstore::compaction::{
    CompactionConfig, CompactionScope, ContextConfig, DigestCompaction, OlderLoops, RecentWindow,
};
use loopstore::context::AsOf;
use loopstore::extend::context::introduced;
use loopstore::model::AgentMessage;
use loopstore::{
    BlockCompactionStrategy, BuildOptions, CompactRequest, CompactTrigger, DefaultBlockCompaction,
    KeepRecent, Policy, SqliteStore, build_context_from_session, compact_session_loops,
    extend as store,
};

use crate::support::histories::{History, Random, loop_id};
use crate::support::requests::is_valid;
use crate::valid::messages::Maker;
use crate::valid::strategies::Odd;

/// A session, and the operations on it so far.
struct Play<'a> {
    history: History<'a>,
    random: Random,
    maker: Maker,
    runs: Vec<String>,
    odd: usize,
    /// True if only loopstore's own strategies are used.
    own_only: bool,
}

impl<'a> Play<'a> {
    fn new(store: &'a SqliteStore, seed: u64) -> Self {
        Self {
            history: History::new(store, &format!("s{seed}")),
            random: Random::new(seed),
            maker: Maker::default(),
            runs: Vec::new(),
            odd: 0,
            own_only: false,
        }
    }

    fn step(&mut self) {
        let last = self.history.loops - 1;
        let at = match self.random.below(3) {
            0 => self.random.below(self.history.loops as u64) as usize,
            _ => last,
        };
        let turns = self.history.row(at).totals.turns;
        match self.random.below(12) {
            0..=5 => {
                let turn = (!self.random.one_in(8)).then_some(turns + 50);
                let messages = self.maker.turn(&mut self.random, turn);
                self.history.append(at, messages);
            }
            6 => {
                if self.random.one_in(2) {
                    self.history.end_loop(at);
                }
                self.history.start_loop(Some(at), None);
            }
            7 if turns > 0 => {
                let turn = self.random.below(u64::from(turns)) as u32;
                self.history.start_loop(Some(at), Some(turn));
            }
            8 | 9 => self.compact(at),
            10 => drop(self.history.flip(at, false)),
            _ => drop(self.history.flip(at, true)),
        }
    }

    fn compact(&mut self, at: usize) {
        let request = CompactRequest {
            policy: Policy::of(
                ContextConfig {
                    max_context_tokens: [100, 1000, 100_000][self.random.below(3) as usize],
                    ..ContextConfig::default()
                },
                self.config(),
            ),
            leaf: Some(loop_id(at)),
            trigger: if self.random.one_in(2) {
                CompactTrigger::Force
            } else {
                CompactTrigger::Policy
            },
            ..CompactRequest::default()
        };
        let (store, session) = (self.history.store, &self.history.session);
        let report = compact_session_loops(store, session, &request).unwrap();
        let report = serde_json::to_value(report).unwrap();
        if report["outcome"] == "committed" {
            self.odd += usize::from(report["strategy"] == "odd");
            self.runs
                .push(report["run_id"].as_str().unwrap().to_owned());
            if self.own_only {
                let new = introduced(&self.originals(at), &self.context(at), false);
                assert!(new.is_empty(), "session {}: {new:?}", self.history.session);
            }
        }
    }

    fn config(&mut self) -> CompactionConfig {
        let random = &mut self.random;
        let block_strategy: Arc<dyn BlockCompactionStrategy> =
            match random.below(if self.own_only { 2 } else { 4 }) {
                0 => Arc::new(DefaultBlockCompaction),
                1 => Arc::new(DigestCompaction::default()),
                _ => Arc::new(Odd::new(random.below(u64::MAX))),
            };
        CompactionConfig {
            keep_first_turns: random.below(3) as u32,
            keep_recent: KeepRecent::Turns(random.below(5) as u32),
            tool_output_max_lines: random.below(8) as usize,
            max_summary_tokens: [0, 60, 500][random.below(3) as usize],
            max_rollup_tokens: [0, 200][random.below(2) as usize],
            compaction_scope: CompactionScope::FixedCount(random.below(3) as usize),
            older_loops: [OlderLoops::Skip, OlderLoops::Rollup][random.below(2) as usize],
            recent_window: [RecentWindow::CurrentLoop, RecentWindow::Chain]
                [random.below(2) as usize],
            block_strategy: Some(block_strategy),
            ..CompactionConfig::default()
        }
    }

    /// Returns the messages of a chain as they were appended.
    fn originals(&self, at: usize) -> Vec<AgentMessage> {
        let mut loops = Vec::new();
        let leaf = self.history.row(at).key;
        store::read(self.history.store, |read| {
            let mut cut = None;
            read.walk(leaf, &mut |row| {
                loops.push((row.key, cut));
                cut = row.parent_turn;
                Ok(ControlFlow::Continue(()))
            })?;
            let mut found = Vec::new();
            for (key, cut) in loops.into_iter().rev() {
                read.messages(key, 0..u32::MAX, &mut |row| {
                    if row
                        .turn
                        .is_some_and(|turn| cut.is_none_or(|cut| turn <= cut))
                    {
                        found.push(store::decode(read, row.body)?);
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            Ok(found)
        })
        .unwrap()
    }

    fn context(&self, at: usize) -> Vec<AgentMessage> {
        let options = BuildOptions {
            leaf: Some(loop_id(at)),
            ..BuildOptions::default()
        };
        let (store, session) = (self.history.store, &self.history.session);
        build_context_from_session(store, session, &options)
            .unwrap()
            .messages
    }

    /// Returns the contexts to check: of each loop, and as of each run and of some turns.
    fn contexts(&mut self) -> Vec<Vec<AgentMessage>> {
        let mut wanted: Vec<BuildOptions> = Vec::new();
        for at in 0..self.history.loops {
            let turns = u64::from(self.history.row(at).totals.turns);
            wanted.push(BuildOptions {
                leaf: Some(loop_id(at)),
                older_loops: self.random.one_in(4).then_some(OlderLoops::Skip),
                ..BuildOptions::default()
            });
            if turns > 0 {
                let turn = self.random.below(turns) as u32;
                let loop_id = loop_id(at);
                wanted.push(as_of(AsOf::Turn { loop_id, turn }));
            }
        }
        let runs = std::mem::take(&mut self.runs).into_iter();
        wanted.extend(runs.map(|run| as_of(AsOf::Run(run))));
        let (store, session) = (self.history.store, &self.history.session);
        let build = |options| build_context_from_session(store, session, &options).unwrap();
        wanted
            .into_iter()
            .map(|options| build(options).messages)
            .collect()
    }
}

fn as_of(moment: AsOf) -> BuildOptions {
    BuildOptions {
        as_of: Some(moment),
        ..BuildOptions::default()
    }
}

/// Runs one random session and checks its contexts, and each cut anywhere. Returns the numbers of committed runs, in
/// total and of the third party's strategy.
fn play(store: &SqliteStore, seed: u64) -> (usize, usize) {
    let mut play = Play::new(store, seed);
    for _ in 0..play.random.below(18) + 4 {
        play.step();
    }
    let committed = (play.runs.len(), play.odd);
    for messages in play.contexts() {
        let cut = play.random.below(messages.len() as u64 + 1) as usize;
        for part in [&messages[..], &messages[..cut], &messages[cut..]] {
            if let Err(error) = is_valid(part) {
                panic!("seed {seed}: {error}\nof {}", lines(part));
            }
        }
    }
    committed
}

fn lines(messages: &[AgentMessage]) -> String {
    let line = |message| serde_json::to_string(message).unwrap() + "\n";
    messages.iter().map(line).collect()
}

#[test]
fn what_a_provider_gets_of_random_sessions_is_valid() {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("LOOPSTORE_SEED") {
        play(&SqliteStore::in_memory().unwrap(), seed);
        return;
    }
    let seeds: Vec<u64> = (1..=number("LOOPSTORE_HISTORIES").unwrap_or(1000)).collect();
    let (mut committed, mut odd) = (0, 0);
    // One store for several sessions, since creating one costs more than a session.
    for some in seeds.chunks(40) {
        let store = SqliteStore::in_memory().unwrap();
        for seed in some {
            let (runs, odds) = play(&store, *seed);
            committed += runs;
            odd += odds;
        }
    }
    assert!(
        committed > seeds.len() / 4,
        "{committed} runs: the test tests nothing"
    );
    assert!(
        odd > seeds.len() / 8,
        "{odd} runs of the third party: the test tests nothing"
    );
}

/// Lists of messages without a store.
#[test]
fn what_a_provider_gets_of_random_lists_is_valid() {
    for seed in 1..4000 {
        let (mut random, mut maker) = (Random::new(seed), Maker::default());
        let length = random.below(14);
        let messages: Vec<_> = (0..length).map(|_| maker.any(&mut random)).collect();
        if let Err(error) = is_valid(&messages) {
            panic!("seed {seed}: {error}\nof {}", lines(&messages));
        }
    }
}

/// Loopstore's own strategies introduce no fault that the originals do not have.
#[test]
fn own_strategies_introduce_no_fault() {
    let mut committed = 0;
    for some in (1..300).collect::<Vec<_>>().chunks(40) {
        let store = SqliteStore::in_memory().unwrap();
        for seed in some {
            let mut play = Play::new(&store, *seed);
            play.own_only = true;
            for _ in 0..play.random.below(18) + 4 {
                play.step();
            }
            committed += play.runs.len();
        }
    }
    assert!(committed > 50, "{committed} runs: the test tests nothing");
}
