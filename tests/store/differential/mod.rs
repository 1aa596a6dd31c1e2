//! Random histories on the store and on a slow model of the design, side by side.
//!
//! The model in `reference/` re-derives everything from the whole history and does not use this crate. After every step
//! the contexts of all leaves must be equal, message by message.

mod reference;

use std::collections::BTreeMap;

use crate::support::amount::{amount, from_variable};
use crate::support::histories::Random;
use loopstore::compact::{CompactOutcome, FlipRequest};
use loopstore::compaction::{CompactionConfig, CompactionScope, ContextConfig};
use loopstore::context::AsOf as StoreAsOf;
use loopstore::extend::active_blocks::{self, ChainView};
use loopstore::extend::{self as store, append, session};
use loopstore::model::*;
use loopstore::{
    BuildOptions, CompactRequest, PinRef, PinRequest, Policy, SqliteStore,
    build_context_from_session, compact_session_loops,
};
use loopstore_admin::retention::set_protected;
use reference::build::build;
use reference::checks;
use reference::forces::{AsOf, live_runs, options};
use reference::pins;
use reference::run as reference_run;
use reference::turns::{chain_places, groups};
use reference::types::*;

fn text(random: &mut Random) -> String {
    match random.below(4) {
        0 => "y".repeat(random.below(12) as usize),
        1 => "word ".repeat(random.below(60) as usize),
        2 => "line\n".repeat(random.below(20) as usize),
        _ => "a long line of words\n".repeat(random.below(12) as usize),
    }
}

/// The same history in the store and in the model.
struct Twin {
    store: SqliteStore,
    session: SessionId,
    model: RefSession,
    /// The store's run ids by the model's index.
    runs: BTreeMap<usize, String>,
    next_id: u64,
    open: Vec<String>,
}

impl Twin {
    fn new() -> Self {
        let store = SqliteStore::in_memory().unwrap();
        let session = SessionId::new("s").unwrap();
        let record = Session::new(session.clone(), "agent");
        store::write(&store, |write| {
            session::create_session(write, &record, None, None)
        })
        .unwrap();
        Self {
            store,
            session,
            model: RefSession::default(),
            runs: BTreeMap::new(),
            next_id: 0,
            open: Vec::new(),
        }
    }

    fn loop_id(at: usize) -> LoopId {
        LoopId::new(format!("loop-{at}")).unwrap()
    }

    fn start_loop(&mut self, parent: Option<usize>, turn: Option<u32>) {
        let id = Self::loop_id(self.model.loops.len());
        let at = match (parent, turn) {
            (Some(parent), Some(turn)) => self.model.fork(id.as_str(), parent, turn),
            _ => self.model.start_loop(id.as_str(), parent),
        };
        let mut record = LoopRecord::new(Self::loop_id(at), parent.map(Self::loop_id));
        record.parent_turn = turn.map(|turn| i64::from(turn).into());
        store::write(&self.store, |write| {
            let key = write.session(&self.session)?.unwrap().key;
            session::create_loop(write, key, &record)
        })
        .unwrap();
    }

    fn end_loop(&mut self, at: usize) {
        self.model.end_loop(at);
        store::write(&self.store, |write| {
            let key = write.session(&self.session)?.unwrap().key;
            let row = write.loop_by_id(key, &Self::loop_id(at))?.unwrap();
            append::set_status(write, row.key, LoopStatus::Completed)
        })
        .unwrap();
    }

    fn append(&mut self, at: usize, messages: Vec<RefMessage>) {
        let new: Vec<_> = messages.iter().map(|m| agent_message(m).into()).collect();
        self.model.append(at, messages);
        store::write(&self.store, |write| {
            let key = write.session(&self.session)?.unwrap().key;
            let row = write.loop_by_id(key, &Self::loop_id(at))?.unwrap();
            append::append(write, row.key, new, &loopstore::HeuristicTokenCounter)
        })
        .unwrap();
    }

    fn context(&self, at: usize) -> Vec<AgentMessage> {
        let options = BuildOptions {
            leaf: Some(Self::loop_id(at)),
            ..BuildOptions::default()
        };
        build_context_from_session(&self.store, &self.session, &options)
            .unwrap()
            .messages
    }

