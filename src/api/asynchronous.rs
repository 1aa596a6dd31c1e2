//! The store and the session handle for async code: the same calls, on tokio's pool of blocking threads.

use std::any::Any;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{
    Appended, CallState, Entry, EntryQuery, EntryRef, Error, KeyQuery, KeyedAppend, LoopSpec,
    Prepared, Result, SessionHandle, SessionSummary, Store, StoreOptions, StoredBlock, TurnRef,
};
use crate::compact::{
    CompactReport, CompactRequest, CompactTrigger, FlipReport, Pin, PinRef, PinReport, Policy,
};
use crate::compaction::CancelFlag;
use crate::context::{AsOf, Context};
use crate::model::{
    AgentMessage, InvalidId, LoopId, LoopRecord, LoopStatus, SealingProvider, Session, SessionId,
};
use crate::search::{Recall, SearchQuery, SearchResults};
use crate::store::{OpenError, SessionFilter, SessionStore, UsageCost};

/// A [`Store`] for async code. Each call runs on tokio's pool of blocking threads, so that a disk or a strategy never
/// blocks a task. The calls must be made within a tokio runtime.
///
/// A future can be dropped safely. Before its first poll nothing happens. After that its work continues in the pool,
/// and its transaction commits or rolls back as usual: the append of a dropped future may be stored, but only whole.
/// A compaction ([`AsyncSession::prepare`], [`AsyncSession::compact`]) that has not begun to commit is cancelled
/// together with its summariser, and writes no block.
///
/// ```
/// use loopstore::{AsyncStore, Message};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("agent.db");
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let chat = AsyncStore::open(&path).await?.session("weather")?;
/// chat.append([Message::user("Will it rain?")]).await?;
/// assert_eq!(chat.prepare().await?.messages().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AsyncStore(Store);

/// A [`SessionHandle`] for async code; see [`AsyncStore`] for the effects of a dropped future.
#[derive(Clone, Debug)]
pub struct AsyncSession(SessionHandle);

impl From<Store> for AsyncStore {
    fn from(store: Store) -> Self {
        Self(store)
    }
}

impl AsyncStore {
    /// As [`Store::open`].
    ///
    /// # Errors
    /// As [`Store::open`]. Also if the call panics or the runtime shuts down.
    pub async fn open(path: impl AsRef<std::path::Path>) -> Result<Self, OpenError> {
        Self::open_with(path, Store::options()).await
    }

    /// As [`StoreOptions::open`], with the options that [`Store::options`] begins.
    ///
    /// # Errors
    /// As [`StoreOptions::open`]. Also if the call panics or the runtime shuts down.
    pub async fn open_with(
        path: impl AsRef<std::path::Path>,
        options: StoreOptions,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref().to_owned();
        let shown = path.clone();
        let opened = spawn_blocking(move || options.open(path)).await;
        let other = |cause| OpenError::Other {
            path: shown,
            cause: Box::new(cause),
        };
        opened.map_err(other)?.map(Self)
    }

    /// As [`Store::session`].
    ///
    /// # Errors
    /// As [`Store::session`].
    pub fn session(&self, id: impl AsRef<str>) -> Result<AsyncSession, InvalidId> {
        self.0.session(id).map(AsyncSession)
    }

    /// As [`Store::search`].
    ///
    /// # Errors
    /// As [`Store::search`].
    pub async fn search(&self, query: impl Into<SearchQuery>) -> Result<SearchResults> {
        let (store, query) = (self.0.clone(), query.into());
        outside(move || store.search(query)).await
    }

    /// As [`Store::recall`].
    ///
    /// # Errors
    /// As [`Store::recall`].
    pub async fn recall(&self, question: impl Into<SearchQuery>, tokens: u64) -> Result<Recall> {
        let (store, question) = (self.0.clone(), question.into());
        outside(move || store.recall(question, tokens)).await
    }

    /// As [`Store::sessions`].
    ///
    /// # Errors
    /// As [`Store::sessions`].
    pub async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<SessionSummary>> {
        let (store, filter) = (self.0.clone(), filter.clone());
        outside(move || store.sessions(&filter)).await
    }

    /// Returns the backend as a shared reference.
    #[doc(hidden)]
    pub fn shared(&self) -> Arc<dyn SessionStore> {
        self.0.shared()
    }

    /// Runs `work` on the pool of blocking threads and returns its result. Use it for calls without an async method
    /// here.
    ///
    /// # Errors
    /// If `work` panics, or the runtime shuts down.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T> {
        let store = self.0.clone();
        outside(move || Ok(work(&store))).await
    }

    /// Returns the store, for code that may block its thread.
    pub fn blocking(&self) -> &Store {
        &self.0
    }
}

