//! Random histories with pins: each pinned message is in every context exactly once and unchanged, and earlier contexts
//! do not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{assert_counted, assert_sound, is_quote, texts};
use crate::support::histories::Random;
use loopstore::compact::CompactOutcome;
use loopstore::extend::active_blocks::ChainView;
use loopstore::extend::{self as store, shown_chain};
use loopstore::*;

/// A pinned message by loop and sequence, and its text.
type PinnedText = ((String, u32), String);

/// A session with branches, and its expected state.
struct PinnedHistory {
    store: Store,
    lines: Vec<SessionHandle>,
    random: Random,
    said: u64,
    /// Contexts just after runs, which never change.
    built: BTreeMap<String, Vec<AgentMessage>>,
}

impl PinnedHistory {
    fn new(seed: u64) -> Self {
        let store = Store::in_memory().unwrap();
        let lines = vec![store.session("s").unwrap()];
        lines[0].append([Message::user("Begin.")]).unwrap();
        Self {
            store,
            lines,
            random: Random::new(seed),
            said: 0,
            built: BTreeMap::new(),
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn line(&mut self) -> SessionHandle {
        let at = self.below(self.lines.len() as u64) as usize;
        self.lines[at].clone()
    }

    /// Returns a text that occurs nowhere else.
    fn words(&mut self) -> String {
        self.said += 1;
        let length = 1 + self.below(60) as usize;
        let words = format!("w{} ", self.said);
        format!("<{}> {}", self.said, words.repeat(length).trim_end())
    }

    fn append(&mut self) {
        let line = self.line();
        let mut messages = Vec::new();
        if self.random.one_in(4) {
            messages.push(Message::user(self.words()));
        }
        for _ in 0..=self.below(3) {
            let said = self.words();
            let answer = Message::assistant(said.clone());
            if self.random.one_in(2) {
                messages.push(answer);
                continue;
            }
            let id = format!("c{}", self.said);
            let lines = format!("{}\n", self.words()).repeat(1 + self.below(70) as usize);
            messages.push(answer.with_tool_call(&id, "tool", serde_json::json!({ "of": said })));
            messages.push(Message::tool_result(&id, lines));
        }
        line.append(messages).unwrap();
    }

    fn pin(&mut self) {
        let line = self.line();
        let loops = self.store.database();
        let places = store::read(loops, |read| {
            let session = read.session(line.id())?.unwrap().key;
            let mut places = Vec::new();
            for row in read.loops(session)? {
                read.sizes(row.key, 0..row.totals.next_seq, &mut |size| {
                    let id = row.loop_id.as_str().to_owned();
                    places.extend(size.turn.map(|turn| (id, turn, size.seq)));
                    Ok(std::ops::ControlFlow::Continue(()))
                })?;
            }
            Ok(places)
        });
        let places = places.unwrap();
        let (id, turn, seq) = places[self.below(places.len() as u64) as usize].clone();
        let of = PinRef::message(id, turn, seq);
        // The message may be on another branch, or not be pinned.
        let done = match self.random.one_in(4) {
            true => line.unpin(of),
            false => line.pin(of),
        };
        drop(done);
    }

    fn compact(&mut self) {
        let line = self.line();
        let strategies: [Arc<dyn BlockCompactionStrategy>; 3] = [
            Arc::new(DefaultBlockCompaction),
            Arc::new(DigestCompaction::default()),
            Arc::new(SummarizeCompaction::new(Arc::new(Short))),
        ];
        let config = CompactionConfig {
            keep_first_turns: self.below(3) as u32,
            keep_recent: KeepRecent::Turns(self.below(6) as u32),
            compaction_scope: CompactionScope::FixedCount(self.below(3) as usize),
            block_strategy: Some(strategies[self.below(3) as usize].clone()),
            tool_output_max_lines: 2 + self.below(50) as usize,
            ..CompactionConfig::default()
        };
        let max_context_tokens = [2_000, 20_000, 128_000][self.below(3) as usize];
        let request = CompactRequest {
            policy: Policy::of(
                ContextConfig {
                    max_context_tokens,
                    ..ContextConfig::default()
                },
                config,
            ),
            trigger: match self.random.one_in(2) {
                true => CompactTrigger::Force,
                false => CompactTrigger::Length,
            },
            ..CompactRequest::default()
        };
        let report = line.compact(&request).unwrap();
        if let Some(error) = report
            .error
            .filter(|_| report.outcome == CompactOutcome::Failed)
        {
            assert!(report.too_small.is_some(), "{error}");
        }
        if report.outcome == CompactOutcome::Committed {
            let context = line.context().unwrap();
            assert_eq!(context.tokens, report.after.tokens);
            assert_eq!(context.faults, []);
            self.built.insert(report.run.unwrap(), context.messages);
        }
    }

    fn flip_or_fork(&mut self) {
        let line = self.line();
        match self.below(5) {
            0 | 1 => drop(line.undo()),
            2 | 3 => drop(line.redo()),
            _ if self.lines.len() < 4 => {
                let leaf = line.leaf().unwrap().unwrap();
                let turn = self.below(8) as u32;
                self.lines
                    .extend(line.fork_at(TurnRef::new(leaf.as_str(), turn)));
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        match self.below(10) {
            0..4 => self.append(),
            4..7 => self.pin(),
            7..9 => self.compact(),
            _ => self.flip_or_fork(),
        }
    }

    /// Compares the context of each line with its pins.
    fn check(&self) -> usize {
        self.lines.iter().map(|line| self.check_line(line)).sum()
    }

    fn check_line(&self, line: &SessionHandle) -> usize {
        let context = line.context().unwrap();
        assert_counted(&self.store, &context);
        let shown = texts(&context);
        let (pinned, ended) = self.known_pins(line);
        for (place, text) in &pinned {
            let is_it = |shown: &&String| {
                let quote = shown.split_once("]\n").filter(|_| is_quote(shown));
                *shown == text || quote.is_some_and(|(_, quoted)| quoted.starts_with(text.as_str()))
            };
            let times = shown.iter().filter(is_it).count();
            assert_eq!(
                times,
                1,
                "{place:?} of {}: {shown:#?}",
                line.leaf().unwrap().unwrap()
            );
        }
        for text in &ended {
            let quotes_it = |shown: &&String| is_quote(shown) && shown.contains(text);
            assert_eq!(shown.iter().filter(quotes_it).count(), 0, "{text}");
        }
        pinned.len()
    }

    /// Returns the texts of pinned messages, and of messages that are no longer pinned, according to the newest block
    /// on each loop; later pins are unknown to it.
    fn known_pins(&self, line: &SessionHandle) -> (Vec<PinnedText>, Vec<String>) {
        let live = line.pins().unwrap();
        let leaf = line.leaf().unwrap().unwrap();
        let loops = self.store.database();
        let ids = store::read(loops, |read| {
            let session = read.session(line.id())?.unwrap().key;
            Ok(read.loops(session)?.into_iter().map(|row| row.core.loop_id))
        });
        let pinned = |id: LoopId| {
            let list = pins(loops, line.id(), Some(&id)).unwrap();
            (id, list.pins)
        };
        let known: BTreeMap<LoopId, Vec<Pin>> = ids.unwrap().map(pinned).collect();
        store::read(self.store.database(), |read| {
            let session = read.session(line.id())?.unwrap().key;
            let leaf = read.loop_by_id(session, &leaf)?.unwrap();
            let states = shown_chain(read, &leaf, ChainView::default())?.states;
            let (mut pinned, mut ended) = (Vec::new(), Vec::new());
            for row in read.pins(session)? {
                let Some(own) = states.iter().find(|states| states.key == row.loop_key) else {
                    continue;
                };
                let mut later = read.pins(session)?.into_iter();
                let place = (row.loop_key, row.seq);
                let last = later.rfind(|other| (other.loop_key, other.seq) == place);
                if last.as_ref() != Some(&row) {
                    continue;
                }
                let is_it = |pin: &Pin| pin.loop_id == own.loop_id && pin.seq == row.seq;
                let is_live = live.iter().any(is_it);
                if let Some(block) = &own.block {
                    // A block of another branch does not know the pins of this one.
                    let run = read.run_by_key(block.run)?;
                    let from = read.loop_by_key(run.point.loop_key)?.core.loop_id;
                    if run.tick < row.tick || known[&from].iter().any(is_it) != is_live {
                        continue;
                    }
                }
                let mut text = String::new();
                read.messages(row.loop_key, row.seq..row.seq + 1, &mut |found| {
                    let message = store::decode(read, found.body)?;
                    text = message
                        .message()
                        .unwrap()
                        .texts()
                        .collect::<Vec<_>>()
                        .join("\n");
                    Ok(std::ops::ControlFlow::Continue(()))
                })?;
                let id = own.loop_id.as_str().to_owned();
                match is_live {
                    true => pinned.push(((id, row.seq), text)),
                    false if !row.pinned => ended.push(text),
                    false => {}
                }
            }
            Ok((pinned, ended))
        })
        .unwrap()
    }

    fn check_built(&self) {
        for (run, messages) in &self.built {
            let then = self.lines[0].context_as_of(AsOf::run(run.clone())).unwrap();
            assert_eq!(&then.messages, messages, "{run}");
        }
    }
}

/// A model with short answers.
struct Short;

impl Summarizer for Short {
    fn name(&self) -> &str {
        "short"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<SummaryAnswer, SummarizerError> {
        let text = "## Goal\nWork.\n## Progress\nWork was done.\n".to_owned();
        Ok(SummaryAnswer {
            text,
            model: None,
            usage: None,
            duration: std::time::Duration::ZERO,
        })
    }
}

#[test]
fn what_is_pinned_stands_once_in_every_context() {
    let mut seen = 0;
    for seed in 0..24 {
        let mut story = PinnedHistory::new(seed);
        for step in 0..70 {
            story.step();
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story.check()));
            seen += found.unwrap_or_else(|_| panic!("seed {seed}, step {step}"));
        }
        story.check_built();
        assert_sound(&story.store);
    }
    assert!(seen > 1_000, "{seen}");
}
