//! The store from async code: the same operations, on tokio's pool of blocking threads.
//!
//! An [`AsyncDatabase`] moves each call to the pool and waits for it there, so that a disk or a
//! strategy never holds up a task. A future that is dropped is safe: before it was first polled
//! nothing happens; after that its work goes on in the pool, and a transaction ends as it would have
//! ended. So what was dropped left all of what it was to write, or nothing.

use std::any::Any;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use crate::compact::{
    CompactReport, CompactRequest, FlipReport, FlipRequest, compact_session_loops, redo, undo,
};
use crate::compaction::{CompactionConfig, ContextConfig};
use crate::compactor::{Compactor, CompactorError, NextCall};
use crate::context::{
    BuildError, BuildOptions, Context, build_context_from_session, leaf_of, session_of,
};
use crate::model::{AgentMessage, LoopId, SessionId};
use crate::recorder::{AgentEvent, RecordError, Recorded, RecorderOptions, SessionRecorder};
use crate::search::{SearchError, SearchQuery, SearchResults, search};
use crate::store::append::{Appended, append};
use crate::store::session::{Fork, fork};
use crate::store::{self, SessionStore, StoreError};

/// Why an async call gave no result.
#[derive(Debug, thiserror::Error)]
pub enum AsyncError<E> {
    /// The call itself failed.
    #[error(transparent)]
    Failed(E),
    /// The call panicked, with this message; a transaction in it was rolled back.
    #[error("a call on the store panicked: {0}")]
    Panicked(String),
    /// The runtime shut down before the call began; nothing of it happened.
    #[error("the runtime shut down before the call began")]
    ShutDown,
}

/// A store for async code; cheap to clone. Its calls must be made within a tokio runtime.
///
/// Calls of several tasks, also of clones, run side by side as the backend allows. A dropped call
/// may still be running when the next one is made; an [`AsyncRecorder`] keeps its calls in order.
///
/// # Examples
/// ```
/// use loopstore::extend::{self as store, session};
/// use loopstore::*;
///
/// let store = AsyncDatabase::new(SqliteStore::in_memory()?);
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// runtime.block_on(async {
///     let id = SessionId::new("weather")?;
///     let (record, first) = (Session::new(id.clone(), "agent"), LoopId::new("weather.1")?);
///     let begun = LoopRecord::new(first.clone(), None);
///     store
///         .call(move |store| {
///             store::write(store, |write| {
///                 let key = session::create_session(write, &record, None, None)?;
///                 session::create_loop(write, key, &begun)
///             })
///         })
///         .await?;
///     let prompt = Message::user("Will it rain?").into();
///     store.append(&id, Some(&first), vec![prompt]).await?;
///     let context = store.build_context(&id, BuildOptions::default()).await?;
///     assert_eq!(context.messages.len(), 1);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AsyncDatabase {
    store: Arc<dyn SessionStore>,
}

impl From<Arc<dyn SessionStore>> for AsyncDatabase {
    fn from(store: Arc<dyn SessionStore>) -> Self {
        Self { store }
    }
}

impl AsyncDatabase {
    /// Takes a store over.
    pub fn new(store: impl SessionStore + 'static) -> Self {
        Self {
            store: Arc::new(store),
        }
    }

    /// Returns the store, for code that may wait.
    pub fn blocking(&self) -> &Arc<dyn SessionStore> {
        &self.store
    }

