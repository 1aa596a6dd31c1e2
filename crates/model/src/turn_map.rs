//! The grouping of a loop's messages into turns.

use super::{AgentMessage, TurnRange};

/// Maps the turns of one loop to its messages.
///
/// Consecutive messages with the same turn index form one group, a message without a turn id is
/// a group of its own, and an extension message neither splits a group nor starts one. A turn is
/// numbered by the position of its group, from 0.
///
/// ```
/// use loopstore_model::{AgentMessage, Message, TurnId, TurnMap, TurnRange};
///
/// let message = |turn| AgentMessage::from(Message::user("…")).in_turn(TurnId::new("monday", turn));
/// let messages = [message(0), message(0), message(7)];
/// let map = TurnMap::from_messages(&messages);
/// assert_eq!(map.turn_count(), 2);
/// assert_eq!(map.turn_msg_range(0), Some((0, 2)));
/// assert_eq!(map.messages_for_range(&TurnRange::new(1, 1), &messages), &messages[2..]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnMap {
    /// First message of each group.
    starts: Vec<usize>,
    /// End of each group, after its last message that is no extension.
    ends: Vec<usize>,
}

/// A cursor over the messages of a loop that detects where a turn group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub struct GroupCursor {
    /// The turn index of the last message that was no extension; `None` before the first, then
    /// `Some(None)` for a message without a turn id.
    last: Option<Option<i64>>,
}

impl GroupCursor {
    /// Returns a cursor after a message whose turn index was `last`.
    #[doc(hidden)]
    pub fn after(last: Option<i64>) -> Self {
        Self { last: Some(last) }
    }

    /// Advances by a message that is no extension; returns true if it begins a group.
    #[doc(hidden)]
    pub fn begins(&mut self, turn_index: Option<i64>) -> bool {
        let begins = turn_index.is_none() || self.last != Some(turn_index);
        self.last = Some(turn_index);
        begins
    }
}

impl TurnMap {
    /// Groups `messages` into turns.
    pub fn from_messages(messages: &[AgentMessage]) -> Self {
        let mut map = Self::default();
        let mut cursor = GroupCursor::default();
        for (at, message) in messages.iter().enumerate() {
            if matches!(message, AgentMessage::Extension(_)) {
                continue;
            }
            if cursor.begins(message.turn_index()) {
                map.starts.push(at);
                map.ends.push(at + 1);
            } else if let Some(end) = map.ends.last_mut() {
                *end = at + 1;
            }
        }
        map
    }

    /// Returns the number of turns.
    pub fn turn_count(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }

    /// Returns the messages of one turn as `first..end`, extensions between them included;
    /// `None` if there is no such turn.
    pub fn turn_msg_range(&self, turn: u32) -> Option<(usize, usize)> {
        let at = turn as usize;
        Some((*self.starts.get(at)?, *self.ends.get(at)?))
    }

    /// Returns the messages of a range of turns, extensions between them included. Turns beyond the last one are
    /// ignored.
    pub fn messages_for_range<'a>(
        &self,
        range: &TurnRange,
        messages: &'a [AgentMessage],
    ) -> &'a [AgentMessage] {
        let found = range.bounds().and_then(|(start, end)| {
            let last = end.min(self.turn_count().checked_sub(1)?);
            let (first, _) = self.turn_msg_range(start)?;
            let (_, end) = self.turn_msg_range(last)?;
            messages.get(first..end)
        });
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Json, Message, TurnId};

    fn user(turn: Option<u32>) -> AgentMessage {
        let message = AgentMessage::from(Message::user("x"));
        match turn {
            Some(turn) => message.in_turn(TurnId::new("l", turn)),
            None => message,
        }
    }

    #[test]
    fn groups_are_runs_of_one_index_and_extensions_are_transparent() {
        let note = AgentMessage::extension("note", Json::null());
        let messages = [
            note.clone(),
            user(Some(7)),
            note.clone(),
            user(Some(7)),
            note,
            user(None),
            user(None),
            user(Some(7)),
        ];
        let map = TurnMap::from_messages(&messages);
        assert_eq!(map.turn_count(), 4);
        assert_eq!(map.turn_msg_range(0), Some((1, 4)));
        assert_eq!(map.turn_msg_range(1), Some((5, 6)));
        assert_eq!(map.turn_msg_range(2), Some((6, 7)));
        assert_eq!(map.turn_msg_range(3), Some((7, 8)));
        assert_eq!(map.turn_msg_range(4), None);
        assert_eq!(
            map.messages_for_range(&TurnRange::new(0, 1), &messages)
                .len(),
            5
        );
        assert_eq!(
            map.messages_for_range(&TurnRange::new(3, 99), &messages)
                .len(),
            1
        );
        assert!(
            map.messages_for_range(&TurnRange::new(9, 12), &messages)
                .is_empty()
        );
    }
}
