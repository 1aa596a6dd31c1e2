//! Recording an agent while it works.
//!
//! A [`SessionRecorder`] receives [`AgentEvent`]s and writes them at once: a message is durable when its `messageEnd`
//! is recorded, a tool call before its tool runs. The recorder drives each of its loops under a lease, so that no
//! second process writes to the loop. A process that resumes a loop continues its last turn, with the messages that
//! were recorded. [`recover`] lists the loops and calls that a crash left open. With the feature `tokio`,
//! [`AsyncRecorder`] records from async code.
//!
//! The events of a loop: `agentStart`, then turns (`turnStart`, messages, tool calls, `turnEnd`), then `agentEnd`. An
//! event that is invalid in the state of its loop fails with a [`RecordError`] and changes nothing.
//!
//! The crate is for agents that emit events. An agent that appends messages itself needs only
//! [`SessionHandle`](loopstore::SessionHandle); transcripts that an agent has already written are imported. The
//! crate builds no context and compacts nothing: both are calls on the store.

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod active_loop;
#[cfg(feature = "tokio")]
mod async_recorder;
mod begin;
mod calls;
mod error;
pub mod event;
mod notes;
mod parallel;
mod recover;
mod secrets;
mod usage;
mod write;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use loopstore::extend::{
    self as store, Lease, SessionStore, StoreError, StoreWrite, append::AppendedMessages, lease,
};
use loopstore::model::{AgentMessage, Json, LoopId, Message, SessionId};
use loopstore_redact::Redactor;

use active_loop::{ActiveLoop, answered};
#[cfg(feature = "tokio")]
pub use async_recorder::AsyncRecorder;
pub use calls::{StartedCall, settle};
pub use error::{RecordError, RecordResult};
pub use event::{AgentEvent, LoopConfigSnapshot};
pub use loopstore::extend::calls::idempotency_key;
pub use recover::{AbortedLoop, HeldLoop, RecoverReport, RecoverRequest, recover};
pub use usage::{Price, UsageTree, priced, usage_below, usage_tree};

/// The reason that a session was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Formation {
    /// The first loop of the session began.
    #[default]
    FirstLoop,
    /// The caller requested it.
    Explicit,
    /// The previous session was inactive for longer than the threshold.
    InactivityTimeout {
        /// The threshold in seconds.
        threshold_secs: u64,
        /// The previous session.
        previous_session_id: SessionId,
    },
}

/// A clock that returns milliseconds since the epoch.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The options of a recorder.
#[derive(Clone)]
pub struct RecorderOptions {
    /// The owner of the leases, which other programs see. By default a name that is unique to the recorder.
    pub owner: String,
    /// The duration of a lease. A heartbeat renews the lease, and so does a write after half of the duration. The
    /// default is 15 minutes: half of it is longer than a model call or a tool should take. If the store detects that
    /// the holder is gone, the lease ends at once.
    pub ttl: Duration,
    /// True to store pieces of messages and of tool results too.
    pub streaming: bool,
    /// True to store requests with their payload. Each payload is a copy of the context.
    pub request_payloads: bool,
    /// True to replace secrets by markers before anything is stored, as `import --redact` does.
    pub redact: bool,
    /// The reason for which the recorder creates sessions.
    pub formation: Formation,
    /// The clock of leases.
    pub clock: Clock,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            owner: format!(
                "{}/{}",
                std::process::id(),
                loopstore_model::clock::new_uuid()
            ),
            ttl: Duration::from_secs(15 * 60),
            streaming: false,
            request_payloads: false,
            redact: false,
            formation: Formation::default(),
            clock: Arc::new(loopstore_model::clock::now),
        }
    }
}

/// The result of recording an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The event is buffered for the next write, or has nothing to store.
    Buffered,
    /// The event is durable: a loop began, parallel loops were announced, or one of them was selected.
    Begun,
    /// The message is durable.
    Message(AppendedMessages),
    /// The turn is durable, with the messages that only its end contained.
    Turn(AppendedMessages),
    /// The call is durable, and its tool may run.
    Call {
        /// The key to pass to the tool.
        idempotency_key: String,
        /// The number of attempts: more than 1 if the call was started before and its result is not known.
        attempts: u32,
    },
    /// The loop has ended, and its lease is released.
    Ended,
}