    /// Runs `work` on the pool and returns its result.
    ///
    /// # Errors
    /// What `work` returns; or if it panics, or the runtime shuts down.
    pub async fn call<T, E>(
        &self,
        work: impl FnOnce(&dyn SessionStore) -> Result<T, E> + Send + 'static,
    ) -> Result<T, AsyncError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let store = Arc::clone(&self.store);
        outcome(spawn_blocking(move || work(&*store))).await
    }

    /// Appends messages to a loop that nobody drives (the current one if not given), in one
    /// transaction.
    ///
    /// # Errors
    /// As [`append`].
    pub async fn append(
        &self,
        session: &SessionId,
        loop_key: Option<&LoopId>,
        messages: Vec<AgentMessage>,
    ) -> Result<Appended, AsyncError<StoreError>> {
        let (session, loop_key) = (session.clone(), loop_key.cloned());
        self.call(move |store| {
            store::write(store, |write| {
                let owner = session_of(write.as_read(), &session)?;
                let row = leaf_of(write.as_read(), &owner, loop_key.as_ref())?;
                let new = messages.into_iter().map(Into::into).collect();
                append(write, row.key, new, store.counter())
            })
        })
        .await
    }

    /// Returns a recorder that writes to this store.
    pub fn recorder(&self, options: RecorderOptions) -> AsyncRecorder {
        let recorder = SessionRecorder::shared(Arc::clone(&self.store), options);
        AsyncRecorder {
            recorder: Arc::new(Mutex::new(ReleasedOnPool(Some(recorder)))),
        }
    }

    /// Compacts, as [`compact_session_loops`].
    ///
    /// # Errors
    /// As [`compact_session_loops`].
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
    /// # monday.status = LoopStatus::Completed;
    /// # let loop_key = store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &monday)?;
    /// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
    /// #     let said = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
    /// #     append::append(write, loop_key, said.collect(), &HeuristicTokenCounter)?;
    /// #     Ok(loop_key)
    /// # })?;
    /// # let trigger = CompactTrigger::Force;
    /// # let request = CompactRequest { trigger, ..CompactRequest::default() };
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// let store = AsyncDatabase::new(store);
    /// # runtime.block_on(async {
    /// let report = store.compact(&id, request).await?;
    /// assert!(report.after.tokens < report.before.tokens);
    /// let undone = store.undo(&id, FlipRequest::default()).await?;
    /// assert_eq!(undone.tokens_after, report.before.tokens);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn compact(
        &self,
        session: &SessionId,
        request: CompactRequest,
    ) -> Result<CompactReport, AsyncError<StoreError>> {
        let session = session.clone();
        self.call(move |store| compact_session_loops(store, &session, &request))
            .await
    }

    /// Builds what the next model call sees, as [`build_context_from_session`].
    ///
    /// # Errors
    /// As [`build_context_from_session`].
    pub async fn build_context(
        &self,
        session: &SessionId,
        options: BuildOptions,
    ) -> Result<Context, AsyncError<BuildError>> {
        let session = session.clone();
        self.call(move |store| build_context_from_session(store, &session, &options))
            .await
    }

    /// Returns the context of a leaf (the current loop if not given), compacted if the policy's
    /// trigger fires, as [`Compactor::maybe_compact`]. For hooks and forms of providers make a
    /// [`Compactor`] within [`AsyncDatabase::call`].
    ///
    /// # Errors
    /// As [`Compactor::maybe_compact`].
    pub async fn maybe_compact(
        &self,
        session: &SessionId,
        leaf: Option<&LoopId>,
        config: CompactionConfig,
        window: ContextConfig,
    ) -> Result<NextCall, AsyncError<CompactorError>> {
        let (session, leaf) = (session.clone(), leaf.cloned());
        self.call(move |store| {
            Compactor::new(store, config, window).maybe_compact(&session, leaf.as_ref())
        })
        .await
    }

    /// Takes a run out of force, as [`undo`].
    ///
    /// # Errors
    /// As [`undo`].
    pub async fn undo(
        &self,
        session: &SessionId,
        request: FlipRequest,
    ) -> Result<FlipReport, AsyncError<StoreError>> {
        let session = session.clone();
        self.call(move |store| undo(store, &session, &request))
            .await
    }

    /// Puts a run back in force, as [`redo`].
    ///
    /// # Errors
    /// As [`redo`].
    pub async fn redo(
        &self,
        session: &SessionId,
        request: FlipRequest,
    ) -> Result<FlipReport, AsyncError<StoreError>> {
        let session = session.clone();
        self.call(move |store| redo(store, &session, &request))
            .await
    }

    /// Begins a branch in the middle of a loop (the current one if not given), as [`fork`].
    ///
    /// # Errors
    /// As [`fork`].
    ///
    /// # Examples
    /// ```
    /// # use loopstore::extend as store;
    /// use loopstore::extend::session::Fork;
    /// use loopstore::*;
    ///
    /// # use loopstore::extend::{append, session};
    /// # let (store, id) = (SqliteStore::in_memory()?, SessionId::new("weather")?);
    /// # let new = Session::new(id.clone(), "agent");
    /// # let mut monday = LoopRecord::new(LoopId::new("monday")?, None);
    /// # monday.status = LoopStatus::Completed;
    /// # let loop_key = store::write(&store, |write| {
    /// #     let key = session::create_session(write, &new, None, None)?;
    /// #     let loop_key = session::create_loop(write, key, &monday)?;
    /// #     let report = |hour| format!("Hour {hour}: {}", "rain, ".repeat(200));
    /// #     let said = (0..40).map(|hour| AgentMessage::from(Message::user(report(hour))).into());
    /// #     append::append(write, loop_key, said.collect(), &HeuristicTokenCounter)?;
    /// #     Ok(loop_key)
    /// # })?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// let store = AsyncDatabase::new(store);
    /// let branch = Fork { loop_id: LoopId::new("another")?, turn: 9, tag: "sunny".into() };
    /// # runtime.block_on(async {
    /// store.fork(&id, None, branch).await?;
    /// let context = store.build_context(&id, BuildOptions::default()).await?;
    /// assert_eq!(context.messages.len(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn fork(
        &self,
        session: &SessionId,
        parent: Option<&LoopId>,
        branch: Fork,
    ) -> Result<(), AsyncError<StoreError>> {
        let (session, parent) = (session.clone(), parent.cloned());
        self.call(move |store| {
            store::write(store, |write| {
                let owner = session_of(write.as_read(), &session)?;
                let parent = leaf_of(write.as_read(), &owner, parent.as_ref())?;
                fork(write, parent.key, &branch).map(drop)
            })
        })
        .await
    }

    /// Finds messages by their words, as [`search`].
    ///
    /// # Errors
    /// As [`search`].
    pub async fn search(
        &self,
        query: SearchQuery,
    ) -> Result<SearchResults, AsyncError<SearchError>> {
        self.call(move |store| search(store, &query)).await
    }
}

