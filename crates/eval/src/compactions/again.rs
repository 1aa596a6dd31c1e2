//! The calls that an agent repeated after a compaction, though nothing had changed since the first.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use loopstore::compaction::LoopMessage;
use loopstore::extend::compaction::CallEffects;
use loopstore::model::{Content, Message};
use loopstore::tokens::TokenCounter;

/// The kind of a repeated call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatedKind {
    /// A file was read again.
    Read,
    /// A command was run again.
    Command,
}

/// A call that an agent repeated after a compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedCall {
    /// The kind of the call.
    pub kind: RepeatedKind,
    /// The file, or the command.
    pub what: String,
    /// The number of tokens of the call and of its result.
    pub tokens: u64,
}

/// Returns the calls that were repeated after a compaction: the first read of each file that the hidden messages
/// read, and the first run of each command that they ran. Calls with a possibly new result are left out: reads of a
/// file that was changed since, commands after any change, failed calls, and calls that the visible messages still
/// contain.
///
/// ```
/// use loopstore_eval::repeated_calls;
/// use loopstore::*;
///
/// let read = || Message::assistant("").with_tool_call("c", "Read", serde_json::json!({"path": "a.rs"}));
/// let messages = [read(), Message::tool_result("c", "fn a() {}"), read(), Message::tool_result("c", "fn a() {}")];
/// let placed = |(at, message): (usize, Message)| {
///     let (turn, seq) = (at as u32 / 2, at as u32);
///     LoopMessage { turn, seq, message: message.into() }
/// };
/// let messages: Vec<LoopMessage> = messages.into_iter().enumerate().map(placed).collect();
/// let again = repeated_calls(&messages[..2], &|_| true, &messages[2..], &HeuristicTokenCounter);
/// assert_eq!((again[0].what.as_str(), again.len()), ("a.rs", 1));
/// ```
pub fn repeated_calls(
    before: &[LoopMessage],
    is_hidden: &dyn Fn(&LoopMessage) -> bool,
    after: &[LoopMessage],
    counter: &dyn TokenCounter,
) -> Vec<RepeatedCall> {
    let mut memory = Memory::default();
    for call in calls(before, counter) {
        memory.note(&call.effects, is_hidden(call.of));
    }
    let mut again = Vec::new();
    for call in calls(after, counter) {
        let done = memory.again(&call.effects);
        again.extend(done.map(|(kind, what)| RepeatedCall {
            kind,
            what,
            tokens: call.tokens,
        }));
        memory.note(&call.effects, false);
    }
    again
}

/// A call that succeeded.
struct DoneCall<'a> {
    of: &'a LoopMessage,
    effects: CallEffects,
    tokens: u64,
}

/// Returns the calls of messages whose result is not an error.
fn calls<'a>(
    messages: &'a [LoopMessage],
    counter: &'a dyn TokenCounter,
) -> impl Iterator<Item = DoneCall<'a>> {
    let mut results: HashMap<&str, Vec<&LoopMessage>> = HashMap::new();
    for placed in messages.iter().rev() {
        if let Some(Message::ToolResult(result)) = placed.message.message() {
            results
                .entry(&result.tool_call_id)
                .or_default()
                .push(placed);
        }
    }
    messages.iter().flat_map(move |placed| {
        let content = placed.message.message().map(Message::content);
        let mut done = Vec::new();
        for block in content.unwrap_or_default() {
            let Content::ToolCall(call) = block else {
                continue;
            };
            let Some(result) = results.get_mut(&*call.id).and_then(Vec::pop) else {
                continue;
            };
            let failed =
                matches!(result.message.message(), Some(Message::ToolResult(r)) if r.is_error);
            if !failed {
                done.push(DoneCall {
                    of: placed,
                    effects: CallEffects::of(call),
                    tokens: counter.content_tokens(std::slice::from_ref(block))
                        + counter.message_tokens(&result.message),
                });
            }
        }
        done
    })
}

/// The calls of the hidden messages whose results would be the same now.
#[derive(Default)]
struct Memory {
    read: HashSet<String>,
    run: HashSet<String>,
}

