//! Random sessions of phi-core that grow.

use std::collections::HashMap;

use phi_core::context::{CompactionConfig, CompactionScope, TurnMap};
use phi_core::{AgentMessage, LoopRecord, Session};
use serde_json::{Value, json};

use crate::support::histories::Random;

/// The features of a session; each session has few of them, so that many sessions are plain.
pub struct Traits {
    pub late_results: bool,
    pub unanswered: bool,
    pub extensions: bool,
    pub forks: bool,
}

pub struct World {
    pub random: Random,
    pub session: Session,
    /// The leaf.
    pub leaf: usize,
    /// The last turn of the parent that belongs to a loop's chain, where it was chosen.
    pub cuts: HashMap<String, u32>,
    pub traits: Traits,
    next: u64,
    turn: u64,
    open: Vec<String>,
}

pub fn loop_name(at: usize) -> String {
    format!("s.mock.{at}")
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let extensions = random.one_in(10);
        let traits = Traits {
            late_results: random.one_in(6),
            unanswered: random.one_in(8),
            extensions,
            // With extensions phi-core counts turns differently, and a cut is the number of a turn.
            forks: !extensions && random.one_in(6),
        };
        let session = json!({
            "session_id": "s", "agent_id": "agent", "loops": [], "scope": "persistent",
            "created_at": "2026-01-01T00:00:00Z", "last_active_at": "2026-01-01T00:00:00Z",
            "formation": {"FirstLoop": {"timestamp": "2026-01-01T00:00:00Z"}},
        });
        let mut world = Self {
            random,
            session: serde_json::from_value(session).unwrap(),
            leaf: 0,
            cuts: HashMap::new(),
            traits,
            next: 0,
            turn: 0,
            open: Vec::new(),
        };
        world.begin_loop(None, None);
        world
    }

    pub fn leaf(&self) -> &LoopRecord {
        &self.session.loops[self.leaf]
    }

    /// Begins a loop, which becomes the leaf.
    pub fn begin_loop(&mut self, parent: Option<usize>, cut: Option<u32>) {
        let at = self.session.loops.len();
        let kind = match (parent, cut) {
            (None, _) => json!("Initial"),
            (_, None) => json!("Default"),
            _ => json!({"Branch": {"tag": "other"}}),
        };
        let record = json!({
            "loop_id": loop_name(at), "session_id": "s", "agent_id": "agent",
            "parent_loop_id": parent.map(loop_name), "continuation_kind": kind,
            "started_at": "2026-01-01T00:00:00Z", "status": "Running", "messages": [],
            "usage": {"input": 1, "output": 2}, "children_loop_ids": [], "child_loop_refs": [],
        });
        self.session
            .loops
            .push(serde_json::from_value(record).unwrap());
        if let Some(parent) = parent {
            let children = &mut self.session.loops[parent].children_loop_ids;
            children.push(loop_name(at));
        }
        self.cuts.extend(cut.map(|cut| (loop_name(at), cut)));
        self.leaf = at;
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn text(&mut self) -> String {
        let id = self.id();
        let times = |random: &mut Random, n| random.below(n) as usize;
        match self.random.below(4) {
            0 => format!("note {id}"),
            1 => format!("{id} {}", "word ".repeat(times(&mut self.random, 60))),
            2 => format!("{id}\n{}", "line\n".repeat(times(&mut self.random, 20))),
            _ => format!(
                "é {id}\n{}",
                "many words\n".repeat(times(&mut self.random, 14))
            ),
        }
    }

    fn stamped(&mut self, mut message: Value) -> AgentMessage {
        let index = self.turn;
        message["turnId"] = json!({"loopId": loop_name(self.leaf), "turnIndex": index});
        message["timestamp"] = json!(1_700_000_000_000 + self.id());
        serde_json::from_value(message).unwrap()
    }

    fn result(&mut self, call: &str) -> AgentMessage {
        let mut content = vec![json!({"type": "text", "text": self.text()})];
        if self.random.one_in(8) {
            content.push(json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}));
        }
        self.stamped(json!({
            "role": "toolResult", "toolCallId": call, "toolName": "look", "content": content,
            "isError": false,
        }))
    }

    /// Returns the messages of the leaf's next turn.
    pub fn turn(&mut self) -> Vec<AgentMessage> {
        self.turn += 1;
        let mut messages = Vec::new();
        if self.traits.extensions && self.random.one_in(3) {
            let note = json!({"role": "extension", "kind": "note", "data": {"n": self.id()}});
            messages.push(serde_json::from_value(note).unwrap());
        }
        if !self.random.one_in(3) {
            let text = self.text();
            let content = json!([{"type": "text", "text": text}]);
            let prompt = self.stamped(json!({"role": "user", "content": content}));
            messages.push(prompt);
        }
        if self.random.one_in(2)
            && let Some(call) = self.open.pop()
        {
            messages.push(self.result(&call));
        }
        if self.traits.unanswered && self.random.one_in(5) && !messages.is_empty() {
            return messages;
        }
        self.answer(&mut messages);
        messages
    }

    fn answer(&mut self, messages: &mut Vec<AgentMessage>) {
        let calls: Vec<String> = (0..self.random.below(3))
            .map(|_| format!("call-{}", self.id()))
            .collect();
        let mut content = vec![json!({"type": "text", "text": self.text()})];
        for id in &calls {
            let arguments = json!({"path": format!("src/{id}.rs")});
            let call =
                json!({"type": "toolCall", "id": id, "name": "look", "arguments": arguments});
            content.push(call);
        }
        messages.push(self.stamped(json!({
            "role": "assistant", "content": content, "stopReason": "stop", "model": "m",
            "provider": "p", "usage": {"input": 3, "output": 4},
        })));
        for id in calls {
            if self.traits.late_results && self.random.one_in(3) {
                self.open.push(id);
            } else {
                let result = self.result(&id);
                messages.push(result);
            }
        }
    }

    /// Lists the loops, for the message of a failure.
    pub fn outline(&self) -> Vec<String> {
        let told = |record: &LoopRecord| {
            let turns = TurnMap::from_messages(&record.messages).turn_count();
            let block = record.compaction_block.as_ref().map(|block| {
                let compacted = block.keep_compacted.as_ref().map(|section| &section.range);
                let recent = block.keep_recent.as_ref().map(|section| &section.range);
                format!("{:?} {compacted:?} {recent:?}", block.keep_first)
            });
            let (id, parent) = (&record.loop_id, &record.parent_loop_id);
            let cut = self.cuts.get(id);
            format!("{id} after {parent:?} to {cut:?}: {turns} turns, {block:?}")
        };
        self.session.loops.iter().map(told).collect()
    }

    /// Returns a turn of a loop at which a branch can begin.
    pub fn cut_of(&mut self, at: usize) -> Option<u32> {
        let turns = TurnMap::from_messages(&self.session.loops[at].messages).turn_count();
        (turns > 1).then(|| self.random.below(u64::from(turns) - 1) as u32)
    }

    pub fn config(&mut self) -> CompactionConfig {
        let random = &mut self.random;
        CompactionConfig {
            compaction_scope: match random.one_in(6) {
                true => CompactionScope::TokenBudget,
                false => CompactionScope::FixedCount(random.below(4) as usize),
            },
            keep_first_turns: [0, 1, 1, 1, 2, 2][random.below(6) as usize],
            keep_recent_turns: random.below(4) as usize,
            max_summary_tokens: [0, 20, 60, 2000][random.below(4) as usize],
            tool_output_max_lines: random.below(8) as usize,
            ..CompactionConfig::default()
        }
    }
}