/// A [`SessionRecorder`] for async code; clones record through the same one.
///
/// Calls take effect in the order in which they were first polled, also those whose future was
/// dropped while they ran. One that was dropped while it waited for its turn has no effect. When the last
/// clone is dropped its loops are let go, on the pool.
///
/// ```
/// use loopstore::recorder::event::*;
/// use loopstore::*;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let (session, loop_key) = (SessionId::new("s")?, LoopId::new("s.1")?);
/// let store = AsyncDatabase::new(SqliteStore::in_memory()?);
/// let recorder = store.recorder(RecorderOptions::default());
/// # runtime.block_on(async {
/// let start = AgentStart::new(session, loop_key.clone());
/// assert_eq!(recorder.record(AgentEvent::AgentStart(start)).await?, Recorded::Begun);
/// // A sign of life during a long call.
/// recorder.call(move |recorder| recorder.heartbeat(&loop_key)).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AsyncRecorder {
    recorder: Arc<Mutex<ReleasedOnPool>>,
}

/// A recorder that lets its loops go on the pool, when the last clone is dropped: that writes.
struct ReleasedOnPool(Option<SessionRecorder<'static>>);

impl Drop for ReleasedOnPool {
    fn drop(&mut self) {
        let recorder = self.0.take();
        if let Ok(runtime) = Handle::try_current() {
            // A runtime that is shutting down drops the work, and the recorder, where it stands.
            drop(runtime.spawn_blocking(move || drop(recorder)));
        }
    }
}

impl AsyncRecorder {
    /// Records an event, as [`SessionRecorder::record`].
    ///
    /// # Errors
    /// As [`SessionRecorder::record`].
    pub async fn record(&self, event: AgentEvent) -> Result<Recorded, AsyncError<RecordError>> {
        self.call(move |recorder| recorder.record(event)).await
    }

    /// Runs `work` on the recorder. Events that are recorded in one call stay together.
    ///
    /// # Errors
    /// What `work` returns; or if it panics, or the runtime shuts down.
    pub async fn call<T, E>(
        &self,
        work: impl FnOnce(&mut SessionRecorder<'static>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, AsyncError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        // The lock goes into the work: if the future is dropped, the next call waits for it still.
        let mut recorder = Arc::clone(&self.recorder).lock_owned().await;
        outcome(spawn_blocking(move || match &mut recorder.0 {
            Some(recorder) => work(recorder),
            None => unreachable!("it is only taken when nobody has it any more"),
        }))
        .await
    }
}

/// Waits for work on the pool.
async fn outcome<T, E>(work: JoinHandle<Result<T, E>>) -> Result<T, AsyncError<E>> {
    match work.await {
        Ok(done) => done.map_err(AsyncError::Failed),
        Err(error) => Err(lost(error)),
    }
}

fn lost<E>(error: JoinError) -> AsyncError<E> {
    match error.try_into_panic() {
        Ok(payload) => AsyncError::Panicked(told(&*payload)),
        Err(_) => AsyncError::ShutDown,
    }
}

/// Returns the message of a panic.
fn told(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}
