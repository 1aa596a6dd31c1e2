//! Recording an agent of phi-core turn by turn.

use phi_core::SessionError;

use super::convert;
use super::error::{Refused, told};
use crate::async_store::{AsyncError, AsyncRecorder, AsyncStore};
use crate::model::{ContinuationKind, LoopId};
use crate::recorder::event::AgentStart;
use crate::recorder::{AgentEvent, Recorded, RecorderOptions};
use crate::store;

/// Records the events of phi-core agents; a turn is durable when its `TurnEnd` is recorded.
///
/// `BasicAgent` calls each prompt an origin, though it goes on from what was said before. Such a loop
/// (`Initial`, without a parent) gets the session's current loop as its parent, so that the session
/// is one chain. An agent that is made anew for a session must have another `config_id`: phi-core
/// counts loops from 1 again, and an id that is taken is refused.
#[derive(Clone)]
pub struct PhiRecorder {
    store: AsyncStore,
    recorder: AsyncRecorder,
}

impl PhiRecorder {
    /// Records into this database.
    pub fn new(store: AsyncStore, options: RecorderOptions) -> Self {
        let recorder = store.recorder(options);
        Self { store, recorder }
    }

    /// Records an event, as [`SessionRecorder::record`](crate::SessionRecorder::record).
    ///
    /// # Errors
    /// As there; a loop that another recorder drives is [`SessionError::Locked`].
    pub async fn record(&self, event: &phi_core::AgentEvent) -> Result<Recorded, SessionError> {
        let mut event = convert::recorded_event(event)?;
        let mut session = String::new();
        if let AgentEvent::AgentStart(start) = &mut event {
            session = start.session_id.to_string();
            let parent = self.parent_of(start).await;
            if let Some(parent) = parent.map_err(|error| told(error, &session))? {
                start.parent_loop_id = Some(parent);
                start.continuation_kind = Some(ContinuationKind::Default);
            }
        }
        let recorded = self.recorder.call(|recorder| Ok(recorder.record(event)?));
        recorded.await.map_err(|error| told(error, &session))
    }

    /// Returns the loop that an origin goes on from; one that is there already goes on from none.
    async fn parent_of(&self, start: &AgentStart) -> Result<Option<LoopId>, AsyncError<Refused>> {
        let is_origin = matches!(
            start.continuation_kind,
            None | Some(ContinuationKind::Initial)
        );
        if !is_origin || start.parent_loop_id.is_some() {
            return Ok(None);
        }
        let (id, own) = (start.session_id.clone(), start.loop_id.clone());
        self.store
            .call(move |store| {
                Ok(store::read(store, |read| {
                    let current = read.session(&id)?.and_then(|owner| owner.current_loop);
                    let row = current.map(|key| read.loop_by_key(key)).transpose()?;
                    Ok(row.map(|row| row.core.loop_id).filter(|id| *id != own))
                })?)
            })
            .await
    }
}
