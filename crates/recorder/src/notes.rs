//! The stored form of events and turns: a stored message is replaced by its sequence.
//!
//! While a loop runs each is a row, written with the next message; when the loop ends they become the loop's
//! recorded turns and events, in the form in which imports keep them.

use loopstore::extend::{LoopKey, LoopMeta, Note, StoreError, StoreRead, StoreResult, StoreWrite};
use loopstore::internal::{history_fingerprint, shorten_history, to_json};
use loopstore::model::{AgentMessage, Json, Turn};
use serde::{Deserialize, Serialize};

use crate::event::AgentEvent;

/// The digests of messages with their sequences.
#[derive(Default)]
pub(crate) struct StoredMessages(Vec<([u8; 32], u32)>);

impl StoredMessages {
    /// Returns the digests of stored messages, each with its sequence.
    pub fn stored(messages: &[(u32, AgentMessage)]) -> StoreResult<Self> {
        let known = messages.iter();
        let known = known.map(|(seq, message)| Ok((fingerprint(message)?, *seq)));
        Ok(Self(known.collect::<StoreResult<_>>()?))
    }

    /// Returns the digests of messages as an event has them, of which some are in `stored`.
    pub fn named<'m>(
        named: impl Iterator<Item = &'m AgentMessage>,
        stored: &[&(u32, AgentMessage)],
    ) -> StoreResult<Self> {
        let mut known = Vec::new();
        for message in named {
            let mut stored = stored.iter();
            let same = stored.find(|(_, one)| one.message() == message.message());
            if let Some((seq, _)) = same {
                known.push((fingerprint(message)?, *seq));
            }
        }
        Ok(Self(known))
    }

    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    fn find(&self, digest: &[u8; 32]) -> Option<u32> {
        let found = self.0.iter().find(|(known, _)| known == digest);
        found.map(|(_, seq)| *seq)
    }
}

fn fingerprint(message: &AgentMessage) -> StoreResult<[u8; 32]> {
    let json = Json::of(message).map_err(invalid)?;
    Ok(history_fingerprint(&json))
}

fn invalid(error: serde_json::Error) -> StoreError {
    StoreError::Invalid(format!("an event cannot be stored: {error}"))
}

/// Returns an event as a note, with messages that are `known` as their sequences.
pub(crate) fn event_note(event: &AgentEvent, known: &[&StoredMessages]) -> StoreResult<Note> {
    let json = Json::of(event).map_err(invalid)?;
    let find = |digest: &_| known.iter().find_map(|known| known.find(digest));
    let short = shorten_history(json.as_str(), &find).map_err(invalid)?;
    Ok(Note::Event(short))
}

/// Returns the index of the newest turn of a loop whose end was recorded.
pub(crate) fn last_ended(read: &dyn StoreRead, loop_key: LoopKey) -> StoreResult<Option<i64>> {
    let notes = read.notes(loop_key)?;
    let last_turn = notes.iter().rev().find_map(|note| match note {
        Note::Turn(text) => Some(Json::parse(text)),
        Note::Event(_) => None,
    });
    let turn = match last_turn {
        Some(turn) => Some(turn.map_err(damaged)?),
        None => history(&read.loop_meta(loop_key)?)?.turns.pop(),
    };
    let of = |turn: &Json| turn.read::<Turn>().ok()?.turn_id?.read::<EndedTurn>().ok();
    Ok(turn.and_then(|turn| of(&turn)).map(|turn| turn.turn_index))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndedTurn {
    turn_index: i64,
}

/// Recorded turns and events of a loop.
#[derive(Default, Serialize, Deserialize)]
struct LoopHistory {
    #[serde(default)]
    turns: Vec<Json>,
    #[serde(default)]
    events: Vec<Json>,
}

#[derive(Serialize)]
struct Numbered<'a> {
    sequence: usize,
    event: &'a Json,
}

fn damaged(error: serde_json::Error) -> StoreError {
    StoreError::Damaged(format!("a note: {error}"))
}

fn history(meta: &LoopMeta) -> StoreResult<LoopHistory> {
    match &meta.history {
        Some(text) => serde_json::from_str(text).map_err(damaged),
        None => Ok(LoopHistory::default()),
    }
}

/// Appends the notes of a loop to its recorded turns and events.
pub(crate) fn fold(write: &mut dyn StoreWrite, loop_key: LoopKey) -> StoreResult<()> {
    let notes = write.notes(loop_key)?;
    if notes.is_empty() {
        return Ok(());
    }
    let before = write.loop_meta(loop_key)?;
    let mut history = history(&before)?;
    for note in notes {
        match note {
            Note::Turn(text) => history.turns.push(Json::parse(&text).map_err(damaged)?),
            Note::Event(text) => {
                let event = &Json::parse(&text).map_err(damaged)?;
                let sequence = history.events.len();
                let numbered = Json::of(&Numbered { sequence, event }).map_err(damaged)?;
                history.events.push(numbered);
            }
        }
    }
    let meta = LoopMeta {
        history: Some(to_json(&history)?),
        ..before
    };
    write.update_loop_meta(loop_key, &meta)?;
    write.remove_notes(loop_key)
}
