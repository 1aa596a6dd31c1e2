//! The handle of a session, with the operations of an agent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use super::calls::{self, CallState};
use super::error::{Error, Result};
use super::keys::Reuse;
use super::line::{LineEnd, LoopLineage, begin_session};
use super::prepare::{compact_to_fit, has_grown_since, refused};
use super::prepared::Prepared;
use super::spec::{LoopSpec, TurnRef};
use crate::compact::{CompactRequest, CompactTrigger, Policy};
use crate::compaction::CancelFlag;
use crate::context::{
    AsOf, BuildOptions, Context, KeptContext, SystemPrompt, build_context_from_session,
};
use crate::handback::{Handback, handback};
use crate::model::{AgentMessage, LoopId, LoopRecord, LoopStatus, SessionId, ToolCall};
use crate::search::{Recall, SearchQuery};
use crate::store::append::{Appended, free_loop_id, set_status};
use crate::store::session::{self, Fork, SessionLabels};
use crate::store::{self, SessionKey, SessionStore, StoreError, StoreRead, StoreResult};

/// The handle of a session, which is the history of one agent. Clones share the state of the handle.
///
/// A handle follows one line of loops: the loop that was current when the handle was first used, and the loops that
/// continue that loop. A fork returns a handle for its own line; the original handle keeps its line.
///
/// An append begins new turns and loops as needed. A turn is one model call with its inputs and its tool results. An
/// answer joins the last turn if that turn has no answer, else the answer begins a turn; a result joins the turn of
/// its call. A loop is a prompt and everything until the agent stops. A user message begins a loop if the model has
/// answered and no call is open.
///
/// ```
/// use loopstore::{Json, Message, Store};
///
/// let chat = Store::in_memory()?.session("weather")?;
/// let call = Message::assistant("I look.").with_tool_call("c1", "forecast", Json::parse("{}")?);
/// chat.append([Message::user("Will it rain?"), call])?;
/// chat.append([Message::tool_result("c1", "Rain from noon on.")])?;
/// let done = chat.append([Message::assistant("From noon on.")])?;
/// assert_eq!((done.loop_id.as_str(), done.turns), ("loop-1", 1..2));
/// // The next prompt begins the next loop.
/// assert_eq!(chat.append([Message::user("And tomorrow?")])?.loop_id.as_str(), "loop-2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SessionHandle {
    store: Store,
    id: SessionId,
    policy: Arc<Policy>,
    line: LoopLineage,
    /// The context of the last model call; the next one has most of it again.
    kept: Arc<Mutex<KeptContext>>,
}

impl SessionHandle {
    pub(super) fn new(store: Store, id: SessionId, policy: Arc<Policy>) -> Self {
        Self {
            store,
            id,
            policy,
            line: LoopLineage::default(),
            kept: Arc::default(),
        }
    }

