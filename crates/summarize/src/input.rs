//! The input of a summary: the task, the earlier summary, and the turns after it.

use loopstore_model::tokens::TokenCounter;
use loopstore_model::{AgentMessage, Int, Message, Turns};

use loopstore_digest::without_recorded_sections;
use loopstore_model::compaction::{LoopMessage, LoopSlice, ReadError, RollupSlice};

/// The text in place of a missing task.
const UNKNOWN_TASK: &str = "Unknown task";

/// The input of a summariser.
pub(super) struct Input {
    /// The loop's first prompt.
    pub(super) task: String,
    /// The earlier summary: the text of the active block.
    pub(super) previous: Option<String>,
    /// The messages of the turns to read.
    pub(super) messages: Vec<LoopMessage>,
    /// The tokens of the input in the store.
    pub(super) tokens: u64,
    /// Instructions of the caller, from `CompactionConfig::summary_prompt`.
    pub(super) instructions: Option<String>,
    /// The time of the last message: a summary must not depend on the time of the compaction.
    pub(super) time: Option<Int>,
}

impl Input {
    /// Returns the input of a summary of `turns` by the strategy `name`.
    pub(super) fn read(slice: &LoopSlice<'_>, turns: Turns, name: &str) -> Result<Self, ReadError> {
        let before = slice.before_messages()?;
        let mut messages = Vec::new();
        for part in unread(slice, turns, name) {
            messages.extend(slice.messages(part)?);
        }
        let task = slice.first_prompt()?.as_ref().and_then(prompt_of);
        let counted = before.iter().chain(messages.iter().map(|m| &m.message));
        Ok(Self {
            tokens: counted.map(|m| slice.counter().message_tokens(m)).sum(),
            instructions: None,
            task: task_or_unknown(task),
            previous: (!before.is_empty()).then(|| join(before.iter().map(summary_of))),
            time: time_of(&messages),
            messages,
        })
    }

    /// Returns the input of a rollup: the contents of its loops, and the task of the root.
    pub(super) fn of_loops(slice: &RollupSlice<'_>) -> Result<Self, ReadError> {
        let (mut previous, mut messages, mut tokens) = (Vec::new(), Vec::new(), 0);
        let mut time = None;
        for at in 0..slice.loops().len() {
            for (turn, message) in slice.messages(at)? {
                tokens += slice.counter().message_tokens(&message);
                let inner = message.message();
                time = inner.and_then(Message::timestamp).map(Int::from).or(time);
                match turn {
                    // A summary is no statement of a person, whatever its role.
                    None => previous.push(summary_of(&message)),
                    Some(turn) => messages.push(LoopMessage {
                        turn,
                        seq: 0,
                        message,
                    }),
                }
            }
        }
        Ok(Self {
            instructions: None,
            task: task_or_unknown(slice.task()?),
            previous: (!previous.is_empty()).then(|| previous.join("\n")),
            messages,
            tokens,
            time,
        })
    }

    /// Returns the input of messages without a store; the first prompt is the task.
    pub(super) fn of_messages(messages: &[LoopMessage], counter: &dyn TokenCounter) -> Self {
        let mut shown = messages.iter().map(|placed| &placed.message);
        Self {
            instructions: None,
            task: task_or_unknown(shown.clone().find_map(prompt_of)),
            previous: None,
            tokens: shown.by_ref().map(|m| counter.message_tokens(m)).sum(),
            time: time_of(messages),
            messages: messages.to_vec(),
        }
    }
}

/// Returns the turns that must be read. Turns that this strategy has summarised are in its summary. The summary of
/// another strategy may lack facts that a model would keep, so its turns are read again. If there are no new turns, for
/// instance after a change of options, all turns are read again, too.
fn unread(slice: &LoopSlice<'_>, turns: Turns, name: &str) -> Vec<Turns> {
    let own = slice.before().filter(|block| block.strategy == name);
    let known = own.and_then(|block| block.layout.compacted);
    let Some(known) = known.filter(|k| turns.first <= k.first && k.last <= turns.last) else {
        return vec![turns];
    };
    let parts = [turns.first..known.first, known.end()..turns.end()];
    let parts: Vec<Turns> = parts.into_iter().filter_map(Turns::of).collect();
    if parts.is_empty() { vec![turns] } else { parts }
}

fn time_of(messages: &[LoopMessage]) -> Option<Int> {
    let mut times = messages
        .iter()
        .rev()
        .filter_map(|placed| placed.message.message()?.timestamp());
    times.next().map(Int::from)
}

fn task_or_unknown(task: Option<String>) -> String {
    let task = task.filter(|task| !task.trim().is_empty());
    task.unwrap_or_else(|| UNKNOWN_TASK.to_owned())
}

fn prompt_of(message: &AgentMessage) -> Option<String> {
    message.message()?.prompt_text()
}

fn text_of(message: &AgentMessage) -> String {
    join(message.message().into_iter().flat_map(Message::texts))
}

/// Returns the text of an earlier summary for a model.
fn summary_of(message: &AgentMessage) -> String {
    without_recorded_sections(&text_of(message))
}

fn join(texts: impl Iterator<Item = impl Into<String>>) -> String {
    let texts: Vec<String> = texts.map(Into::into).collect();
    texts.join("\n")
}
