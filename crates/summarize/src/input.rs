//! What a summary is made from: the task, the summary before, and the turns that it does not hold.

use loopstore_model::tokens::TokenCounter;
use loopstore_model::{AgentMessage, Int, Message, Turns};

use loopstore_digest::without_recorded_sections;
use loopstore_model::compaction::{LoopSlice, Placed, ReadError, RollupSlice};

/// Stands for a task that nobody gave.
const UNKNOWN_TASK: &str = "Unknown task";

/// What a summariser reads.
pub(super) struct Input {
    /// The loop's first prompt.
    pub(super) task: String,
    /// What the active block shows in place of its turns.
    pub(super) previous: Option<String>,
    /// The messages of the turns to read.
    pub(super) messages: Vec<Placed>,
    /// Tokens of all this as it stands in the store.
    pub(super) tokens: u64,
    /// The time of the last message: a summary must not change with the time of its making.
    pub(super) time: Option<Int>,
}

impl Input {
    /// Reads what a summary of `turns` by the strategy `name` needs.
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
            task: task_or_unknown(task),
            previous: (!before.is_empty()).then(|| join(before.iter().map(summary_of))),
            time: time_of(&messages),
            messages,
        })
    }

    /// Reads what a rollup needs: what its loops show, and the task of the root.
    pub(super) fn of_loops(slice: &RollupSlice<'_>) -> Result<Self, ReadError> {
        let (mut previous, mut messages, mut tokens) = (Vec::new(), Vec::new(), 0);
        let mut time = None;
        for at in 0..slice.loops().len() {
            for (turn, message) in slice.messages(at)? {
                tokens += slice.counter().message_tokens(&message);
                let inner = message.message();
                time = inner.and_then(Message::timestamp).map(Int::from).or(time);
                match turn {
                    // Nobody said it, whatever its role is.
                    None => previous.push(summary_of(&message)),
                    Some(turn) => messages.push(Placed {
                        turn,
                        seq: 0,
                        message,
                    }),
                }
            }
        }
        Ok(Self {
            task: task_or_unknown(slice.task()?),
            previous: (!previous.is_empty()).then(|| previous.join("\n")),
            messages,
            tokens,
            time,
        })
    }

    /// Takes messages that belong to no store; the first prompt is the task.
    pub(super) fn of_messages(messages: &[Placed], counter: &dyn TokenCounter) -> Self {
        let mut shown = messages.iter().map(|placed| &placed.message);
        Self {
            task: task_or_unknown(shown.clone().find_map(prompt_of)),
            previous: None,
            tokens: shown.by_ref().map(|m| counter.message_tokens(m)).sum(),
            time: time_of(messages),
            messages: messages.to_vec(),
        }
    }
}

/// Returns the turns that must be read. What this strategy has summarised before is in its summary;
/// another's summary may have left out what a model would keep, so its turns are read again. With
/// nothing new (other options, say), the originals are read too.
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

fn time_of(messages: &[Placed]) -> Option<Int> {
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

/// Returns the text of an earlier summary as a model is to read it.
fn summary_of(message: &AgentMessage) -> String {
    without_recorded_sections(&text_of(message))
}

fn join(texts: impl Iterator<Item = impl Into<String>>) -> String {
    let texts: Vec<String> = texts.map(Into::into).collect();
    texts.join("\n")
}