/// The state of a resumed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumedLoop {
    /// The number of stored turns.
    pub turns: u32,
    /// The index of the last turn; the index of the next turn must be larger.
    pub last_turn_index: Option<i64>,
    /// The last turn, if it has not ended: the next events continue it.
    pub open_turn: Option<OpenTurnState>,
    /// Calls of the loop that had started and have no result.
    pub calls: Vec<StartedCall>,
    /// The previous owner of the lease, if the owner did not release it: the lease had expired, or the process was
    /// gone.
    pub taken_over_from: Option<String>,
}

/// A turn that has not ended, with its messages so far.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTurnState {
    /// The index of the turn.
    pub turn_index: i64,
    /// The messages of the turn.
    pub messages: Vec<AgentMessage>,
}

impl OpenTurnState {
    /// Returns the ids of the turn's calls that have no result: calls that are still to be made, and
    /// calls that may have done their work ([`ResumedLoop::calls`]).
    pub fn unanswered(&self) -> Vec<&str> {
        let results: Vec<&str> = self.messages.iter().map(answered).collect();
        let known_messages = self.messages.iter().filter_map(AgentMessage::message);
        let calls = known_messages
            .flat_map(Message::tool_calls)
            .map(|call| &*call.id);
        calls.filter(|id| !results.contains(id)).collect()
    }
}

/// Writes the events of an agent into a store.
///
/// A recorder drives any number of loops at once, whose events may be interleaved. Each loop is driven by one
/// recorder at a time. A dropped recorder releases its loops, so that another recorder can resume them.
///
/// # Examples
/// ```
/// use loopstore_recorder::event::*;
/// use loopstore::*;
/// use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};
///
/// let store = Store::in_memory()?;
/// let (session, loop_key) = (SessionId::new("s")?, LoopId::new("s.1")?);
/// let mut recorder = SessionRecorder::new(store.database(), RecorderOptions::default());
/// let start = AgentStart::new(session.clone(), loop_key.clone());
/// recorder.record(AgentEvent::AgentStart(start))?;
/// recorder.record(AgentEvent::TurnStart(TurnStart::new(loop_key.clone(), 0)))?;
/// let prompt: AgentMessage = Message::user("Will it rain?").into();
/// recorder.record(AgentEvent::MessageStart(MessageStart::new(loop_key.clone(), prompt.clone())))?;
/// recorder.record(AgentEvent::MessageEnd(MessageEnd::new(loop_key.clone(), prompt)))?;
/// // The prompt would survive a crash now.
/// let context = build_context_from_session(store.database(), &session, &BuildOptions::default())?;
/// assert_eq!(context.messages.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SessionRecorder<'a> {
    store: RecorderStore<'a>,
    options: RecorderOptions,
    active: BTreeMap<LoopId, ActiveLoop>,
    /// Loops that were announced and are stored as pending.
    pending: BTreeMap<LoopId, ActiveLoop>,
    /// Loops that were announced without their parent, each with its group.
    announced: BTreeMap<LoopId, Vec<LoopId>>,
    /// Created when it is first needed.
    redactor: Option<Redactor>,
}

/// The store of a recorder.
#[derive(Clone)]
enum RecorderStore<'a> {
    Borrowed(&'a dyn SessionStore),
    Shared(Arc<dyn SessionStore>),
}

impl<'a> Deref for RecorderStore<'a> {
    type Target = dyn SessionStore + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Borrowed(store) => *store,
            Self::Shared(store) => &**store,
        }
    }
}

impl SessionRecorder<'static> {
    /// Returns a recorder that owns its store and does not drive any loop: for another thread, or a struct that
    /// contains both.
    pub fn shared(store: Arc<dyn SessionStore>, options: RecorderOptions) -> Self {
        Self::on(RecorderStore::Shared(store), options)
    }
}

impl<'a> SessionRecorder<'a> {
    /// Returns a recorder that does not drive any loop.
    pub fn new(store: &'a dyn SessionStore, options: RecorderOptions) -> Self {
        Self::on(RecorderStore::Borrowed(store), options)
    }

    fn on(store: RecorderStore<'a>, options: RecorderOptions) -> Self {
        Self {
            store,
            options,
            active: BTreeMap::new(),
            pending: BTreeMap::new(),
            announced: BTreeMap::new(),
            redactor: None,
        }
    }