    /// Sets the policy of this handle, in place of the store's policy.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        let policy = Arc::new(policy);
        Self { policy, ..self }
    }

    /// Returns the session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the policy of this handle.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Sets the title of the session, which lists show in place of the first prompt. A session that does not exist is
    /// created.
    ///
    /// ```
    /// use loopstore::extend::SessionFilter;
    /// use loopstore::{Message, Store};
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?;
    /// chat.append([Message::user("Will it rain?")])?;
    /// chat.set_title("The weather")?;
    /// chat.set_project("/home/ann/garden")?;
    /// let filter = SessionFilter { project: Some("garden".into()), ..SessionFilter::default() };
    /// let rows = store.database().session_rows(&filter)?;
    /// assert_eq!(rows[0].text("title"), Some("The weather".into()));
    /// assert_eq!(rows[0].text("prompt"), Some("Will it rain?".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store fails.
    pub fn set_title(&self, title: impl Into<String>) -> Result<()> {
        self.label(SessionLabels {
            title: Some(title.into()),
            ..SessionLabels::default()
        })
    }

    /// Sets the folder that the session's agent works in. A session that does not exist is created.
    ///
    /// # Errors
    /// If the store fails.
    pub fn set_project(&self, folder: impl Into<String>) -> Result<()> {
        self.label(SessionLabels {
            project: Some(folder.into()),
            ..SessionLabels::default()
        })
    }

    fn label(&self, labels: SessionLabels) -> Result<()> {
        Ok(store::write(self.backend(), |write| {
            let key = match write.session(&self.id)? {
                Some(row) => row.key,
                None => begin_session(write, &self.id)?.session,
            };
            session::label(write, key, labels)
        })?)
    }

    /// Returns the last loop of the handle's line; `None` if the session has no loop yet.
    ///
    /// # Errors
    /// If the store fails.
    pub fn leaf(&self) -> Result<Option<LoopId>> {
        let leaf = store::read(self.backend(), |read| {
            let leaf = self.line.find(read, &self.id)?.and_then(|place| place.leaf);
            leaf.map(|key| read.loop_by_key(key)).transpose()
        })?;
        Ok(leaf.map(|row| {
            let id = row.core.loop_id;
            self.line.reached(row.core.key, id.clone());
            id
        }))
    }

    /// Appends messages: all of them, or none if the append fails. The messages are durable when `append` returns.
    /// The first append creates the session and its first loop.
    ///
    /// A message whose turn id names the loop that the message is appended to keeps that id. The turn of any other
    /// message is derived from the order of the messages.
    ///
    /// # Errors
    /// If another program holds the lease of the loop, the database is busy, or the store fails.
    pub fn append<I>(&self, messages: I) -> Result<Appended>
    where
        I: IntoIterator,
        I::Item: Into<AgentMessage>,
    {
        self.append_named(None, messages.into_iter().map(Into::into).collect())
    }

    /// Appends messages once. If the session has an append of these messages under this key, nothing is appended, and
    /// the result of that append is returned. Use it if an append was interrupted and may have been stored. A message
    /// that was redacted since then counts as equal.
    ///
    /// ```
    /// use loopstore::{Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// let once = chat.append_once("request 17", [Message::user("Will it rain?")])?;
    /// let again = chat.append_once("request 17", [Message::user("Will it rain?")])?;
    /// assert_eq!((again.duplicate, &again.seqs), (true, &once.seqs));
    /// assert_eq!(chat.context()?.messages.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`SessionHandle::append`]. [`Error::KeyTaken`] if other messages were appended under the key. Also if the
    /// key is empty or longer than 512 bytes.
    pub fn append_once<I>(&self, key: &str, messages: I) -> Result<Appended>
    where
        I: IntoIterator,
        I::Item: Into<AgentMessage>,
    {
        // Keys have the bounds of ids.
        LoopId::new(key)?;
        self.append_named(Some(key), messages.into_iter().map(Into::into).collect())
    }

    fn append_named(&self, key: Option<&str>, messages: Vec<AgentMessage>) -> Result<Appended> {
        let part = (key.map(str::to_owned), messages);
        let done = self.append_parts(vec![part], Reuse::Refused)?.pop();
        done.ok_or_else(|| StoreError::Invalid("an append returned no result".into()).into())
    }

    /// Begins a loop, and marks the last loop of the line as completed if it is running. Appends begin loops without
    /// this call.
    ///
    /// # Errors
    /// If the session has a loop with this id, another program holds the lease of the last loop, or the store fails.
    pub fn begin_loop(&self, spec: LoopSpec) -> Result<LoopId> {
        let (key, id) = store::write(self.backend(), |write| {
            let LineEnd { session, leaf } = match self.line.find(write, &self.id)? {
                Some(position) => position,
                None => begin_session(write, &self.id)?,
            };
            let before = leaf.map(|key| write.loop_by_key(key)).transpose()?;
            if let Some(row) = before.as_ref().filter(|row| !row.status.is_ended()) {
                set_status(write, row.key, LoopStatus::Completed)?;
            }
            let id = match spec.id {
                Some(id) => id,
                None => free_loop_id(write, session)?,
            };
            let parent = before.filter(|_| !spec.is_fresh);
            let mut record = LoopRecord::new(id.clone(), parent.map(|row| row.core.loop_id));
            record.agent_id = spec.agent;
            if let Some(kind) = spec.kind {
                record.continuation_kind = Some(kind);
            }
            Ok((session::create_loop(write, session, &record)?, id))
        })?;
        self.line.reached(key, id.clone());
        Ok(id)
    }

    /// Ends the last loop of the handle's line with this status. The next user message begins another loop.
    ///
    /// # Errors
    /// If the line has no loop, another program holds the lease of the loop, or the store fails.
    pub fn end_loop(&self, status: LoopStatus) -> Result<()> {
        let leaf = self.leaf_or_not_found()?;
        Ok(store::write(self.backend(), |write| {
            let session = session_key(write, &self.id)?;
            let row = write
                .loop_by_id(session, &leaf)?
                .ok_or_else(|| StoreError::NoLoop(leaf.to_string()))?;
            set_status(write, row.key, status)
        })?)
    }

    /// Records that a tool call is about to run, so that a program that restarts finds the call. The returned key is
    /// the same each time the call is started; a tool can use it as an idempotency key. Appending the result finishes
    /// the call.
    ///
    /// ```
    /// use loopstore::{CallState, Json, Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("bills")?;
    /// let call = Message::assistant("").with_tool_call("c1", "pay", Json::parse("{}")?);
    /// chat.append([Message::user("Pay the bill."), call])?;
    /// let CallState::New { key } = chat.start_call("c1")? else { panic!("it is new") };
    /// // A crash, and the program starts again.
    /// assert_eq!(chat.start_call("c1")?, CallState::Started { key });
    /// chat.append([Message::tool_result("c1", "Paid.")])?;
    /// assert!(matches!(chat.start_call("c1")?, CallState::Finished(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the line has no such call. Also if the store fails.
    pub fn start_call(&self, call_id: &str) -> Result<CallState> {
        calls::start(self.backend(), &self.line, &self.id, call_id)
    }

    /// Returns the handle of the session `id` of a sub-agent that a tool call starts, and links the two sessions. A
    /// session that does not exist is created.
    ///
    /// # Errors
    /// If `id` is not a valid id, the line has no such call, or the store fails.
    pub fn child(&self, call_id: &str, id: impl AsRef<str>) -> Result<Self> {
        let id = SessionId::new(id.as_ref())?;
        calls::spawn(self.backend(), &self.line, &self.id, call_id, &id)?;
        let policy = Arc::clone(&self.policy);
        Ok(Self::new(self.store.clone(), id, policy))
    }

    /// Returns the tool calls that wait for their results, in order; the agent runs them next. A call that can get no
    /// result any more is not open: a prompt or a later answer follows it, or its loop has ended.
    ///
    /// ```
    /// use loopstore::{Json, Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// let call = Message::assistant("").with_tool_call("c1", "forecast", Json::parse("{}")?);
    /// chat.append([Message::user("Will it rain?"), call])?;
    /// for call in chat.open_calls()? {
    ///     chat.append([Message::tool_result(&call.id, "Rain from noon on.")])?;
    /// }
    /// assert!(chat.open_calls()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store fails.
    pub fn open_calls(&self) -> Result<Vec<ToolCall>> {
        Ok(self.context()?.open_calls().into_iter().cloned().collect())
    }

    /// Builds the context of the next model call. Nothing is written. For a session that does not exist the context
    /// is empty.
    ///
    /// # Errors
    /// If the store fails.
    pub fn context(&self) -> Result<Context> {
        let Some(leaf) = self.leaf()? else {
            return Ok(self.nothing());
        };
        let options = BuildOptions {
            leaf: Some(leaf),
            provider: self.policy.provider,
            system_prompts: self.policy.system_prompts,
            context_management: self.policy.context_management(),
            ..BuildOptions::default()
        };
        Ok(build_context_from_session(
            self.backend(),
            &self.id,
            &options,
        )?)
    }

    /// Builds the context that the next model call would have had at an earlier point. Later appends, compactions and
    /// undos are ignored.
    ///
    /// # Errors
    /// If the session, loop, turn or run does not exist, or the store fails.
    pub fn context_as_of(&self, at: AsOf) -> Result<Context> {
        let options = BuildOptions {
            as_of: Some(at),
            provider: self.policy.provider,
            system_prompts: self.policy.system_prompts,
            context_management: self.policy.context_management(),
            ..BuildOptions::default()
        };
        Ok(build_context_from_session(
            self.backend(),
            &self.id,
            &options,
        )?)
    }

    /// Answers a question from the messages of the session, in at most `tokens` tokens. With it, an agent reads
    /// content that its context no longer contains. The shortest answer takes about 100 tokens.
    ///
    /// ```
    /// use loopstore::{Message, Store};
    ///
    /// let chat = Store::in_memory()?.session("deploy")?;
    /// chat.append([Message::user("Which port?"), Message::assistant("The server listens on 7071.")])?;
    /// let answer = chat.recall("port", 2_000)?;
    /// assert_eq!(answer.parts[0].text, "Which port?");
    /// let answer = chat.recall("listens", 2_000)?;
    /// assert_eq!(answer.parts[0].lead.as_deref(), Some("prompt: Which port?"));
    /// println!("{answer}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::recall`]. A session that does not exist is no error: the answer is empty.
    pub fn recall(&self, question: &str, tokens: u64) -> Result<Recall> {
        let query = SearchQuery {
            session: Some(self.id.clone()),
            ..SearchQuery::new(question)
        };
        match self.store.recall(query, tokens) {
            Err(Error::NotFound { .. }) => Ok(Recall::nothing(question)),
            answer => answer,
        }
    }

    /// Returns the working state of the turns that the context replaces by summaries, as far as the summaries leave
    /// it out, in at most `max_tokens` tokens. Add it to a summary that another program wrote. `None` if nothing is
    /// missing.
    ///
    /// # Errors
    /// If the session does not exist, or the store fails.
    pub fn handback(&self, max_tokens: u64) -> Result<Option<Handback>> {
        Ok(handback(self.backend(), &self.id, None, max_tokens)?)
    }

    /// Returns the context of the next model call. The context fits the policy's window, and is compacted if the
    /// policy requires it.
    ///
    /// # Errors
    /// [`Error::BudgetTooSmall`] if not even the last turn fits. [`Error::NeedsCompaction`] if a necessary compaction
    /// failed or was vetoed. Also if the store fails.
    pub fn prepare(&self) -> Result<Prepared> {
        self.prepare_by(CompactTrigger::Policy, CancelFlag::new())
    }

    /// Returns the context as [`SessionHandle::prepare`] does, but compacts without evaluating the policy. Use it
    /// after the provider rejected a request, or cut an answer, for length.
    ///
    /// # Errors
    /// As [`SessionHandle::prepare`].
    pub fn prepare_for_length(&self) -> Result<Prepared> {
        self.prepare_by(CompactTrigger::Length, CancelFlag::new())
    }

    /// Returns the context as [`SessionHandle::prepare`] does, for any trigger, and with a flag that cancels the
    /// call. A cancelled call commits no compaction that had not begun to commit.
    ///
    /// # Errors
    /// As [`SessionHandle::prepare`].
    pub fn prepare_by(&self, trigger: CompactTrigger, cancel: CancelFlag) -> Result<Prepared> {
        let Some(leaf) = self.leaf()? else {
            return Ok(Prepared::new(Arc::new(self.nothing()), Vec::new()));
        };
        let mut request = CompactRequest {
            leaf: Some(leaf.clone()),
            trigger,
            cancel,
            ..self.policy.request()
        };
        // A call at the same time builds a context of its own: nobody waits for a read.
        let mut kept = std::mem::take(&mut *self.kept());
        let which = self.policy.system_prompts;
        let prompt = kept.system_prompt(self.backend(), &self.id, &leaf, which)?;
        request.policy.window.count_system_prompt(prompt.tokens);
        let (budget, provider) = (request.policy.window.budget(), request.policy.provider);
        let setting = self.policy.context_management();
        let mut left = request.policy.compaction.policy.max_attempts();
        let mut reports = Vec::new();
        let context = loop {
            reports.extend(compact_to_fit(self.backend(), &self.id, &mut request)?);
            let (leaf, setting) = (leaf.clone(), setting.clone());
            match kept.refresh(self.backend(), &self.id, leaf, provider, budget, setting) {
                Ok(context) => break context,
                Err(error) if left > 0 && has_grown_since(&error, &reports) => left -= 1,
                Err(error) => return Err(refused(error, reports.last())),
            }
        };
        *self.kept() = kept;
        Ok(Prepared::new(context, reports))
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, KeptContext> {
        // The value is consistent also after a panic of another thread.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hides the session from lists, search and recall; use it where a framework deletes a session. Nothing is
    /// removed: the session is kept under a new id, which is returned, and [`SessionHandle::unhide`] shows it again.
    /// The former id is free: the next append to this handle creates a new session.
    ///
    /// ```
    /// use loopstore::{Message, Store};
    ///
    /// let store = Store::in_memory()?;
    /// let chat = store.session("weather")?;
    /// chat.append([Message::user("Will it rain?")])?;
    /// let hidden = chat.hide()?;
    /// assert_eq!(store.search("rain")?.hits.len(), 0);
    /// chat.append([Message::user("Will it snow?")])?; // Another session.
    /// let old = store.session(&hidden)?.unhide("weather of yesterday")?;
    /// assert_eq!(old.context()?.messages.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the session does not exist. Also if the session is hidden already, another program
    /// holds a lease of it, or the store fails.
    pub fn hide(&self) -> Result<SessionId> {
        Ok(store::write(self.backend(), |write| {
            let key = session_key(write, &self.id)?;
            session::hide(write, key)
        })?)
    }

    /// Shows a hidden session again under the id `id`, which no other session may have, and returns its handle.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the session does not exist. Also if `id` is not a valid id or belongs to another
    /// session, if the session is not hidden, or if the store fails.
    pub fn unhide(&self, id: impl AsRef<str>) -> Result<Self> {
        let id = SessionId::new(id.as_ref())?;
        store::write(self.backend(), |write| {
            let key = session_key(write, &self.id)?;
            session::unhide(write, key, &id)
        })?;
        let policy = Arc::clone(&self.policy);
        Ok(Self::new(self.store.clone(), id, policy))
    }

    /// Returns a handle whose line ends in this loop, for instance the loop of an earlier branch.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the session has no such loop. Also if the store fails.
    pub fn at_loop(&self, loop_id: &LoopId) -> Result<Self> {
        let key = store::read(self.backend(), |read| {
            let session = session_key(read, &self.id)?;
            let row = read.loop_by_id(session, loop_id)?;
            row.map(|row| row.key)
                .ok_or_else(|| StoreError::NoLoop(loop_id.to_string()))
        })?;
        Ok(self.on(LoopLineage::at(key, loop_id.clone())))
    }

    /// Begins a branch after a complete turn, or after a message within a turn, and returns the handle of the branch.
    /// The branch is one row; no message is copied.
    ///
    /// ```
    /// use loopstore::{Message, Store, TurnRef};
    ///
    /// let chat = Store::in_memory()?.session("weather")?;
    /// chat.append([Message::user("Will it rain?"), Message::assistant("It will.")])?;
    /// // The branch is without the answer.
    /// let side = chat.fork_at(TurnRef::within("loop-1", 0, 0))?;
    /// assert_eq!(side.context()?.messages.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the turn does not exist, the turn is still in flight, or the store fails.
    pub fn fork_at(&self, at: TurnRef) -> Result<Self> {
        // The branch becomes the session's current loop; this handle stays where it is.
        self.leaf()?;
        let (key, id) = store::write(self.backend(), |write| {
            let session = session_key(write, &self.id)?;
            let parent = write
                .loop_by_id(session, &at.loop_id)?
                .ok_or_else(|| StoreError::NoLoop(at.loop_id.to_string()))?;
            let id = free_loop_id(write, session)?;
            let fork = Fork {
                loop_id: id.clone(),
                turn: at.turn,
                seq: at.seq,
                tag: id.to_string(),
            };
            Ok((session::fork(write, parent.key, &fork)?, id))
        })?;
        Ok(self.on(LoopLineage::at(key, id)))
    }

    fn on(&self, line: LoopLineage) -> Self {
        Self {
            line,
            kept: Arc::default(),
            ..self.clone()
        }
    }

    pub(super) fn line(&self) -> &LoopLineage {
        &self.line
    }

    pub(super) fn backend(&self) -> &dyn SessionStore {
        self.store.database()
    }

    pub(super) fn leaf_or_not_found(&self) -> Result<LoopId> {
        self.leaf()?
            .ok_or_else(|| Error::not_found("session", self.id.as_str()))
    }

    /// Returns the context of a session without loops.
    fn nothing(&self) -> Context {
        Context {
            session: self.id.clone(),
            leaf: LoopId::of("loop-1"),
            messages: Vec::new(),
            tokens: 0,
            bytes: 0,
            parts: Vec::new(),
            faults: Vec::new(),
            provider: self.policy.provider,
            compaction: None,
            in_flight: false,
            system: SystemPrompt::default(),
            context_management: self.policy.context_management(),
            manifest: None,
        }
    }
}

impl std::fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHandle")
            .field("store", &self.store)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

pub(super) fn session_key(read: &dyn StoreRead, id: &SessionId) -> StoreResult<SessionKey> {
    let row = read.session(id)?;
    row.map(|row| row.key)
        .ok_or_else(|| StoreError::NoSession(id.to_string()))
}
