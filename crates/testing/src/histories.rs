//! Random histories through the public interface: appends, forks, late results, images, notes, replaced turns,
//! pins, compactions, undos and redos.

use std::path::Path;

use loopstore::compact::FlipRequest;
use loopstore::compaction::{CompactionConfig, CompactionScope};
use loopstore::extend::append::{self, NewMessage};
use loopstore::extend::{self as store, session};
use loopstore::model::*;
use loopstore::{
    CompactRequest, ContextConfig, Durability, HeuristicTokenCounter, PinRef, PinRequest, Policy,
    SessionStore, SqliteStore, compact_session_loops, pin, pins, unpin,
};

/// A small deterministic generator (xorshift), so that a seed names a history.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..5).for_each(|_| {
            random.below(9);
        });
        random
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Opens a file that need not survive a power loss.
pub fn open(path: &Path) -> SqliteStore {
    let options = super::keyed::options().durability(Durability::Normal);
    SqliteStore::open_with(path, options).unwrap()
}

pub fn loop_id(at: usize) -> LoopId {
    LoopId::new(format!("loop-{at}")).unwrap()
}

pub fn user(text: &str, turn: u32) -> AgentMessage {
    AgentMessage::from(Message::user(text)).in_turn(TurnId::new("l", turn))
}

pub fn answer(text: &str, calls: &[&str], turn: u32) -> AgentMessage {
    let calls = calls
        .iter()
        .map(|id| Content::tool_call(*id, "tool", Json::parse("{\"x\":12}").unwrap()));
    let content = std::iter::once(Content::text(text)).chain(calls).collect();
    AgentMessage::from(Message::Assistant(AssistantMessage {
        content,
        ..AssistantMessage::default()
    }))
    .in_turn(TurnId::new("l", turn))
}

pub fn result(call: &str, content: Vec<Content>, turn: u32) -> AgentMessage {
    AgentMessage::from(Message::ToolResult(ToolResultMessage {
        tool_call_id: call.into(),
        tool_name: "tool".into(),
        content,
        ..ToolResultMessage::default()
    }))
    .in_turn(TurnId::new("l", turn))
}

/// A session that grows.
pub struct History<'a> {
    pub store: &'a dyn SessionStore,
    pub session: SessionId,
    pub loops: usize,
    pub committed: usize,
    pub next_id: u64,
    pub open: Vec<String>,
}

impl<'a> History<'a> {
    /// Begins a session with one loop.
    pub fn new(store: &'a dyn SessionStore, id: &str) -> Self {
        let session = SessionId::new(id).unwrap();
        let record = Session::new(session.clone(), "agent");
        store::write(store, |write| {
            session::create_session(write, &record, None, None)
        })
        .unwrap();
        let mut history = Self {
            store,
            session,
            loops: 0,
            committed: 0,
            next_id: 0,
            open: Vec::new(),
        };
        history.start_loop(None, None);
        history
    }

    pub fn start_loop(&mut self, parent: Option<usize>, turn: Option<u32>) {
        let mut record = LoopRecord::new(loop_id(self.loops), parent.map(loop_id));
        record.parent_turn = turn.map(|turn| i64::from(turn).into());
        store::write(self.store, |write| {
            let key = write.session(&self.session)?.unwrap().key;
            session::create_loop(write, key, &record)
        })
        .unwrap();
        self.loops += 1;
    }

    pub fn row(&self, at: usize) -> store::LoopRow {
        store::read(self.store, |read| {
            let key = read.session(&self.session)?.unwrap().key;
            Ok(read.loop_by_id(key, &loop_id(at))?.unwrap())
        })
        .unwrap()
    }

    pub fn append(&self, at: usize, messages: Vec<AgentMessage>) {
        let new = messages.into_iter().map(NewMessage::from).collect();
        let key = self.row(at).key;
        store::write(self.store, |write| {
            append::append(write, key, new, &HeuristicTokenCounter)
        })
        .unwrap();
    }

    pub fn end_loop(&self, at: usize) {
        let key = self.row(at).key;
        store::write(self.store, |write| {
            append::set_status(write, key, LoopStatus::Completed)
        })
        .unwrap();
    }

    /// Compacts with a narrow policy; returns the outcome as JSON.
    pub fn compact(&mut self, at: usize, keep: (u32, u32), force: bool) -> serde_json::Value {
        let request = CompactRequest {
            policy: Policy::of(
                ContextConfig::default(),
                CompactionConfig {
                    policy: loopstore::CompactionPolicy::Headroom {
                        compact_at_pct: 0.0,
                        compact_budget_threshold_pct: 0.05,
                    },
                    keep_first_turns: keep.0,
                    keep_recent: loopstore::KeepRecent::Turns(keep.1),
                    tool_output_max_lines: 4,
                    max_summary_tokens: 60,
                    compaction_scope: CompactionScope::FixedCount(2),
                    block_strategy: Some(std::sync::Arc::new(loopstore::DefaultBlockCompaction)),
                    ..CompactionConfig::default()
                },
            ),
            leaf: Some(loop_id(at)),
            trigger: if force {
                loopstore::CompactTrigger::Force
            } else {
                loopstore::CompactTrigger::Policy
            },
            ..CompactRequest::default()
        };
        let report = compact_session_loops(self.store, &self.session, &request).unwrap();
        let report = serde_json::to_value(report).unwrap();
        self.committed += usize::from(report["outcome"] == "committed");
        report
    }