    fn compact(&mut self, at: usize, config: &RefConfig, force: bool) -> Option<CompactOutcome> {
        let dry = reference_run::attempt(&self.model, at, config, force);
        // The rules of budgets, and the marker in place of a context without messages, are not modelled.
        let would_be_empty = dry.tokens_before > 0 && dry.tokens_after == 0;
        if dry.over_target || would_be_empty {
            return None;
        }
        let attempt = reference_run::compact(&mut self.model, at, config, force);
        let request = CompactRequest {
            policy: Policy::of(
                ContextConfig {
                    max_context_tokens: config.max_context_tokens,
                    system_prompt_tokens: config.system_tokens,
                    ..ContextConfig::default()
                },
                store_config(config),
            ),
            leaf: Some(Self::loop_id(at)),
            trigger: if force {
                loopstore::CompactTrigger::Force
            } else {
                loopstore::CompactTrigger::Policy
            },
            ..CompactRequest::default()
        };
        let report = compact_session_loops(&self.store, &self.session, &request).unwrap();
        let expected = match attempt.outcome {
            RefOutcome::Committed => CompactOutcome::Committed,
            RefOutcome::NoGain => CompactOutcome::NoGain,
            RefOutcome::NotNeeded => CompactOutcome::NotNeeded,
        };
        assert_eq!(
            report.outcome, expected,
            "{config:?} force {force}\n{report:?}\n{:?}",
            attempt.plan.blocks
        );
        assert_eq!(report.before.tokens, attempt.tokens_before, "{report:?}");
        if report.outcome == CompactOutcome::Committed {
            assert_eq!(
                report.after.tokens, attempt.tokens_after,
                "{config:?} force {force}\n{report:?}\n{:?}",
                attempt.plan.blocks
            );
            assert_eq!(report.blocks.len(), attempt.plan.blocks.len(), "{report:?}");
            checks::pinned_messages_are_shown(&self.model, at).unwrap();
        }
        if let Some(run) = report.run {
            self.runs.insert(self.model.runs.len() - 1, run);
        }
        self.compare_coverage(at);
        Some(report.outcome)
    }

    fn flip(&mut self, at: usize, redo: bool) {
        let request = FlipRequest {
            leaf: Some(Self::loop_id(at)),
            ..FlipRequest::default()
        };
        let (expected, found) = if redo {
            let expected = reference_run::redo(&mut self.model, at, None);
            (
                expected,
                loopstore::redo(&self.store, &self.session, &request),
            )
        } else {
            let expected = reference_run::undo(&mut self.model, at, None);
            (
                expected,
                loopstore::undo(&self.store, &self.session, &request),
            )
        };
        match (expected, found) {
            (Some(run), Ok(report)) => assert_eq!(self.runs[&run], report.run_id),
            (None, Err(_)) => {}
            (expected, found) => panic!("redo {redo}: {expected:?} but {found:?}"),
        }
    }

    /// Adds or removes pins. Returns true if that changed anything.
    fn pin(&mut self, leaf: Option<usize>, of: (usize, u32, Option<usize>), pins: bool) -> bool {
        let (loop_ix, turn, message) = of;
        let request = PinRequest {
            of: PinRef {
                loop_id: Self::loop_id(loop_ix),
                turn,
                seq: message.map(|message| message as u32),
            },
            leaf: leaf.map(Self::loop_id),
        };
        let (expected, found) = match pins {
            true => (
                pins::pin(&mut self.model, leaf, of),
                loopstore::pin(&self.store, &self.session, &request),
            ),
            false => (
                pins::unpin(&mut self.model, leaf, of),
                loopstore::unpin(&self.store, &self.session, &request),
            ),
        };
        let found: Option<Vec<(usize, bool)>> = found.ok().map(|report| {
            let changes = report.messages.iter();
            changes.map(|m| (m.seq as usize, m.changed)).collect()
        });
        assert_eq!(found, expected, "{request:?} pins {pins}");
        expected.is_some_and(|changes| changes.iter().any(|(_, changed)| *changed))
    }

