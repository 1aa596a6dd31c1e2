//! What is stored in the place of a message that comes in.
//!
//! A transcript that loopstore itself wrote also holds what was recorded here, without the digest of
//! a raw record; such a message is known by what it says.

use std::ops::ControlFlow;

use super::matching::Digest;
use super::writer::StoreSink;
use crate::model::LoopId;
use crate::store::{LoopKey, StoreResult, codec, decode};

/// What is stored in the place of a message.
pub(super) enum Dedup {
    /// That message.
    Known,
    /// Another one, with this sequence.
    Changed(u32),
    /// Nothing yet.
    New,
}

impl StoreSink<'_> {
    /// Whether the transcript may be one that loopstore itself wrote.
    pub(super) fn is_own_form(&self) -> bool {
        self.from.format == "phi-core"
    }

    /// Finds what is stored in the place of the next message.
    pub(super) fn look_up(
        &mut self,
        at: usize,
        loop_key: &LoopId,
        origin: &Digest,
    ) -> StoreResult<Dedup> {
        loop {
            let Some(state) = self.sessions[at].loops.get_mut(loop_key) else {
                return Ok(Dedup::New);
            };
            let place = state.stored.places.get(state.next).copied();
            state.next += 1;
            let (key, own_form) = (state.key, self.is_own_form());
            let Some((seq, stored)) = place else {
                return Ok(Dedup::New);
            };
            if stored == Some(*origin) || own_form && self.says(key, seq)? == Some(*origin) {
                return Ok(Dedup::Known);
            }
            if stored.is_some() {
                return Ok(Dedup::Changed(seq));
            }
            // Recorded here and not in this transcript, which may be older than that.
        }
    }

    /// Returns the digest of a stored message as loopstore itself writes it.
    fn says(&self, key: LoopKey, seq: u32) -> StoreResult<Option<Digest>> {
        let mut digest = None;
        self.write
            .messages(key, seq..seq.saturating_add(1), &mut |row| {
                let message = decode(self.write.as_read(), row.body)?;
                digest = Some(self.digests.of(codec::to_json(&message)?.as_bytes()));
                Ok(ControlFlow::Break(()))
            })?;
        Ok(digest)
    }
}
