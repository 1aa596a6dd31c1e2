//! rig's conversation memory over a store.

use std::path::Path;
use std::sync::Arc;

use loopstore::internal::CancelOnDrop;
use loopstore::{
    AgentMessage, Appended, CancelFlag, CompactTrigger, Entry, EntryQuery, LoopSpec, OpenError,
    Policy, Recall, Role, SessionHandle, Store, StoreError,
};
use loopstore_admin::retention::{EraseRequest, erase};
use rig_core::id::ConversationId;
use rig_core::memory::{ConversationMemory, MemoryError};
use rig_core::message::Message;
use rig_core::wasm_compat::WasmBoxedFuture;
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::pending_appends::PendingAppends;
use crate::pool;
use crate::restored::{RestoredMessage, restore_messages};
use crate::stored::stored;

/// The prefix of the keys of rig's appends.
pub(crate) const KEYS: &str = "rig/append/";

/// The effect of [`ConversationMemory::clear`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnClear {
    /// The conversation begins again. The record stays, and can be searched and branched from.
    #[default]
    Keep,
    /// The session is erased, its bytes included.
    Erase,
}

/// rig's conversations as sessions of loopstore: its [`ConversationMemory`], and its
/// [`DemotionHook`](rig_core::memory::DemotionHook).
///
/// A conversation is the session of the same id. Clones are the same memory, and so are other memories on the same
/// database, in any number of threads and processes.
///
/// ```
/// use loopstore_rig::LoopstoreMemory;
/// use rig_core::memory::ConversationMemory;
/// use rig_core::message::Message;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("agent.db");
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let memory = LoopstoreMemory::open(&path)?;
/// let turn = vec![Message::user("Will it rain?"), Message::assistant("From noon on.")];
/// memory.append(&"weather".into(), turn.clone()).await?;
/// assert_eq!(memory.load(&"weather".into()).await?, turn);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LoopstoreMemory {
    store: Store,
    policy: Option<Policy>,
    originals: bool,
    on_clear: OnClear,
    pending: Arc<PendingAppends>,
}

impl LoopstoreMemory {
    /// Returns a memory over an open store. A load returns the current context of the session.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            policy: None,
            originals: false,
            on_clear: OnClear::default(),
            pending: Arc::default(),
        }
    }

    /// Opens an SQLite database, which is created if it does not exist.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Store::open(path).map(Self::new)
    }

    /// Sets a policy by which each load compacts the conversation with an overlay. A load fails if its result does
    /// not fit the policy's window.
    pub fn with_policy(self, policy: Policy) -> Self {
        Self {
            policy: Some(policy),
            ..self
        }
    }

    /// Makes loads return the originals of compacted messages: for use below the adapters of `rig-memory`, which
    /// count the messages that they have passed on.
    pub fn originals(self) -> Self {
        Self {
            originals: true,
            ..self
        }
    }

    /// Sets the effect of a clear.
    pub fn on_clear(self, on_clear: OnClear) -> Self {
        Self { on_clear, ..self }
    }

    /// Returns the session of a conversation, for calls that rig does not have: `search`, `undo`, `fork_at`,
    /// `report`.
    ///
    /// # Errors
    /// If the id is empty or longer than 512 bytes.
    pub fn session(&self, conversation: &ConversationId) -> Result<SessionHandle, Error> {
        // A handle stays on its line; another program may have changed the current loop.
        let session = self.store.session(conversation.as_str())?;
        Ok(match &self.policy {
            Some(policy) => session.with_policy(policy.clone()),
            None => session,
        })
    }

    /// Appends messages once: if the conversation has an append with this key, nothing is appended. With a key that
    /// outlives the program, such as the id of a request, the append takes effect once even across restarts.
    ///
    /// # Errors
    /// As [`SessionHandle::append_once`], and [`Error::TooDeep`].
    pub async fn append_once(
        &self,
        conversation: &ConversationId,
        key: &str,
        messages: Vec<Message>,
    ) -> Result<Appended, Error> {
        let session = self.session(conversation)?;
        let (key, messages) = (key.to_owned(), stored(&messages)?);
        pool::run(move || Ok(session.append_once(&key, messages)?)).await
    }

    /// Answers a question from all messages of a conversation, in at most `tokens` tokens. The messages include those
    /// that a compaction, a window or a clear hid from the model.
    ///
    /// # Errors
    /// As [`SessionHandle::recall`].
    pub async fn recall(
        &self,
        conversation: &ConversationId,
        question: &str,
        tokens: u64,
    ) -> Result<Recall, Error> {
        let session = self.session(conversation)?;
        let question = question.to_owned();
        pool::run(move || Ok(session.recall(&question, tokens)?)).await
    }

    /// Appends messages for rig: an append that failed or was dropped is repeated under its key.
    async fn append_turn(
        &self,
        conversation: &ConversationId,
        messages: Vec<Message>,
    ) -> Result<(), Error> {
        let session = self.session(conversation)?;
        if messages.is_empty() {
            return Ok(());
        }
        let messages = stored(&messages)?;
        let append_guard = self
            .pending
            .begin(conversation.as_str(), digest(&messages)?);
        let key = append_guard.key();
        pool::run(move || Ok(session.append_once(&key, messages)?)).await?;
        append_guard.acknowledged();
        Ok(())
    }

    async fn clear_all(&self, conversation: &ConversationId) -> Result<(), Error> {
        let session = self.session(conversation)?;
        let on_clear = self.on_clear;
        pool::run(move || match on_clear {
            OnClear::Keep => begin_anew(&session),
            OnClear::Erase => erase_all(&session),
        })
        .await?;
        self.pending.forget(conversation.as_str());
        Ok(())
    }

    fn load_now(&self, session: &SessionHandle, cancel: CancelFlag) -> Result<Vec<Message>, Error> {
        let messages = if self.originals {
            originals(&record(session)?)
        } else if self.policy.is_some() {
            let ready = session.prepare_by(CompactTrigger::Policy, cancel)?;
            restore_messages(ready.messages())
        } else {
            restore_messages(&session.context()?.messages)
        };
        Ok(messages.into_iter().map(|given| given.message).collect())
    }
}

