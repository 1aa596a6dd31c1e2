//! Random trees of loops with random runs, undos and redos: the views must agree with the library, and their counts
//! with the messages.

use loopstore::extend::active_blocks::{ActiveBlocks, ChainLink, ChainView};
use loopstore::extend::{BlockKind, LoopKey, Outcome, RunKey, Section, read};
use serde_json::{Value, json};

use crate::views::stage::{BlockOf, Stage, call, result, user};

struct Dice(u64);

impl Dice {
    /// Returns a number below `end`.
    fn roll(&mut self, end: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u32::try_from((self.0 >> 33) % u64::from(end)).unwrap()
    }
}

struct ViewHistory {
    stage: Stage,
    dice: Dice,
    loops: Vec<LoopKey>,
    runs: Vec<(RunKey, LoopKey)>,
    attempts: u32,
}

impl ViewHistory {
    fn new(seed: u64) -> Self {
        let mut story = Self {
            stage: Stage::new("s"),
            dice: Dice(seed),
            loops: Vec::new(),
            runs: Vec::new(),
            attempts: 0,
        };
        story.begin_loop();
        for _ in 0..30 {
            match story.dice.roll(10) {
                0 | 1 => story.begin_loop(),
                2..=4 => story.grow(),
                5..=7 => story.compact(),
                _ => story.flip(),
            }
        }
        story
    }

    fn any_loop(&mut self) -> LoopKey {
        self.loops[self.dice.roll(u32::try_from(self.loops.len()).unwrap()) as usize]
    }

    fn begin_loop(&mut self) {
        let id = format!("l{:02}", self.loops.len());
        let key = if self.loops.is_empty() {
            self.stage.start(&id, None)
        } else {
            let parent = self.any_loop();
            let parent = self.stage.loop_row(parent);
            let turns = parent.totals.turns;
            let turn = (turns > 0 && self.dice.roll(2) == 0).then(|| self.dice.roll(turns));
            self.stage.start(&id, Some((parent.loop_id.as_str(), turn)))
        };
        self.loops.push(key);
        self.grow();
    }

    fn grow(&mut self) {
        let key = self.any_loop();
        let from = self.stage.loop_row(key).totals.turns;
        let mut messages = Vec::new();
        for turn in from..from + self.dice.roll(4) {
            let words = "word ".repeat(1 + self.dice.roll(30) as usize);
            messages.push(user(turn, &words));
            messages.push(json!({"role": "extension", "kind": "note", "data": turn}));
            messages.push(call(turn, &["c"]));
            messages.push(result(turn, "c", &words));
        }
        // Sometimes the last turn grows.
        if from > 0 && self.dice.roll(3) == 0 {
            messages.insert(0, result(from - 1, "c", "late"));
        }
        self.stage.append(key, Value::Array(messages));
    }

    fn compact(&mut self) {
        let leaf = self.any_loop();
        let chain = self.stage.chain(
            leaf,
            ChainView {
                raw: true,
                ..ChainView::default()
            },
        );
        let mut blocks = Vec::new();
        for link in &chain {
            if self.dice.roll(2) == 0 {
                let is_leaf = link.row.key == leaf;
                blocks.push(self.block(link, is_leaf).done());
            }
        }
        let outcome = match self.dice.roll(5) {
            0 => Outcome::Failed,
            _ => Outcome::Committed,
        };
        self.attempts += 1;
        let run_id = format!("run-{}", self.attempts);
        let run = self
            .stage
            .run_with(&run_id, leaf, blocks, |row| row.outcome = outcome);
        if outcome == Outcome::Committed {
            self.runs.push((run, leaf));
        }
    }

    fn block(&mut self, link: &ChainLink, is_leaf: bool) -> BlockOf {
        let kind = match (self.dice.roll(5), is_leaf) {
            (0, _) => BlockKind::Rollup,
            (_, true) => BlockKind::Current,
            (_, false) => BlockKind::Earlier,
        };
        let turns = link.complete;
        let through = if turns == 0 { 0 } else { link.end_seq };
        let mut block = BlockOf::new(link.row.key, kind, through);
        let a = self.dice.roll(turns + 1);
        let b = a + self.dice.roll(turns - a + 1);
        if a > 0 {
            block = block.first(0, a - 1);
        }
        if b > a {
            let texts = ["one", "two"];
            block = block.compacted(a, b - 1, &texts[..self.dice.roll(3) as usize]);
        }
        if turns > b {
            block = block.recent(b, turns - 1);
            for row in self.recent_results(link, b) {
                match self.dice.roll(3) {
                    0 => block = block.message(Section::Recent, Some(row), Some("cut")),
                    1 => block = block.message(Section::Recent, Some(row), None),
                    _ => (),
                }
            }
        }
        block
    }