impl Memory {
    fn note(&mut self, effects: &CallEffects, is_hidden: bool) {
        for path in &effects.changes {
            self.read.remove(path);
        }
        if !effects.changes.is_empty() {
            self.run.clear();
            return;
        }
        // A command that reads files is counted as a command.
        let (of, names) = match &effects.command {
            Some(command) => (&mut self.run, std::slice::from_ref(command)),
            None => (&mut self.read, effects.reads.as_slice()),
        };
        for name in names {
            match is_hidden {
                true => drop(of.insert(name.clone())),
                false => drop(of.remove(name)),
            }
        }
    }

    fn again(&self, effects: &CallEffects) -> Option<(RepeatedKind, String)> {
        if !effects.changes.is_empty() {
            return None;
        }
        if let Some(command) = &effects.command {
            let is_again = self.run.contains(command);
            return is_again.then(|| (RepeatedKind::Command, effects.description.clone()));
        }
        let path = effects
            .reads
            .iter()
            .find(|path| self.read.contains(*path))?;
        Some((RepeatedKind::Read, path.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopstore::HeuristicTokenCounter;
    use serde_json::{Value, json};

    fn history(calls: &[(&str, Value)]) -> Vec<LoopMessage> {
        let mut messages = Vec::new();
        for (at, (name, arguments)) in calls.iter().enumerate() {
            let id = format!("c{at}");
            let call = Message::assistant("").with_tool_call(&id, *name, arguments.clone());
            messages.extend([call, Message::tool_result(&id, "fine")]);
        }
        let placed = |(at, message): (usize, Message)| LoopMessage {
            turn: at as u32 / 2,
            seq: at as u32,
            message: message.into(),
        };
        messages.into_iter().enumerate().map(placed).collect()
    }

    fn again(
        before: &[(&str, Value)],
        kept: &[(&str, Value)],
        after: &[(&str, Value)],
    ) -> Vec<String> {
        let all = history(&[before, kept, after].concat());
        let cut = 2 * (before.len() + kept.len());
        let is_hidden = |placed: &LoopMessage| (placed.seq as usize) < 2 * before.len();
        let found = repeated_calls(&all[..cut], &is_hidden, &all[cut..], &HeuristicTokenCounter);
        found.into_iter().map(|call| call.what).collect()
    }

    fn read(path: &str) -> (&'static str, Value) {
        ("Read", json!({"file_path": path}))
    }

    fn edit(path: &str) -> (&'static str, Value) {
        (
            "Edit",
            json!({"file_path": path, "old_string": "1", "new_string": "2"}),
        )
    }

    fn run(line: &str) -> (&'static str, Value) {
        ("Bash", json!({"command": line}))
    }

    #[test]
    fn a_file_is_read_again_once_and_only_if_nobody_changed_it() {
        let after = [read("/a.rs"), read("/a.rs"), read("/b.rs"), read("/c.rs")];
        let before = [read("/a.rs"), read("/b.rs"), edit("/b.rs")];
        assert_eq!(again(&before, &[], &after), ["/a.rs"]);
        let changed = [edit("/a.rs"), read("/a.rs")];
        assert!(again(&before, &[], &changed).is_empty());
    }

    #[test]
    fn a_command_behind_a_change_is_not_run_again_for_want_of_memory() {
        let before = [run("cargo test"), run("ls  src")];
        assert_eq!(
            again(&before, &[], &[run("cargo test"), run("ls src")]),
            ["cargo test", "ls src"]
        );
        assert!(again(&before, &[], &[edit("/a.rs"), run("cargo test")]).is_empty());
        assert!(again(&before, &[edit("/a.rs")], &[run("cargo test")]).is_empty());
    }

    #[test]
    fn what_stands_beside_the_text_was_not_forgotten() {
        let before = [read("/a.rs"), run("ls")];
        assert!(again(&before, &before, &before).is_empty());
    }

    #[test]
    fn a_call_without_an_answer_or_with_an_error_counts_for_nothing() {
        let mut all = history(&[read("/a.rs"), read("/a.rs")]);
        if let Some(Message::ToolResult(result)) = all[3].message.message() {
            let failed = loopstore::ToolResultMessage {
                is_error: true,
                ..result.clone()
            };
            all[3].message = Message::ToolResult(failed).into();
        }
        let found = |all: &[LoopMessage]| {
            repeated_calls(&all[..2], &|_| true, &all[2..], &HeuristicTokenCounter)
        };
        assert!(found(&all).is_empty());
        all.pop();
        assert!(found(&all).is_empty());
    }
}