impl ConversationMemory for LoopstoreMemory {
    fn load<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
    ) -> WasmBoxedFuture<'a, Result<Vec<Message>, MemoryError>> {
        Box::pin(async move {
            let (memory, session) = (self.clone(), self.session(conversation_id)?);
            let cancel = CancelOnDrop::default();
            let flag = cancel.0.clone();
            Ok(pool::run(move || memory.load_now(&session, flag)).await?)
        })
    }

    fn append<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
        messages: Vec<Message>,
    ) -> WasmBoxedFuture<'a, Result<(), MemoryError>> {
        Box::pin(async move { Ok(self.append_turn(conversation_id, messages).await?) })
    }

    fn clear<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
    ) -> WasmBoxedFuture<'a, Result<(), MemoryError>> {
        Box::pin(async move { Ok(self.clear_all(conversation_id).await?) })
    }
}

/// Returns the originals of a conversation: all that a model could see, if nothing was compacted.
pub(crate) fn record(session: &SessionHandle) -> Result<Vec<Entry>, Error> {
    let query = EntryQuery::new().roles([Role::User, Role::Assistant, Role::ToolResult]);
    Ok(session.entries(&query)?)
}

/// Returns the originals as rig has them.
pub(crate) fn originals(record: &[Entry]) -> Vec<RestoredMessage> {
    restore_messages(record.iter().map(|entry| &entry.message))
}

/// Returns the digest of messages.
pub(crate) fn digest(messages: &[AgentMessage]) -> Result<[u8; 32], Error> {
    let text = serde_json::to_vec(messages).map_err(|error| {
        StoreError::Invalid(format!("a message cannot be written as JSON: {error}"))
    })?;
    Ok(Sha256::digest(text).into())
}

fn begin_anew(session: &SessionHandle) -> Result<(), Error> {
    if session.count_entries(&EntryQuery::new())? > 0 {
        session.begin_loop(LoopSpec::fresh())?;
    }
    Ok(())
}

fn erase_all(session: &SessionHandle) -> Result<(), Error> {
    let request = EraseRequest {
        reason: Some("clear".into()),
        ..EraseRequest::new(session.id().clone())
    };
    match erase(session.store().database(), &request) {
        Ok(_) | Err(StoreError::NoSession(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