    fn recent_results(&self, link: &ChainLink, from: u32) -> Vec<u32> {
        sizes(&self.stage, link)
            .iter()
            .filter(|size| size.turn >= Some(from) && size.lines.is_some())
            .map(|size| size.seq)
            .collect()
    }

    /// Undoes or redoes a run from a leaf at which it is active.
    fn flip(&mut self) {
        if self.runs.is_empty() {
            return;
        }
        let at = self.dice.roll(u32::try_from(self.runs.len()).unwrap()) as usize;
        let (run, _) = self.runs[at];
        let leaf = self.any_loop();
        let counts = read(&self.stage.store, |r| {
            let mut walk = ActiveBlocks::new(
                r,
                leaf,
                ChainView {
                    raw: true,
                    ..ChainView::default()
                },
            );
            walk.run(&mut |_| Ok(std::ops::ControlFlow::Continue(())))?;
            walk.counts(r.run_by_key(run)?.point)
        });
        if counts.unwrap() {
            let redo = self.dice.roll(2) == 0;
            self.stage.flip(run, leaf, redo);
        }
    }
}

fn sizes(stage: &Stage, link: &ChainLink) -> Vec<loopstore::extend::MessageSize> {
    let mut rows = Vec::new();
    read(&stage.store, |r| {
        r.sizes(link.row.key, 0..link.end_seq, &mut |row| {
            if row.role != loopstore::Role::Extension {
                rows.push(row);
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })
    })
    .unwrap();
    rows
}

fn block_name(link: &ChainLink) -> String {
    link.block
        .as_ref()
        .map_or(String::new(), |block| block.generation.to_string())
}

/// Returns the parts of a loop in a context: section, first and last turn, messages, tokens.
fn parts(stage: &Stage, link: &ChainLink) -> Vec<(&'static str, u32, u32, u64, u64)> {
    let sizes = sizes(stage, link);
    let range = |name, turns: std::ops::Range<u32>, seqs: std::ops::Range<u32>| {
        let within = sizes
            .iter()
            .filter(|size| turns.contains(&size.turn.unwrap()) && seqs.contains(&size.seq));
        let (count, tokens) = within.clone().fold((0, 0), |(count, tokens), size| {
            (count + 1, tokens + size.size.tokens)
        });
        let from = within
            .clone()
            .filter_map(|size| size.turn)
            .min()
            .unwrap_or(0);
        let to = within.filter_map(|size| size.turn).max().unwrap_or(0);
        (name, from, to, count, tokens)
    };
    let everything = 0..u32::MAX;
    let Some(block) = &link.block else {
        return vec![range("raw", everything.clone(), everything)];
    };
    let messages = read(&stage.store, |r| r.block_messages(block.key)).unwrap();
    let own = |section| {
        let bodies = messages
            .iter()
            .filter(move |m| m.section == section)
            .filter_map(|m| m.body.as_ref());
        bodies.fold((0, 0), |(count, tokens), body| {
            (count + 1, tokens + body.tokens)
        })
    };
    let covered = 0..block.through;
    let mut parts = Vec::new();
    let compacted = block.layout.compacted.map(|turns| {
        let (count, tokens) = own(Section::Compacted);
        let name = if link.is_anchor() {
            "rollup"
        } else {
            "compacted"
        };
        (name, turns.first, turns.last, count, tokens)
    });
    parts.extend(compacted.filter(|_| link.is_anchor()));
    if let Some(turns) = block.layout.first {
        parts.push(range("first", turns.first..turns.end(), covered.clone()));
    }
    parts.extend(compacted.filter(|_| !link.is_anchor()));
    if let Some(turns) = block.layout.recent {
        let mut part = range("recent", turns.first..turns.end(), covered);
        let (count, tokens) = own(Section::Recent);
        part.3 += count;
        part.4 += tokens;
        for seq in messages.iter().filter_map(|m| m.replaces) {
            part.3 -= 1;
            part.4 -= sizes.iter().find(|s| s.seq == seq).unwrap().size.tokens;
        }
        part.1 = turns.first;
        part.2 = turns.last;
        parts.push(part);
    }
    parts.push(range("tail", everything, block.through..u32::MAX));
    parts
}

#[test]
fn the_views_agree_with_the_library() {
    for seed in 0..16 {
        let story = ViewHistory::new(seed);
        let stage = &story.stage;
        let mut contexts = Vec::new();
        let leaves = stage.lines("SELECT DISTINCT leaf_loop_id FROM v_chain");
        for leaf in &story.loops {
            let loop_id = stage.loop_row(*leaf).loop_id.to_string();
            let links = stage.chain(*leaf, ChainView::default());
            let expected: Vec<String> = links
                .iter()
                .map(|link| {
                    let row = &link.row;
                    let (turns, end) = (link.turns, link.end_seq);
                    format!("{}|{turns}|{end}|{}", row.loop_id, block_name(link))
                })
                .collect();
            let found = stage.lines(&format!(
                "SELECT l.loop_id, c.turns, c.end_seq, b.generation FROM context_loops c
                     JOIN loops f ON f.key = c.leaf JOIN loops l ON l.key = c.loop
                     LEFT JOIN blocks b ON b.key = c.block
                 WHERE f.loop_id = '{loop_id}' ORDER BY c.depth"
            ));
            assert_eq!(found, expected, "seed {seed}, leaf {loop_id}");
            check_plain(stage, *leaf, &loop_id, seed);
            if leaves.contains(&loop_id) {
                let parts = links
                    .iter()
                    .flat_map(|link| parts(stage, link).into_iter().map(move |p| (link, p)))
                    .filter(|(_, part)| part.3 > 0);
                for (at, (link, part)) in parts.enumerate() {
                    let (section, from, to, messages, tokens) = part;
                    contexts.push(format!(
                        "s|{loop_id}|{at}|{}|{section}|{from}|{to}|{messages}|{tokens}",
                        link.row.loop_id
                    ));
                }
            }
        }
        let found = stage.lines("SELECT * FROM v_context ORDER BY leaf_loop_id, ordinal");
        assert_eq!(found, contexts, "seed {seed}");
        check_runs(&story, seed);
    }
}

/// Checks the active blocks without rollups.
fn check_plain(stage: &Stage, leaf: LoopKey, loop_id: &str, seed: u64) {
    let view = ChainView {
        without_rollups: true,
        ..ChainView::default()
    };
    let expected: Vec<String> = stage
        .chain(leaf, view)
        .iter()
        .enumerate()
        .map(|(depth, link)| format!("{depth}|{}|{}", link.row.loop_id, block_name(link)))
        .collect();
    let found = stage.lines(&format!(
        "SELECT i.depth, l.loop_id, b.generation FROM active_by_loop i
             JOIN loops f ON f.key = i.leaf JOIN loops l ON l.key = i.loop
             LEFT JOIN blocks b ON b.key = i.plain
         WHERE f.loop_id = '{loop_id}' AND i.oldest = 1 ORDER BY i.depth"
    ));
    assert_eq!(found, expected, "seed {seed}, leaf {loop_id}");
}

fn check_runs(story: &ViewHistory, seed: u64) {
    let stage = &story.stage;
    let mut live = Vec::new();
    let mut active = Vec::new();
    for (run, leaf) in &story.runs {
        let (run_id, is_live) = read(&stage.store, |r| {
            let mut walk = ActiveBlocks::new(
                r,
                *leaf,
                ChainView {
                    raw: true,
                    ..ChainView::default()
                },
            );
            walk.run(&mut |_| Ok(std::ops::ControlFlow::Continue(())))?;
            Ok((r.run_by_key(*run)?.run_id, walk.is_live(*run)?))
        })
        .unwrap();
        if is_live {
            live.push(run_id.clone());
        }
        for link in stage.chain(*leaf, ChainView::default()) {
            if let Some(block) = link.block.filter(|block| block.run == *run) {
                active.push(format!(
                    "{run_id}|{}|{}",
                    link.row.loop_id, block.generation
                ));
            }
        }
    }
    live.sort();
    active.sort();
    assert_eq!(
        stage.lines("SELECT run_id FROM v_compaction_runs WHERE is_live ORDER BY 1"),
        live,
        "seed {seed}"
    );
    let mut found =
        stage.lines("SELECT run_id, loop_id, generation FROM v_compaction_blocks WHERE is_active");
    found.sort();
    assert_eq!(found, active, "seed {seed}");
    assert_eq!(
        stage.lines("SELECT count(*) FROM v_compaction_blocks"),
        stage.lines("SELECT count(*) FROM blocks")
    );
}