    /// Compares the coverage of each message of a chain.
    fn compare_coverage(&self, leaf: usize) {
        let skips = options(&self.model, leaf).older_loops == OlderLoops::Skip;
        let view = ChainView {
            without_rollups: skips,
            ..ChainView::default()
        };
        let found = store::read(&self.store, |read| {
            let session = read.session(&self.session)?.unwrap().key;
            let key = read.loop_by_id(session, &Self::loop_id(leaf))?.unwrap().key;
            let rows = read.loops(session)?;
            let ix = |key| rows.iter().position(|row| row.key == key).unwrap();
            let links = active_blocks::chain(read, key, view)?;
            let mut found = BTreeMap::new();
            for block in links.iter().filter_map(|link| link.block.as_ref()) {
                // A rollup extends another one, whose coverage of the loops that it does not cover itself applies.
                let (mut next, mut seen) = (Some(block.key), Vec::new());
                while let Some(key) = next {
                    let rows = read.coverage(key)?;
                    for row in rows.iter().filter(|row| !seen.contains(&row.loop_key)) {
                        let Some((first, last)) = row.seqs else {
                            continue;
                        };
                        read.sizes(row.loop_key, first..last + 1, &mut |size| {
                            if size.role != Role::Extension {
                                let of = (ix(row.loop_key), size.seq as usize);
                                let before = found.insert(of, row.disposition.as_str());
                                assert_eq!(before, None, "{of:?} is covered twice");
                            }
                            Ok(std::ops::ControlFlow::Continue(()))
                        })?;
                    }
                    seen.extend(rows.iter().map(|row| row.loop_key));
                    next = read.block_by_key(key)?.extends;
                }
            }
            Ok(found)
        })
        .unwrap();
        let name = |disposition| match disposition {
            Disposition::Kept => "kept",
            Disposition::Truncated => "truncated",
            Disposition::Summarised => "summarised",
            Disposition::Dropped => "dropped",
            Disposition::RolledUp => "rolled_up",
        };
        let expected = checks::coverage_of(&self.model, leaf).into_iter();
        let expected: BTreeMap<_, _> = expected.map(|(of, what)| (of, name(what))).collect();
        assert_eq!(found, expected, "coverage as seen from {leaf}");
    }

    fn compare_pins(&self, leaf: usize) {
        let id = Self::loop_id(leaf);
        let found = loopstore::pins(&self.store, &self.session, Some(&id)).unwrap();
        let found = found.pins.into_iter();
        let found: Vec<_> = found
            .map(|pin| (pin.loop_id, pin.turn, pin.seq as usize))
            .collect();
        let expected = pins::pinned(&self.model, leaf).into_iter();
        let expected: Vec<_> = expected
            .map(|p| (Self::loop_id(p.loop_ix), p.turn, p.message))
            .collect();
        assert_eq!(found, expected, "pins as seen from {leaf}");
    }

    /// Compares every leaf's context, message by message.
    fn compare(&self) {
        for at in 0..self.model.loops.len() {
            self.compare_pins(at);
            checks::every_turn_once(&self.model, at).unwrap();
            let expected: Vec<String> = build(&self.model, at, None)
                .iter()
                .map(|out| plain(&agent_message(&out.message)))
                .collect();
            let found: Vec<String> = self.context(at).iter().map(plain).collect();
            assert_eq!(
                found,
                expected,
                "leaf {at} live {:?}",
                live_runs(&self.model, at)
            );
        }
    }
}

/// Returns a message without the fields that are not modelled.
fn plain(message: &AgentMessage) -> String {
    let mut value = serde_json::to_value(message).unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.remove("turnId");
    fields.remove("timestamp");
    value.to_string()
}

