//! Recording an agent of phi-core message by message.

use loopstore::AsyncStore;
use loopstore::model::ContinuationKind;
use loopstore_recorder::{AgentEvent, AsyncRecorder, Recorded, RecorderOptions};
use phi_core::SessionError;

use super::convert;
use super::error::{outcome, session_error};

/// Records the events of phi-core agents; a message is durable when its `MessageEnd` is recorded.
///
/// `BasicAgent` marks each prompt as an origin, though it continues the conversation. Such a loop
/// (`Initial`, without a parent) continues the session's current loop, so that the session
/// is one chain. A new agent for a session must have another `config_id`: phi-core
/// counts loops from 1 again, and an id in use is rejected.
#[derive(Clone)]
pub struct PhiRecorder {
    recorder: AsyncRecorder,
}

impl PhiRecorder {
    /// Returns a recorder that writes to this database.
    pub fn new(store: AsyncStore, options: RecorderOptions) -> Self {
        let recorder = AsyncRecorder::new(&store, options);
        Self { recorder }
    }

    /// Records an event, as [`SessionRecorder::record`](loopstore_recorder::SessionRecorder::record).
    ///
    /// # Errors
    /// As [`SessionRecorder::record`](loopstore_recorder::SessionRecorder::record); a loop that another recorder drives is
    /// [`SessionError::Locked`].
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