    /// Returns a recorder that resumes a loop, as [`SessionRecorder::resume`].
    ///
    /// # Errors
    /// As [`SessionRecorder::resume`].
    ///
    /// # Examples
    /// ```
    /// use loopstore_recorder::event::*;
    /// use loopstore::*;
    /// use loopstore_recorder::{AgentEvent, RecorderOptions, SessionRecorder};
    ///
    /// let store = Store::in_memory()?;
    /// let (session, loop_key) = (SessionId::new("s")?, LoopId::new("s.1")?);
    /// let options = RecorderOptions::default();
    /// let mut first = SessionRecorder::new(store.database(), options.clone());
    /// let start = AgentStart::new(session.clone(), loop_key.clone());
    /// first.record(AgentEvent::AgentStart(start))?;
    /// first.release(&loop_key)?;
    /// let (second, resumed) = SessionRecorder::open(store.database(), options, &session, &loop_key)?;
    /// assert_eq!((resumed.turns, resumed.calls.len()), (0, 0));
    /// # drop(second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(
        store: &'a dyn SessionStore,
        options: RecorderOptions,
        session: &SessionId,
        loop_id: &LoopId,
    ) -> RecordResult<(Self, ResumedLoop)> {
        let mut recorder = Self::new(store, options);
        let resumed = recorder.resume(session, loop_id)?;
        Ok((recorder, resumed))
    }

    /// Returns the owner of the recorder's leases.
    pub fn owner(&self) -> &str {
        &self.options.owner
    }

    /// Reads an event from JSON and records it.
    ///
    /// # Errors
    /// If the text is not an event, or as [`SessionRecorder::record`].
    ///
    /// # Examples
    /// ```
    /// use loopstore::*;
    /// use loopstore_recorder::{Recorded, RecorderOptions, SessionRecorder};
    ///
    /// let store = Store::in_memory()?;
    /// let mut recorder = SessionRecorder::new(store.database(), RecorderOptions::default());
    /// let event = r#"{"type": "agentStart", "session_id": "s", "loop_id": "s.1"}"#;
    /// assert_eq!(recorder.record_json(event)?, Recorded::Begun);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_json(&mut self, text: &str) -> RecordResult<Recorded> {
        self.record(AgentEvent::parse(text)?)
    }

    /// Records an event.
    ///
    /// # Errors
    /// If the event is invalid in the state of its loop, another recorder drives the loop, or the store fails.
    /// Nothing of the event is stored then, and the same event may be recorded again. After
    /// [`StoreError::Unconfirmed`] alone the event may have been stored: the recorder no longer drives the loop, and
    /// [`SessionRecorder::resume`] reads the stored state once the lease has expired.
    pub fn record(&mut self, event: AgentEvent) -> RecordResult<Recorded> {
        let event = self.redacted(event)?;
        match &event {
            AgentEvent::AgentStart(start) => self.agent_start(start, &event),
            AgentEvent::AgentEnd(end) => self.agent_end(end),
            AgentEvent::MessageEnd(end) => self.message_end(end, &event),
            AgentEvent::TurnEnd(end) => self.turn_end(end, &event),
            AgentEvent::ToolExecutionStart(start) => self.call_start(start, &event),
            AgentEvent::ParallelLoopStart(start) => self.parallel_start(start),
            AgentEvent::ParallelLoopEnd(end) => self.parallel_end(end),
            AgentEvent::Other(json) => Ok(self.note_other(json)),
            _ => self.note(event),
        }
    }

    /// Buffers an event for the next write.
    fn note(&mut self, event: AgentEvent) -> RecordResult<Recorded> {
        let name = event.name();
        let (streaming, payloads) = (self.options.streaming, self.options.request_payloads);
        let Some(loop_id) = loop_of(&event) else {
            return Ok(Recorded::Buffered);
        };
        let active = self.active_loop(name, loop_id)?;
        match &event {
            AgentEvent::TurnStart(start) => active.begin_turn(start)?,
            AgentEvent::TurnRequest(request) => {
                active.check_turn(name, request.turn_index.as_ref().map(|index| index.get()))?;
                active.note_request(request);
            }
            AgentEvent::MessageStart(start) => active.begin_message(&start.message)?,
            AgentEvent::MessageUpdate(update) => active.update_message(update)?,
            AgentEvent::ToolExecutionUpdate(update) => {
                active.check_running(name, &update.tool_call_id)?;
            }
            AgentEvent::ToolExecutionEnd(end) => active.end_call(end)?,
            AgentEvent::InputRejected(rejected) => {
                active.rejection = Some(rejected.reason.clone());
            }
            _ => {}
        }
        active.events.extend(stored(event, streaming, payloads));
        Ok(Recorded::Buffered)
    }

    fn note_other(&mut self, json: &Json) -> Recorded {
        let named = json.read::<event::LoopNotice>().ok();
        if let Some(active) = named.and_then(|named| self.active.get_mut(&named.loop_id)) {
            active.events.push(AgentEvent::Other(json.clone()));
        }
        Recorded::Buffered
    }

    fn active_loop(
        &mut self,
        event: &'static str,
        loop_id: &LoopId,
    ) -> RecordResult<&mut ActiveLoop> {
        self.active
            .get_mut(loop_id)
            .ok_or_else(|| RecordError::NotBegun {
                event,
                loop_id: loop_id.to_string(),
            })
    }

    /// Renews the lease of a loop, for a time in which nothing is written.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another recorder drives the loop.
    pub fn heartbeat(&mut self, loop_id: &LoopId) -> RecordResult<()> {
        let now = (self.options.clock)();
        let store = self.store.clone();
        let lease = &self.active_loop("heartbeat", loop_id)?.lease;
        Ok(store::write(&*store, |write| {
            lease::renew(write, lease, now)
        })?)
    }

    /// Releases a loop without ending it, so that another recorder can resume the loop. Events that are buffered for
    /// the next write are discarded.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] if another recorder drives the loop already. The loop is released in this case too.
    pub fn release(&mut self, loop_id: &LoopId) -> RecordResult<()> {
        let now = (self.options.clock)();
        let lease = self.active_loop("release", loop_id)?.lease.clone();
        let done = store::write(&*self.store, |write| lease::release(write, &lease, now));
        if matches!(done, Ok(()) | Err(StoreError::LeaseLost { .. })) {
            self.active.remove(loop_id);
        }
        Ok(done?)
    }
}