fn agent_message(message: &RefMessage) -> AgentMessage {
    let texts = message.texts.iter().map(Content::text);
    let thinking = message
        .thinking
        .iter()
        .map(|(t, s)| Content::thinking(t, s.clone()));
    let calls = message
        .calls
        .iter()
        .map(|(id, name, arguments)| Content::tool_call(id, name, Json::parse(arguments).unwrap()));
    let content: Vec<Content> = thinking.chain(texts).chain(calls).collect();
    let inner = match message.kind {
        RefKind::User => Message::User(UserMessage {
            content,
            timestamp: None,
            author: message.from_harness.then_some(Author::Harness),
        }),
        RefKind::Assistant => Message::Assistant(AssistantMessage {
            content,
            ..AssistantMessage::default()
        }),
        RefKind::ToolResult => Message::ToolResult(ToolResultMessage {
            tool_call_id: message.answers.clone().unwrap_or_default(),
            tool_name: message.tool_name.clone(),
            content,
            ..ToolResultMessage::default()
        }),
        RefKind::Extension => {
            let data = Json::parse(&message.texts[0]).unwrap();
            return AgentMessage::extension("note", data);
        }
    };
    let message_ = AgentMessage::from(inner);
    match message.turn_index {
        Some(turn) => message_.in_turn(TurnId::new("l", turn)),
        None => message_,
    }
}

fn store_config(config: &RefConfig) -> CompactionConfig {
    CompactionConfig {
        policy: loopstore::CompactionPolicy::Headroom {
            compact_at_pct: config.compact_at_pct,
            compact_budget_threshold_pct: config.compact_budget_threshold_pct,
        },
        compaction_scope: match config.scope {
            RefScope::FixedCount(count) => CompactionScope::FixedCount(count),
            RefScope::TokenBudget => CompactionScope::TokenBudget,
        },
        older_loops: match config.older_loops {
            OlderLoops::Skip => loopstore::OlderLoops::Skip,
            OlderLoops::Rollup => loopstore::OlderLoops::Rollup,
        },
        recent_window: match config.recent_window {
            RecentWindow::CurrentLoop => loopstore::RecentWindow::CurrentLoop,
            RecentWindow::Chain => loopstore::RecentWindow::Chain,
        },
        room_turns: 0,
        keep_first_turns: config.keep_first_turns,
        keep_recent: loopstore::KeepRecent::Turns(config.keep_recent_turns),
        max_summary_tokens: config.max_summary_tokens,
        tool_output_max_lines: config.tool_output_max_lines,
        keep_prompts_tokens: 0,
        fills_window: false,
        summary_prompt: None,
        max_rollup_tokens: config.max_rollup_tokens,
        block_strategy: Some(std::sync::Arc::new(loopstore::DefaultBlockCompaction)),
    }
}

fn random_config(random: &mut Random) -> RefConfig {
    RefConfig {
        compact_at_pct: if random.one_in(2) { 0.9 } else { 0.0 },
        scope: if random.one_in(3) {
            RefScope::TokenBudget
        } else {
            RefScope::FixedCount(random.below(4) as usize)
        },
        older_loops: if random.one_in(2) {
            OlderLoops::Skip
        } else {
            OlderLoops::Rollup
        },
        recent_window: if random.one_in(2) {
            RecentWindow::CurrentLoop
        } else {
            RecentWindow::Chain
        },
        keep_first_turns: random.below(3) as u32,
        keep_recent_turns: random.below(5) as u32,
        max_summary_tokens: [0, 20, 60, 2000][random.below(4) as usize],
        max_rollup_tokens: [0, 15, 60, 2000][random.below(4) as usize],
        tool_output_max_lines: random.below(8) as usize,
        max_context_tokens: [200, 1000, 5000, 128_000][random.below(4) as usize],
        ..RefConfig::default()
    }
}

