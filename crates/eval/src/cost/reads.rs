//! The files that a session read, and those that it would have to read again after a compaction.

use std::collections::{HashMap, HashSet};

use loopstore::extend::compaction::CallEffects;
use loopstore::model::{AgentMessage, Content, Message};
use loopstore::tokens::TokenCounter;

use super::TURNS_OF_A_BILL;

/// The newest reading of a file.
struct FileRead {
    result: Message,
    /// The tokens of the call, and of its result.
    tokens: (u64, u64),
}

/// The files that a compaction hid, and the last turn in which they count for its bill.
struct Hidden {
    paths: HashSet<String>,
    last_turn: u32,
}

/// The files read so far.
#[derive(Default)]
pub(super) struct FileReads {
    /// The paths and the tokens of each call without a result.
    open: HashMap<String, (Vec<String>, u64)>,
    known: HashMap<String, FileRead>,
    /// Files of which the context shows nothing any more.
    gone: HashSet<String>,
    hidden: Vec<Hidden>,
}

impl FileReads {
    /// Notes a message of a turn. Returns the tokens of the call and of the content of each file that the message needs
    /// and that a compaction hid shortly before.
    pub(super) fn note(
        &mut self,
        message: &AgentMessage,
        turn: u32,
        counter: &dyn TokenCounter,
    ) -> Vec<(u64, u64)> {
        let mut needed = Vec::new();
        let Some(inner) = message.message() else {
            return needed;
        };
        for block in inner.content() {
            let Content::ToolCall(call) = block else {
                continue;
            };
            let effects = CallEffects::of(call);
            for path in effects.reads.iter().chain(&effects.changes) {
                needed.extend(self.needs(path, turn));
            }
            for path in &effects.changes {
                self.known.remove(path);
                self.gone.remove(path);
            }
            let tokens = counter.content_tokens(std::slice::from_ref(block));
            self.open.insert(call.id.clone(), (effects.reads, tokens));
        }
        let Message::ToolResult(result) = inner else {
            return needed;
        };
        let open = self.open.remove(&result.tool_call_id);
        let Some((paths, call)) = open.filter(|_| !result.is_error) else {
            return needed;
        };
        // A result of several files is split evenly.
        let files = (paths.len() as u64).max(1);
        let tokens = (call / files, counter.message_tokens(message) / files);
        for path in paths {
            self.gone.remove(&path);
            let result = inner.clone();
            self.known.insert(path, FileRead { result, tokens });
        }
        needed
    }

    fn needs(&mut self, path: &str, turn: u32) -> Option<(u64, u64)> {
        let mut counts = false;
        for hidden in &mut self.hidden {
            counts |= turn <= hidden.last_turn && hidden.paths.remove(path);
        }
        if !counts {
            return None;
        }
        // It would be in the context again.
        self.gone.remove(path);
        self.known.get(path).map(|read| read.tokens)
    }

    /// Notes the context that a compaction before a turn left.
    pub(super) fn compacted(&mut self, context: &[AgentMessage], turn: u32) {
        let mut shown: HashMap<&str, Vec<&Message>> = HashMap::new();
        for message in context.iter().filter_map(AgentMessage::message) {
            if let Message::ToolResult(result) = message {
                shown.entry(&result.tool_call_id).or_default().push(message);
            }
        }
        let is_shown = |read: &FileRead| {
            let Message::ToolResult(result) = &read.result else {
                return false;
            };
            let shown = shown.get(&*result.tool_call_id);
            shown.is_some_and(|shown| shown.iter().any(|m| m.content() == read.result.content()))
        };
        let hidden = self.known.iter().filter(|(_, read)| !is_shown(read));
        let paths: HashSet<String> = hidden
            .map(|(path, _)| path)
            .filter(|path| !self.gone.contains(*path))
            .cloned()
            .collect();
        self.gone.extend(paths.iter().cloned());
        self.hidden.retain(|hidden| turn <= hidden.last_turn);
        self.hidden.push(Hidden {
            paths,
            last_turn: turn + TURNS_OF_A_BILL - 1,
        });
    }
}