impl AsyncSession {
    /// As [`SessionHandle::with_policy`].
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self(self.0.with_policy(policy))
    }

    /// As [`SessionHandle::id`].
    pub fn id(&self) -> &SessionId {
        self.0.id()
    }

    /// Returns the handle, for code that may block its thread.
    pub fn blocking(&self) -> &SessionHandle {
        &self.0
    }

    /// As [`SessionHandle::set_title`].
    ///
    /// # Errors
    /// As [`SessionHandle::set_title`].
    pub async fn set_title(&self, title: impl Into<String>) -> Result<()> {
        let title = title.into();
        self.call(|session| session.set_title(title)).await
    }

    /// As [`SessionHandle::set_project`].
    ///
    /// # Errors
    /// As [`SessionHandle::set_project`].
    pub async fn set_project(&self, folder: impl Into<String>) -> Result<()> {
        let folder = folder.into();
        self.call(|session| session.set_project(folder)).await
    }

    /// As [`SessionHandle::usage`].
    ///
    /// # Errors
    /// As [`SessionHandle::usage`].
    pub async fn usage(&self) -> Result<UsageCost> {
        self.call(|session| session.usage()).await
    }

    /// As [`SessionHandle::leaf`].
    ///
    /// # Errors
    /// As [`SessionHandle::leaf`].
    pub async fn leaf(&self) -> Result<Option<LoopId>> {
        self.call(|session| session.leaf()).await
    }

    /// As [`SessionHandle::append`].
    ///
    /// # Errors
    /// As [`SessionHandle::append`].
    pub async fn append<I>(&self, messages: I) -> Result<Appended>
    where
        I: IntoIterator,
        I::Item: Into<AgentMessage>,
    {
        let messages: Vec<AgentMessage> = messages.into_iter().map(Into::into).collect();
        self.call(|session| session.append(messages)).await
    }

    /// As [`SessionHandle::append_once`].
    ///
    /// # Errors
    /// As [`SessionHandle::append_once`].
    pub async fn append_once<I>(&self, key: &str, messages: I) -> Result<Appended>
    where
        I: IntoIterator,
        I::Item: Into<AgentMessage>,
    {
        let messages: Vec<AgentMessage> = messages.into_iter().map(Into::into).collect();
        let key = key.to_owned();
        self.call(move |session| session.append_once(&key, messages))
            .await
    }

    /// As [`SessionHandle::append_batch`].
    ///
    /// # Errors
    /// As [`SessionHandle::append_batch`].
    pub async fn append_batch<K, M>(
        &self,
        parts: impl IntoIterator<Item = (Option<K>, M)>,
    ) -> Result<Vec<Appended>>
    where
        K: Into<String>,
        M: IntoIterator,
        M::Item: Into<AgentMessage>,
    {
        let parts = parts.into_iter().map(|(key, messages)| {
            let messages: Vec<AgentMessage> = messages.into_iter().map(Into::into).collect();
            (key.map(Into::<String>::into), messages)
        });
        let parts: Vec<_> = parts.collect();
        self.call(move |session| session.append_batch(parts)).await
    }

    /// As [`SessionHandle::appended`].
    ///
    /// # Errors
    /// As [`SessionHandle::appended`].
    pub async fn appended(&self, key: &str) -> Result<Option<Appended>> {
        let key = key.to_owned();
        self.call(move |session| session.appended(&key)).await
    }

    /// As [`SessionHandle::append_keys`].
    ///
    /// # Errors
    /// As [`SessionHandle::append_keys`].
    pub async fn append_keys(&self, query: &KeyQuery) -> Result<Vec<KeyedAppend>> {
        let query = query.clone();
        self.call(move |session| session.append_keys(&query)).await
    }

    /// As [`SessionHandle::begin_loop`].
    ///
    /// # Errors
    /// As [`SessionHandle::begin_loop`].
    pub async fn begin_loop(&self, spec: LoopSpec) -> Result<LoopId> {
        self.call(|session| session.begin_loop(spec)).await
    }

    /// As [`SessionHandle::end_loop`].
    ///
    /// # Errors
    /// As [`SessionHandle::end_loop`].
    pub async fn end_loop(&self, status: LoopStatus) -> Result<()> {
        self.call(|session| session.end_loop(status)).await
    }

    /// As [`SessionHandle::start_call`].
    ///
    /// # Errors
    /// As [`SessionHandle::start_call`].
    pub async fn start_call(&self, call_id: &str) -> Result<CallState> {
        let call_id = call_id.to_owned();
        self.call(move |session| session.start_call(&call_id)).await
    }

    /// As [`SessionHandle::child`].
    ///
    /// # Errors
    /// As [`SessionHandle::child`].
    pub async fn child(&self, call_id: &str, id: impl AsRef<str>) -> Result<Self> {
        let (call_id, id) = (call_id.to_owned(), id.as_ref().to_owned());
        self.call(move |session| session.child(&call_id, id))
            .await
            .map(Self)
    }

    /// As [`SessionHandle::exists`].
    ///
    /// # Errors
    /// As [`SessionHandle::exists`].
    pub async fn exists(&self) -> Result<bool> {
        self.call(|session| session.exists()).await
    }

    /// As [`SessionHandle::summary`].
    ///
    /// # Errors
    /// As [`SessionHandle::summary`].
    pub async fn summary(&self) -> Result<Option<SessionSummary>> {
        self.call(|session| session.summary()).await
    }

    /// As [`SessionHandle::entries`].
    ///
    /// # Errors
    /// As [`SessionHandle::entries`].
    pub async fn entries(&self, query: &EntryQuery) -> Result<Vec<Entry>> {
        let query = query.clone();
        self.call(move |session| session.entries(&query)).await
    }

    /// As [`SessionHandle::count_entries`].
    ///
    /// # Errors
    /// As [`SessionHandle::count_entries`].
    pub async fn count_entries(&self, query: &EntryQuery) -> Result<u64> {
        let query = query.clone();
        self.call(move |session| session.count_entries(&query))
            .await
    }

    /// As [`SessionHandle::load`].
    ///
    /// # Errors
    /// As [`SessionHandle::load`].
    pub async fn load(&self) -> Result<Session> {
        self.call(|session| session.load()).await
    }

    /// As [`SessionHandle::load_whole`].
    ///
    /// # Errors
    /// As [`SessionHandle::load_whole`].
    pub async fn load_whole(&self) -> Result<Session> {
        self.call(|session| session.load_whole()).await
    }

    /// As [`SessionHandle::load_loop`].
    ///
    /// # Errors
    /// As [`SessionHandle::load_loop`].
    pub async fn load_loop(&self, loop_id: &LoopId) -> Result<LoopRecord> {
        let loop_id = loop_id.clone();
        self.call(move |session| session.load_loop(&loop_id)).await
    }

    /// As [`SessionHandle::blocks`].
    ///
    /// # Errors
    /// As [`SessionHandle::blocks`].
    pub async fn blocks(&self, loop_id: &LoopId) -> Result<Vec<StoredBlock>> {
        let loop_id = loop_id.clone();
        self.call(move |session| session.blocks(&loop_id)).await
    }

    /// As [`SessionHandle::block`].
    ///
    /// # Errors
    /// As [`SessionHandle::block`].
    pub async fn block(&self, loop_id: &LoopId, generation: u32) -> Result<StoredBlock> {
        let loop_id = loop_id.clone();
        self.call(move |session| session.block(&loop_id, generation))
            .await
    }

    /// As [`SessionHandle::active_block`].
    ///
    /// # Errors
    /// As [`SessionHandle::active_block`].
    pub async fn active_block(&self, loop_id: &LoopId) -> Result<Option<StoredBlock>> {
        let loop_id = loop_id.clone();
        self.call(move |session| session.active_block(&loop_id))
            .await
    }

    /// As [`SessionHandle::context`].
    ///
    /// # Errors
    /// As [`SessionHandle::context`].
    pub async fn context(&self) -> Result<Context> {
        self.call(|session| session.context()).await
    }

    /// As [`SessionHandle::context_as_of`].
    ///
    /// # Errors
    /// As [`SessionHandle::context_as_of`].
    pub async fn context_as_of(&self, at: AsOf) -> Result<Context> {
        self.call(|session| session.context_as_of(at)).await
    }

    /// As [`SessionHandle::recall`].
    ///
    /// # Errors
    /// As [`SessionHandle::recall`].
    pub async fn recall(&self, question: &str, tokens: u64) -> Result<Recall> {
        let question = question.to_owned();
        self.call(move |session| session.recall(&question, tokens))
            .await
    }

    /// As [`SessionHandle::prepare`].
    ///
    /// # Errors
    /// As [`SessionHandle::prepare`].
    pub async fn prepare(&self) -> Result<Prepared> {
        self.cancellable(|session, cancel| session.prepare_by(CompactTrigger::Policy, cancel))
            .await
    }

    /// As [`SessionHandle::prepare_for_length`].
    ///
    /// # Errors
    /// As [`SessionHandle::prepare_for_length`].
    pub async fn prepare_for_length(&self) -> Result<Prepared> {
        self.cancellable(|session, cancel| session.prepare_by(CompactTrigger::Length, cancel))
            .await
    }

    /// As [`SessionHandle::compact`].
    ///
    /// # Errors
    /// As [`SessionHandle::compact`].
    pub async fn compact(&self, request: &CompactRequest) -> Result<CompactReport> {
        let mut request = request.clone();
        self.cancellable(move |session, cancel| {
            request.cancel = request.cancel.or(&cancel);
            session.compact(&request)
        })
        .await
    }

    /// As [`SessionHandle::undo`].
    ///
    /// # Errors
    /// As [`SessionHandle::undo`].
    pub async fn undo(&self) -> Result<FlipReport> {
        self.call(|session| session.undo()).await
    }

    /// As [`SessionHandle::redo`].
    ///
    /// # Errors
    /// As [`SessionHandle::redo`].
    pub async fn redo(&self) -> Result<FlipReport> {
        self.call(|session| session.redo()).await
    }

    /// As [`SessionHandle::record_compaction`].
    ///
    /// # Errors
    /// As [`SessionHandle::record_compaction`].
    pub async fn record_compaction(
        &self,
        provider: SealingProvider,
        through: &EntryRef,
        messages: Vec<AgentMessage>,
    ) -> Result<String> {
        let through = through.clone();
        self.call(move |session| session.record_compaction(provider, &through, messages))
            .await
    }

    /// As [`SessionHandle::pin`].
    ///
    /// # Errors
    /// As [`SessionHandle::pin`].
    pub async fn pin(&self, of: PinRef) -> Result<PinReport> {
        self.call(move |session| session.pin(of)).await
    }

    /// As [`SessionHandle::unpin`].
    ///
    /// # Errors
    /// As [`SessionHandle::unpin`].
    pub async fn unpin(&self, of: PinRef) -> Result<PinReport> {
        self.call(move |session| session.unpin(of)).await
    }

    /// As [`SessionHandle::pins`].
    ///
    /// # Errors
    /// As [`SessionHandle::pins`].
    pub async fn pins(&self) -> Result<Vec<Pin>> {
        self.call(|session| session.pins()).await
    }

    /// As [`SessionHandle::hide`].
    ///
    /// # Errors
    /// As [`SessionHandle::hide`].
    pub async fn hide(&self) -> Result<SessionId> {
        self.call(|session| session.hide()).await
    }

    /// As [`SessionHandle::unhide`].
    ///
    /// # Errors
    /// As [`SessionHandle::unhide`].
    pub async fn unhide(&self, id: impl AsRef<str>) -> Result<Self> {
        let id = id.as_ref().to_owned();
        self.call(|session| session.unhide(id)).await.map(Self)
    }

    /// As [`SessionHandle::at_loop`].
    ///
    /// # Errors
    /// As [`SessionHandle::at_loop`].
    pub async fn at_loop(&self, loop_id: &LoopId) -> Result<Self> {
        let loop_id = loop_id.clone();
        let session = self.call(move |session| session.at_loop(&loop_id));
        session.await.map(Self)
    }

    /// As [`SessionHandle::fork_at`].
    ///
    /// # Errors
    /// As [`SessionHandle::fork_at`].
    pub async fn fork_at(&self, at: TurnRef) -> Result<Self> {
        self.call(|session| session.fork_at(at)).await.map(Self)
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(SessionHandle) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let session = self.0.clone();
        outside(move || work(session)).await
    }

    /// Runs `work`, which is cancelled when the future is dropped.
    async fn cancellable<T: Send + 'static>(
        &self,
        work: impl FnOnce(SessionHandle, CancelFlag) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let cancel = CancelFlag::new();
        let _guard = CancelOnDrop(cancel.clone());
        self.call(move |session| work(session, cancel)).await
    }
}

/// Cancels the call of a future when the future is dropped. A call that has ended ignores it.
#[derive(Default)]
pub struct CancelOnDrop(pub CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs `work` on the pool of blocking threads.
pub async fn outside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(match error.try_into_panic() {
            Ok(payload) => Error::Panicked(message(&*payload)),
            Err(_) => Error::ShutDown,
        }),
    }
}

/// Returns the message of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}
