//! The list of messages that the model sees, and its changes during a session: messages are added, removed from the
//! end, or replaced.

use loopstore::model::AgentMessage;
use serde_json::value::RawValue;

use super::messages::{self, GeminiRecord};
use crate::authors::by_harness;
use crate::fields::Fields;
use crate::transcript::LoopTurn;

/// A message on the list.
#[derive(Debug)]
pub(super) struct ListEntry {
    id: String,
    /// The turn of the message before it.
    pub(super) after: Option<LoopTurn>,
    /// The turn of the message; `None` for a message that a compaction created.
    pub(super) at: Option<LoopTurn>,
}

impl ListEntry {
    /// True if the message before it belongs to another turn.
    pub(super) fn begins_turn(&self) -> bool {
        self.at.is_some() && self.at != self.after
    }
}

/// A message of a list that is stored whole in the session file.
pub(super) struct ListedMessage {
    pub(super) id: String,
    pub(super) record: GeminiRecord,
    pub(super) raw: String,
}

/// Reads the messages of a list that the model sees; `None` if one cannot be read. Tool responses are left out: they
/// are stored with their calls.
pub(super) fn messages_of(list: &[&RawValue]) -> Option<Vec<ListedMessage>> {
    let mut read = Vec::new();
    for raw in list {
        let fields = Fields::parse(raw.get()).ok()?;
        let id = fields.text("id");
        let record = messages::read(fields).ok()?;
        if matches!(record, GeminiRecord::Prompt(_) | GeminiRecord::Answer(_)) {
            read.push(ListedMessage {
                id: id?,
                record,
                raw: raw.get().to_owned(),
            });
        }
    }
    Some(read)
}

/// The messages that the model sees.
#[derive(Debug, Default)]
pub(super) struct MessageList(Vec<ListEntry>);

impl MessageList {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&ListEntry> {
        self.0.get(at)
    }

    pub(super) fn push(&mut self, id: String, after: Option<LoopTurn>, at: Option<LoopTurn>) {
        self.0.push(ListEntry { id, after, at });
    }

    pub(super) fn truncate(&mut self, kept: usize) {
        self.0.truncate(kept);
    }

    /// Returns the index of a message; 0 if the list does not contain it, since Gemini CLI then drops all messages.
    pub(super) fn find(&self, id: &str) -> usize {
        let found = self.0.iter().position(|message| message.id == id);
        found.unwrap_or(0)
    }

    /// Returns the number of messages that both lists have in common at the beginning.
    pub(super) fn begins_as(&self, list: &[ListedMessage]) -> usize {
        let mut pairs = self.0.iter().zip(list);
        let differs = pairs.position(|(shown, listed)| shown.id != listed.id);
        differs.unwrap_or(self.len().min(list.len()))
    }

    /// Returns the number of messages that both lists have in common at the end, in whole turns.
    pub(super) fn ends_as(&self, list: &[ListedMessage]) -> usize {
        let mut pairs = self.0.iter().rev().zip(list.iter().rev());
        let differs = pairs.position(|(shown, listed)| shown.id != listed.id);
        let same = differs.unwrap_or(self.len().min(list.len()));
        let tail = self.0.iter().skip(self.len() - same);
        let parted = tail.take_while(|message| !message.begins_turn()).count();
        same - parted
    }

    /// Replaces all but the last `tail` messages, and returns the new messages that the model sees. `after` is the turn
    /// at which this happens.
    pub(super) fn replace(
        &mut self,
        list: Vec<ListedMessage>,
        tail: usize,
        after: Option<LoopTurn>,
    ) -> Vec<AgentMessage> {
        let before = self.0.split_off(self.len() - tail);
        let before = std::mem::replace(&mut self.0, before);
        let (mut shown, mut messages) = (Vec::new(), Vec::new());
        for listed in list {
            match listed.record {
                GeminiRecord::Prompt(prompt) => {
                    let is_known = before.iter().any(|message| message.id == listed.id);
                    messages.push(match is_known {
                        true => *prompt,
                        false => by_harness(*prompt),
                    });
                }
                GeminiRecord::Answer(answer) => {
                    messages.push(answer.message);
                    messages.extend(answer.results.into_iter().map(|(result, _)| result));
                }
                GeminiRecord::Responses(_) | GeminiRecord::Extension => {}
            }
            shown.push(ListEntry {
                id: listed.id,
                after,
                at: None,
            });
        }
        self.0.splice(0..0, shown);
        messages
    }
}