fn random_turn(random: &mut Random, twin: &mut Twin, turn: Option<u32>) -> Vec<RefMessage> {
    let mut messages = Vec::new();
    let mut id = || {
        twin.next_id += 1;
        twin.next_id
    };
    if !random.one_in(3) {
        messages.push(RefMessage::new(RefKind::User, turn, id()).with_text(text(random)));
    }
    if random.one_in(4) {
        messages.push(RefMessage::new(RefKind::Extension, None, id()).with_text("{\"k\":1}"));
    }
    if random.one_in(3)
        && let Some(call) = twin.open.pop()
    {
        let result = RefMessage::new(RefKind::ToolResult, turn, id()).with_text(text(random));
        messages.push(result.with_answer(&call, "tool"));
    }
    if random.one_in(8) {
        return messages;
    }
    let mut answer = RefMessage::new(RefKind::Assistant, turn, id()).with_text(text(random));
    let calls: Vec<String> = (0..random.below(3))
        .map(|_| format!("call-{}", id()))
        .collect();
    for call in &calls {
        answer = answer.with_call(call, "tool", "{\"x\":12}");
    }
    messages.push(answer);
    for call in calls {
        if random.one_in(4) {
            twin.open.push(call);
        } else {
            let result = RefMessage::new(RefKind::ToolResult, turn, id()).with_text(text(random));
            messages.push(result.with_answer(&call, "tool"));
        }
    }
    messages
}

/// Pins a message of a chain or the messages of one of its turns, or removes a pin.
fn random_pin(random: &mut Random, twin: &mut Twin, leaf: usize) -> bool {
    let places = match random.one_in(8) {
        // Some of the messages are not on the chain.
        true => chain_places(
            &twin.model,
            random.below(twin.model.loops.len() as u64) as usize,
        ),
        false => chain_places(&twin.model, leaf),
    };
    let pinned = pins::pinned(&twin.model, leaf);
    let takes_back = random.one_in(3);
    let places = match takes_back && !pinned.is_empty() && !random.one_in(6) {
        true => pinned,
        false => places,
    };
    if places.is_empty() {
        return false;
    }
    let p = places[random.below(places.len() as u64) as usize];
    let message = (!random.one_in(3)).then_some(p.message);
    let leaf = (!random.one_in(4)).then_some(leaf);
    twin.pin(leaf, (p.loop_ix, p.turn, message), !takes_back)
}

/// The numbers of committed runs, rollups and quotes of a history.
#[derive(Default)]
struct HistoryCounts {
    committed: usize,
    rollups: usize,
    quotes: usize,
}

/// Runs one random history.
fn play(seed: u64) -> HistoryCounts {
    let mut random = Random::new(seed);
    let mut twin = Twin::new();
    twin.start_loop(None, None);
    let usual = random_config(&mut random);
    let mut committed = 0;
    for _ in 0..random.below(30) + 3 {
        let loops = twin.model.loops.len();
        let at = if random.one_in(3) {
            random.below(loops as u64) as usize
        } else {
            loops - 1
        };
        match random.below(16) {
            0..=5 => {
                let turns = groups(&twin.model.loops[at]).len() as u32;
                let turn = if random.one_in(8) {
                    None
                } else {
                    Some(turns + 50)
                };
                let messages = random_turn(&mut random, &mut twin, turn);
                if !messages.is_empty() {
                    twin.append(at, messages);
                }
            }
            6 => {
                if seed % 2 == 1 && random.one_in(2) {
                    twin.end_loop(at);
                }
                twin.start_loop(Some(at), None);
            }
            7 => {
                let turns = groups(&twin.model.loops[at]).len() as u64;
                if turns > 0 {
                    twin.start_loop(Some(at), Some(random.below(turns) as u32));
                }
            }
            8 | 9 => {
                let config = if random.one_in(2) {
                    random_config(&mut random)
                } else {
                    usual.clone()
                };
                let outcome = twin.compact(at, &config, random.one_in(3));
                committed += usize::from(outcome == Some(CompactOutcome::Committed));
            }
            10 => twin.flip(at, false),
            11 => twin.flip(at, true),
            12..=14 => drop(random_pin(&mut random, &mut twin, at)),
            _ => {
                let store = &twin.store;
                set_protected(store, &twin.session, random.one_in(2)).unwrap();
            }
        }
        twin.compare();
    }
    as_of_is_exact(&twin, seed);
    as_of_turns_is_exact(&twin, seed);
    originals_are_untouched(&twin);
    for leaf in 0..twin.model.loops.len() {
        twin.compare_coverage(leaf);
    }
    let blocks = twin.model.runs.iter().flat_map(|run| &run.blocks);
    let rollups = blocks.clone().filter(|b| b.kind == BlockKind::Rollup);
    HistoryCounts {
        committed,
        rollups: rollups.count(),
        quotes: blocks.map(|block| pins::quoted(block).len()).sum(),
    }
}

