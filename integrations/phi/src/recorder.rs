//! Recording an agent of phi-core message by message.

use loopstore::AsyncStore;
use loopstore::model::ContinuationKind;
use loopstore_recorder::{AgentEvent, AsyncRecorder, Recorded, RecorderOptions};
use phi_core::SessionError;

use super::convert;
use super::error::{outcome, session_error};

/// Records the events of phi-core agents; a message is durable when its `MessageEnd` is recorded.
///
/// `BasicAgent` calls each prompt an origin, though it goes on from what was said before. Such a loop
/// (`Initial`, without a parent) goes on from the session's current loop, so that the session
/// is one chain. An agent that is made anew for a session must have another `config_id`: phi-core
/// counts loops from 1 again, and an id that is taken is refused.
#[derive(Clone)]
pub struct PhiRecorder {
    recorder: AsyncRecorder,
}

impl PhiRecorder {
    /// Records into this database.
    pub fn new(store: AsyncStore, options: RecorderOptions) -> Self {
        let recorder = AsyncRecorder::new(&store, options);
        Self { recorder }
    }

    /// Records an event, as [`SessionRecorder::record`](loopstore_recorder::SessionRecorder::record).
    ///
    /// # Errors
    /// As there; a loop that another recorder drives is [`SessionError::Locked`].
    pub async fn record(&self, event: &phi_core::AgentEvent) -> Result<Recorded, SessionError> {
        let mut event = convert::recorded_event(event)?;
        let mut session = String::new();
        if let AgentEvent::AgentStart(start) = &mut event {
            session = start.session_id.to_string();
            if start.continuation_kind == Some(ContinuationKind::Initial) {
                start.continuation_kind = None;
            }
        }
        let recorded = self.recorder.call(|recorder| Ok(recorder.record(event)?));
        outcome(recorded.await).map_err(|refused| session_error(refused, &session))
    }
}
