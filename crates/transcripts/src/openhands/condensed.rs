//! Condensations: OpenHands names the events that are hidden from the model, and inserts a summary at the position of
//! the first of them.

use std::collections::HashSet;

use loopstore::model::{AgentMessage, Json, Message};

use super::super::authors::by_harness;
use super::super::extension::extension;
use super::super::fields::Fields;
use super::super::transcript::{LoopTurn, TranscriptBuilder};
use super::super::values::time_of;
use super::super::{FoundEffect, ImportError, Importer as _};
use super::OpenHands;

/// The maximum number of first events that are held, since they stay before the summary …
const MAX_HEAD: usize = 8;
/// … and of their bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The events that the model sees, in order.
#[derive(Default)]
pub(super) struct ShownEvents {
    events: Vec<ShownEvent>,
    /// The first of them.
    head: Vec<AgentMessage>,
    head_bytes: usize,
    /// Ids of the events that are hidden from the model.
    forgotten: HashSet<String>,
}

struct ShownEvent {
    id: String,
    site: LoopTurn,
}

impl ShownEvents {
    /// Holds a message if it is one of the first; `bytes` is the length of its event.
    pub(super) fn hold_message(&mut self, message: &AgentMessage, bytes: usize) {
        self.head_bytes = self.head_bytes.saturating_add(bytes);
        if self.head.len() < MAX_HEAD && self.head_bytes <= MAX_HEAD_BYTES {
            self.head.push(message.clone());
        }
    }

    /// Records the position of an event.
    pub(super) fn note_place(&mut self, id: Option<String>, site: LoopTurn) {
        let id = id.unwrap_or_default();
        self.events.push(ShownEvent { id, site });
    }

    /// Handles a condensation; one that hides no event of the file becomes an extension.
    pub(super) fn condensation(
        &mut self,
        fields: &Fields<'_>,
        raw: &str,
        record: Json,
        transcript: &mut TranscriptBuilder<'_>,
    ) -> Result<(), ImportError> {
        let ids: Option<Vec<String>> = fields.read("forgotten_event_ids");
        self.forgotten.extend(ids.unwrap_or_default());
        let is_forgotten = |event: &ShownEvent| self.forgotten.contains(&event.id);
        let first = self.events.iter().position(is_forgotten);
        let last = self.events.iter().rposition(is_forgotten);
        let (Some(first), Some(last)) = (first, last) else {
            return transcript.extension(extension(Some("Condensation"), record), raw.as_bytes());
        };
        let summary = fields.text("summary").filter(|summary| !summary.is_empty());
        let before = self.head.iter().take(first).cloned();
        let messages = before
            .chain(summary.map(|summary| by_harness(Message::user(summary).into())))
            .collect();
        let kept = self.events.get(last + 1).map(|event| event.site);
        let first_kept = kept.and_then(|(loop_no, turn)| {
            let of = transcript.loop_at(loop_no)?;
            Some((of.id.clone(), turn))
        });
        let effect = FoundEffect::Summary {
            messages,
            first_kept,
        };
        transcript.at(time_of(fields, "timestamp"));
        transcript.compaction(OpenHands.format(), effect, record)
    }
}
