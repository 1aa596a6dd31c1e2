//! Recording the events of an agent from async code.

use std::sync::Arc;

use loopstore::internal::outside;
use loopstore::{AsyncStore, Result};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::{AgentEvent, RecordResult, Recorded, RecorderOptions, SessionRecorder};

/// A [`SessionRecorder`] for async code. Clones share one recorder.
///
/// Calls take effect in the order in which they were first polled, including calls whose future was
/// dropped while they ran. A call that was dropped while it waited has no effect. When the last
/// clone is dropped its loops are released, on the pool.
///
/// ```
/// use loopstore::{AsyncStore, LoopId, SessionId, Store};
/// use loopstore_recorder::event::*;
/// use loopstore_recorder::{AgentEvent, AsyncRecorder, Recorded, RecorderOptions};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let (session, loop_key) = (SessionId::new("s")?, LoopId::new("s.1")?);
/// let store = AsyncStore::from(Store::in_memory()?);
/// let recorder = AsyncRecorder::new(&store, RecorderOptions::default());
/// # runtime.block_on(async {
/// let start = AgentStart::new(session, loop_key.clone());
/// assert_eq!(recorder.record(AgentEvent::AgentStart(start)).await?, Recorded::Begun);
/// // A sign of life during a long call.
/// recorder.call(move |recorder| recorder.heartbeat(&loop_key)).await??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AsyncRecorder {
    recorder: Arc<Mutex<ReleasedOnPool>>,
}

/// A recorder that releases its loops on the pool when the last clone is dropped, since that writes.
struct ReleasedOnPool(Option<SessionRecorder<'static>>);

impl Drop for ReleasedOnPool {
    fn drop(&mut self) {
        let recorder = self.0.take();
        if let Ok(runtime) = Handle::try_current() {
            // A runtime that is shutting down drops the work and the recorder.
            drop(runtime.spawn_blocking(move || drop(recorder)));
        }
    }
}

impl AsyncRecorder {
    /// Returns a recorder that writes to this store and does not drive any loop.
    pub fn new(store: &AsyncStore, options: RecorderOptions) -> Self {
        let recorder = SessionRecorder::shared(store.shared(), options);
        Self {
            recorder: Arc::new(Mutex::new(ReleasedOnPool(Some(recorder)))),
        }
    }

    /// Records an event, as [`SessionRecorder::record`].
    ///
    /// # Errors
    /// As [`SessionRecorder::record`], and [`RecordError::Call`](crate::RecordError::Call) if the runtime shuts down.
    pub async fn record(&self, event: AgentEvent) -> RecordResult<Recorded> {
        self.call(move |recorder| recorder.record(event)).await?
    }

    /// Runs `work` on the recorder. Events that are recorded in one call stay together.
    ///
    /// # Errors
    /// If `work` panics, or the runtime shuts down.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut SessionRecorder<'static>) -> T + Send + 'static,
    ) -> Result<T> {
        // The lock moves into the work: if the future is dropped, the next call still waits for it.
        let mut recorder = Arc::clone(&self.recorder).lock_owned().await;
        outside(move || match &mut recorder.0 {
            Some(recorder) => Ok(work(recorder)),
            None => unreachable!("it is only taken when nobody has it any more"),
        })
        .await
    }
}