/// Every message is stored as it was appended, whatever was compacted and undone.
fn originals_are_untouched(twin: &Twin) {
    let report = loopstore_verify::verify(&twin.store).unwrap();
    assert!(report.ok, "{:?}", report.problems);
    for (at, ref_loop) in twin.model.loops.iter().enumerate() {
        let expected: Vec<String> = ref_loop
            .messages
            .iter()
            .map(|m| serde_json::to_string(&agent_message(m)).unwrap())
            .collect();
        let found: Vec<String> = store::read(&twin.store, |read| {
            let key = read.session(&twin.session)?.unwrap().key;
            let row = read.loop_by_id(key, &Twin::loop_id(at))?.unwrap();
            let mut found = Vec::new();
            read.messages(row.key, 0..u32::MAX, &mut |message| {
                let message = store::decode(read, message.body)?;
                found.push(serde_json::to_string(&message).unwrap());
                Ok(std::ops::ControlFlow::Continue(()))
            })?;
            Ok(found)
        })
        .unwrap();
        assert_eq!(found, expected);
    }
}

/// The context as of each committed run equals the model's.
fn as_of_is_exact(twin: &Twin, seed: u64) {
    for (at, run_id) in &twin.runs {
        let run = &twin.model.runs[*at];
        if run.outcome != RefOutcome::Committed || ends_matter(twin, seed) {
            continue;
        }
        let options = BuildOptions {
            as_of: Some(StoreAsOf::Run(run_id.clone())),
            ..BuildOptions::default()
        };
        let found = build_context_from_session(&twin.store, &twin.session, &options).unwrap();
        let found: Vec<String> = found.messages.iter().map(plain).collect();
        let expected: Vec<String> = build(&twin.model, 0, Some(AsOf::Run(*at)))
            .iter()
            .map(|out| plain(&agent_message(&out.message)))
            .collect();
        assert_eq!(found, expected, "as of run {at}");
    }
}

/// True if the result depends on whether a loop was running at a tick, which is not recorded: loops end, and a run
/// leaves older loops out.
fn ends_matter(twin: &Twin, seed: u64) -> bool {
    let mut runs = twin.model.runs.iter();
    let loops_end = seed % 2 == 1;
    loops_end && runs.any(|run| run.config.older_loops == OlderLoops::Skip)
}

/// The context just after any turn equals the model's.
fn as_of_turns_is_exact(twin: &Twin, seed: u64) {
    if ends_matter(twin, seed) {
        return;
    }
    for loop_ix in 0..twin.model.loops.len() {
        for turn in 0..groups(&twin.model.loops[loop_ix]).len() as u32 {
            let moment = StoreAsOf::Turn {
                loop_id: Twin::loop_id(loop_ix),
                turn,
            };
            let found = loopstore::build_context_as_of(&twin.store, &twin.session, moment).unwrap();
            let found: Vec<String> = found.messages.iter().map(plain).collect();
            let expected: Vec<String> =
                build(&twin.model, loop_ix, Some(AsOf::Turn { loop_ix, turn }))
                    .iter()
                    .map(|out| plain(&agent_message(&out.message)))
                    .collect();
            assert_eq!(found, expected, "as of turn {turn} of loop {loop_ix}");
        }
    }
}

fn histories(seeds: std::ops::Range<u64>) {
    let mut all = HistoryCounts::default();
    for seed in seeds {
        let played = std::panic::catch_unwind(|| play(seed));
        let played = played.unwrap_or_else(|_| panic!("the history of seed {seed} fails"));
        all.committed += played.committed;
        all.rollups += played.rollups;
        all.quotes += played.quotes;
    }
    let HistoryCounts {
        committed,
        rollups,
        quotes,
    } = all;
    assert!(
        committed > 0 && rollups > 0 && quotes > 0,
        "{committed} runs, {rollups} rollups, {quotes} quotes"
    );
}