    pub fn flip(&self, at: usize, redo: bool) -> bool {
        let request = FlipRequest {
            leaf: Some(loop_id(at)),
            ..FlipRequest::default()
        };
        if redo {
            loopstore::redo(self.store, &self.session, &request).is_ok()
        } else {
            loopstore::undo(self.store, &self.session, &request).is_ok()
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn text(&mut self, random: &mut Random) -> String {
        let id = self.id();
        match random.below(4) {
            0 => format!("note {id}"),
            1 => format!("{id} ") + &"word ".repeat(random.below(60) as usize),
            2 => format!("{id}\n") + &"line\n".repeat(random.below(20) as usize),
            _ => format!("é {id}\n") + &"a long line of words\n".repeat(random.below(12) as usize),
        }
    }

    fn result(&mut self, random: &mut Random, call: &str, turn: u32) -> AgentMessage {
        let mut content = vec![Content::text(self.text(random))];
        if random.one_in(4) {
            let data = ["aGVsbG8=", "d29ybGQh", "not base64"][random.below(3) as usize];
            content.push(Content::image(data, "image/png"));
        }
        result(call, content, turn)
    }

    /// Returns the messages of one turn; some calls stay open, some results are late.
    pub fn random_turn(&mut self, random: &mut Random, turn: u32) -> Vec<AgentMessage> {
        let mut messages = Vec::new();
        for _ in 0..2 {
            if random.one_in(5) {
                let kind = ["system", "note"][random.below(2) as usize];
                let data = Json::string(&self.text(random));
                messages.push(AgentMessage::extension(kind, data));
            }
            if !random.one_in(3) {
                messages.push(user(&self.text(random), turn));
            }
        }
        if random.one_in(3)
            && let Some(call) = self.open.pop()
        {
            messages.push(self.result(random, &call, turn));
        }
        if random.one_in(8) {
            return messages;
        }
        let calls: Vec<String> = (0..random.below(3))
            .map(|_| format!("call-{}", self.id()))
            .collect();
        let names: Vec<&str> = calls.iter().map(String::as_str).collect();
        messages.push(answer(&self.text(random), &names, turn));
        for call in calls {
            if random.one_in(4) {
                self.open.push(call);
            } else {
                messages.push(self.result(random, &call, turn));
            }
        }
        messages
    }

    fn replace_last_turn(&mut self, random: &mut Random, at: usize) {
        let row = self.row(at);
        let last = row.totals.turns.saturating_sub(1);
        let turn = store::read(self.store, |read| read.turn(row.key, last)).unwrap();
        let sealed = row.totals.sealed_seq;
        let index = turn.filter(|turn| turn.first_seq >= sealed);
        let Some(index) = index.and_then(|turn| turn.turn_index) else {
            return;
        };
        let messages = self.random_turn(random, index as u32);
        let new: Vec<_> = messages.into_iter().map(NewMessage::from).collect();
        if new.is_empty() {
            return;
        }
        store::write(self.store, |write| {
            append::replace_last_turn(write, row.key, new, &HeuristicTokenCounter)
        })
        .unwrap();
    }

    /// Pins a message, or the text of its turn, as seen from a loop; returns true if that is possible.
    pub fn pin(&self, from: usize, of: PinRef) -> bool {
        let leaf = Some(loop_id(from));
        pin(self.store, &self.session, &PinRequest { of, leaf }).is_ok()
    }

    /// Pins any message, or removes any pin.
    pub fn random_pin(&self, random: &mut Random, from: usize) {
        let leaf = Some(loop_id(from));
        if random.one_in(3) {
            let pinned = pins(self.store, &self.session, leaf.as_ref()).unwrap().pins;
            if let Some(some) = pinned.first() {
                let of = PinRef::turn(some.loop_id.as_str(), some.turn);
                unpin(self.store, &self.session, &PinRequest { of, leaf }).unwrap();
            }
            return;
        }
        let any = self.row(random.below(self.loops as u64) as usize);
        let mut places = Vec::new();
        store::read(self.store, |read| {
            read.sizes(any.key, 0..any.totals.next_seq, &mut |size| {
                places.extend(size.turn.map(|turn| (turn, size.seq)));
                Ok(std::ops::ControlFlow::Continue(()))
            })
        })
        .unwrap();
        if !places.is_empty() {
            let (turn, seq) = places[random.below(places.len() as u64) as usize];
            // The message may be on another branch, a note, or empty.
            self.pin(from, PinRef::message(any.loop_id.as_str(), turn, seq));
        }
    }

    /// Performs one random step. Pins have their own random numbers, so that they do not change the rest of a
    /// seed.
    pub fn step(&mut self, random: &mut Random) {
        let mut aside = Random::new(random.0);
        if aside.one_in(6) {
            let from = aside.below(self.loops as u64) as usize;
            self.random_pin(&mut aside, from);
        }
        let any = random.below(self.loops as u64) as usize;
        let at = if random.one_in(3) {
            any
        } else {
            self.loops - 1
        };
        let turns = self.row(at).totals.turns;
        match random.below(14) {
            0..=6 => {
                // Sometimes the last turn continues.
                let turn = if random.one_in(8) {
                    turns + 49
                } else {
                    turns + 50
                };
                let messages = self.random_turn(random, turn);
                self.append(at, messages);
            }
            7 => self.replace_last_turn(random, at),
            8 => {
                if random.one_in(2) {
                    self.end_loop(at);
                }
                self.start_loop(Some(at), None);
            }
            9 if turns > 0 => {
                let turn = random.below(u64::from(turns)) as u32;
                self.start_loop(Some(at), Some(turn));
            }
            10 | 11 => {
                let keep = (random.below(3) as u32, random.below(5) as u32);
                let force = random.one_in(3);
                self.compact(at, keep, force);
            }
            12 => {
                self.flip(at, false);
            }
            _ => {
                self.flip(at, true);
            }
        }
    }
}
