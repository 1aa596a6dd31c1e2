//! Events and turns as they are stored: a message that is stored stands as its sequence.
//!
//! While a loop runs each is a row, written with the turn; when it ends they become the loop's
//! recorded turns and events, in the form in which imports keep them.

use serde::{Deserialize, Serialize};

use super::event::AgentEvent;
use crate::import::{history_fingerprint, shorten_history};
use crate::model::{AgentMessage, Json};
use crate::store::codec::to_json;
use crate::store::{LoopKey, LoopMeta, Note, StoreError, StoreResult, StoreWrite};

/// The digests of messages with their sequences.
pub(super) struct Known(Vec<([u8; 32], u32)>);

impl Known {
    /// Messages as they were told, and as they are stored from `first` on.
    pub fn of(told: &[AgentMessage], stored: &[AgentMessage], first: u32) -> StoreResult<Self> {
        let mut known = Vec::new();
        for (seq, message) in (first..).zip(stored) {
            known.push((fingerprint(message)?, seq));
            for other in told.iter().filter(|one| one.message() == message.message()) {
                known.push((fingerprint(other)?, seq));
            }
        }
        Ok(Self(known))
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

/// Returns an event as a note.
pub(super) fn event_note(event: &AgentEvent, known: &Known) -> StoreResult<Note> {
    let json = Json::of(event).map_err(invalid)?;
    let short = shorten_history(json.as_str(), &|digest| known.find(digest)).map_err(invalid)?;
    Ok(Note::Event(short))
}

/// Recorded turns and events of a loop.
#[derive(Default, Serialize, Deserialize)]
struct History {
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

/// Makes the notes of a loop its recorded turns and events, behind those that it has.
pub(super) fn fold(write: &mut dyn StoreWrite, loop_key: LoopKey) -> StoreResult<()> {
    let notes = write.notes(loop_key)?;
    if notes.is_empty() {
        return Ok(());
    }
    let damaged = |error: serde_json::Error| StoreError::Damaged(format!("a note: {error}"));
    let before = write.loop_meta(loop_key)?;
    let mut history: History = match &before.history {
        Some(text) => serde_json::from_str(text).map_err(damaged)?,
        None => History::default(),
    };
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