#[test]
fn contexts_equal_the_models_on_random_histories() {
    if let Some(seed) = from_variable("LOOPSTORE_SEED") {
        play(seed);
        return;
    }
    histories(1..amount("LOOPSTORE_HISTORIES", 400));
}

/// On chains where the original algorithm is free of its defects, the contexts are equal to its contexts.
#[test]
fn contexts_equal_the_originals_where_it_is_sound() {
    let mut sound = 0;
    for seed in 1..1500 {
        let mut random = Random::new(seed);
        let mut twin = Twin::new();
        twin.start_loop(None, None);
        for _ in 0..random.below(14) + 2 {
            let last = twin.model.loops.len() - 1;
            if random.one_in(4) {
                twin.start_loop(Some(last), None);
            }
            let last = twin.model.loops.len() - 1;
            let turn = Some(twin.model.tick as u32);
            let messages = random_turn(&mut random, &mut twin, turn);
            let is_note = |m: &RefMessage| m.kind == RefKind::Extension;
            twin.append(last, messages.into_iter().filter(|m| !is_note(m)).collect());
        }
        let config = RefConfig {
            older_loops: OlderLoops::Skip,
            recent_window: RecentWindow::CurrentLoop,
            scope: RefScope::FixedCount(random.below(4) as usize),
            ..random_config(&mut random)
        };
        let leaf = twin.model.loops.len() - 1;
        let force = random.one_in(2);
        if !reference::original::original_is_sound(&twin.model, leaf, &config, force) {
            continue;
        }
        let original = reference::original::original_context(&twin.model, leaf, &config);
        if twin.compact(leaf, &config, force).is_none() {
            continue;
        }
        sound += 1;
        let expected: Vec<String> = original.iter().map(|m| plain(&agent_message(m))).collect();
        let found: Vec<String> = twin.context(leaf).iter().map(plain).collect();
        assert_eq!(found, expected, "seed {seed}");
    }
    assert!(sound > 50, "only {sound} chains were sound");
}

/// Forks at each turn of a loop with several generations, some of them undone: each fork has the context that the loop
/// had there.
#[test]
fn forks_at_every_turn_equal_the_models() {
    for recent_window in [RecentWindow::CurrentLoop, RecentWindow::Chain] {
        let mut twin = Twin::new();
        let mut random = Random::new(77);
        let config = |keep_first_turns, keep_recent_turns, older_loops| RefConfig {
            compact_at_pct: 0.0,
            scope: RefScope::FixedCount(2),
            older_loops,
            recent_window,
            keep_first_turns,
            keep_recent_turns,
            max_summary_tokens: 60,
            tool_output_max_lines: 4,
            ..RefConfig::default()
        };
        twin.start_loop(None, None);
        let mut committed = 0;
        for turn in 0..24 {
            let messages = random_turn(&mut random, &mut twin, Some(turn + 50));
            let long = RefMessage::new(RefKind::User, Some(turn + 50), 1000 + u64::from(turn));
            let long = long.with_text("word ".repeat(40));
            twin.append(0, std::iter::once(long).chain(messages).collect());
            let older = [OlderLoops::Skip, OlderLoops::Rollup][turn as usize % 2];
            if turn % 4 == 3 {
                let config = config(turn % 3, 1 + turn % 2, older);
                let outcome = twin.compact(0, &config, true);
                committed += usize::from(outcome == Some(CompactOutcome::Committed));
            }
            if [9, 17, 18].contains(&turn) {
                twin.flip(0, false);
            }
            if turn == 19 {
                twin.flip(0, true);
            }
        }
        assert!(committed >= 4, "only {committed} runs");
        let complete = groups(&twin.model.loops[0]).len() as u32;
        for turn in 0..complete {
            twin.start_loop(Some(0), Some(turn));
        }
        twin.compare();
        // Later events in the loop do not matter.
        twin.flip(0, false);
        twin.compact(0, &config(0, 1, OlderLoops::Rollup), true);
        twin.compare();
    }
}
