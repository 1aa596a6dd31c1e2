//! Building a history: messages, loops, appends. Compactions are in `run`.

use super::turns;
use super::types::*;

impl RefMessage {
    /// Returns an empty message; its tick is set when it is appended.
    pub fn new(kind: RefKind, turn_index: Option<u32>, id: u64) -> Self {
        Self {
            kind,
            turn_index,
            texts: Vec::new(),
            calls: Vec::new(),
            answers: None,
            tool_name: String::new(),
            thinking: Vec::new(),
            id,
            tick: 0,
            from_harness: false,
        }
    }

    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.texts.push(text.into());
        self
    }

    pub fn with_call(mut self, id: &str, name: &str, arguments: &str) -> Self {
        self.calls.push((id.into(), name.into(), arguments.into()));
        self
    }

    pub fn with_answer(mut self, call: &str, tool_name: &str) -> Self {
        self.answers = Some(call.into());
        self.tool_name = tool_name.into();
        self
    }

    pub fn with_thinking(mut self, thinking: &str, signature: Option<&str>) -> Self {
        self.thinking
            .push((thinking.into(), signature.map(Into::into)));
        self
    }
}

impl RefSession {
    /// Raises the tick: "a counter per session, raised by every committed append, loop start,
    /// run, undo and redo, and stored with each".
    pub fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// Starts a running loop after the parent's last turn then.
    pub fn start_loop(&mut self, id: &str, parent: Option<usize>) -> usize {
        let last = parent.and_then(|p| (turns::groups(&self.loops[p]).len() as u32).checked_sub(1));
        self.push_loop(id, parent, last)
    }

    /// Starts a running loop after `turn` of its parent, which must exist.
    pub fn fork(&mut self, id: &str, parent: usize, turn: u32) -> usize {
        assert!((turn as usize) < turns::groups(&self.loops[parent]).len());
        self.push_loop(id, Some(parent), Some(turn))
    }

    fn push_loop(&mut self, id: &str, parent: Option<usize>, parent_turn: Option<u32>) -> usize {
        let created_tick = self.next_tick();
        self.loops.push(RefLoop {
            id: id.into(),
            parent,
            parent_turn,
            running: true,
            messages: Vec::new(),
            created_tick,
        });
        self.loops.len() - 1
    }

    /// Appends messages under one tick; an empty append has no effect.
    pub fn append(&mut self, loop_ix: usize, messages: Vec<RefMessage>) {
        if messages.is_empty() {
            return;
        }
        let tick = self.next_tick();
        let stamped = messages.into_iter().map(|m| RefMessage { tick, ..m });
        self.loops[loop_ix].messages.extend(stamped);
    }

    /// Ends a loop, so that all its turns are complete.
    pub fn end_loop(&mut self, loop_ix: usize) {
        self.loops[loop_ix].running = false;
    }
}