impl Drop for SessionRecorder<'_> {
    fn drop(&mut self) {
        let left = self.active.values().chain(self.pending.values());
        let leases: Vec<Lease> = left.map(|active| active.lease.clone()).collect();
        if leases.is_empty() {
            return;
        }
        let (store, now) = (&*self.store, (self.options.clock)());
        // If this fails, the lease ends with this process or by its time; and a panic while another
        // one unwinds would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            store::write(store, |write| {
                for lease in &leases {
                    match lease::release(write, lease, now) {
                        Err(StoreError::LeaseLost { .. }) | Ok(()) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            })
        }));
    }
}

/// Returns the loop of an event that is buffered.
fn loop_of(event: &AgentEvent) -> Option<&LoopId> {
    Some(match event {
        AgentEvent::TurnStart(event) => &event.loop_id,
        AgentEvent::TurnRequest(event) => &event.loop_id,
        AgentEvent::MessageStart(event) => &event.loop_id,
        AgentEvent::MessageUpdate(event) => &event.loop_id,
        AgentEvent::ToolExecutionUpdate(event) => &event.loop_id,
        AgentEvent::ToolExecutionEnd(event) => &event.loop_id,
        AgentEvent::Progress(event) => &event.loop_id,
        AgentEvent::InputRejected(event) => &event.loop_id,
        AgentEvent::CompactionStarted(event)
        | AgentEvent::CompactionEnded(event)
        | AgentEvent::PruneApplied(event)
        | AgentEvent::RevertApplied(event) => &event.loop_id,
        _ => return None,
    })
}

/// Returns the stored part of an event: pieces of messages and payloads of requests only if requested.
fn stored(mut event: AgentEvent, streaming: bool, payloads: bool) -> Option<AgentEvent> {
    match &mut event {
        // The end of a message has everything that its beginning has.
        AgentEvent::MessageStart(_)
        | AgentEvent::MessageUpdate(_)
        | AgentEvent::ToolExecutionUpdate(_)
            if !streaming =>
        {
            return None;
        }
        AgentEvent::TurnRequest(request) if !payloads => request.request_payload = None,
        AgentEvent::ToolExecutionEnd(end) => end.result = None,
        _ => {}
    }
    Some(event)
}

/// Runs `work` in a write transaction; an error of either kind rolls it back.
fn writing<T>(
    store: &dyn SessionStore,
    work: impl FnOnce(&mut dyn StoreWrite) -> RecordResult<T>,
) -> RecordResult<T> {
    let mut refused = None;
    let done = store::write(store, |write| match work(write) {
        Ok(done) => Ok(done),
        Err(RecordError::Store(error)) => Err(error),
        Err(error) => {
            refused = Some(error);
            Err(StoreError::Invalid("an event was refused".into()))
        }
    });
    match refused {
        Some(error) => Err(error),
        None => Ok(done?),
    }
}
