//! phi-core's log of events over a loopstore database.
//!
//! The log of a session is a loop of extensions, in a session of its own, so that it is not part of
//! any context. The position of an event in that loop is its ordinal: there are no gaps, and numbering continues
//! after a restart.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use loopstore::extend::append::append;
use loopstore::extend::session::{create_loop, create_session};
use loopstore::extend::{
    LoopRow, SessionRow, SessionStore, StoreError, StoreRead, StoreResult, StoreWrite,
};
use loopstore::model::{AgentMessage, Json, LoopId, LoopRecord, Session, SessionId};
use loopstore::{AsyncStore, Store, extend as store};
use phi_core::session::{EventLog, SessionError};

use super::error::{PhiError, outcome, session_error};

/// The agent and the loop of a log's session, and the prefix of its id.
const LOG: &str = "phi-core-events";
/// The kind of the extensions; search leaves it out.
const KIND: &str = loopstore_model::extension_kinds::PHI_CORE_EVENT;

/// A durable log of events in a loopstore database.
///
/// `append` returns the next ordinal at once. A background task writes all waiting events in one transaction. Events
/// that cannot be written, for example because the database is locked, wait for the next attempt; `flush` makes an
/// attempt and returns its error. Only one log writes for a session at a time.
///
/// The log of session `s` is the session `phi-core-events/s` of the database.
#[derive(Clone)]
pub struct PhiEventLog {
    log: Arc<EventWriter>,
}

struct EventWriter {
    store: AsyncStore,
    queue: Mutex<EventQueue>,
    /// Held while a batch is written.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct EventQueue {
    /// The last ordinal, by session.
    last: HashMap<String, u64>,
    waiting: Vec<WaitingEvent>,
    /// True if it is unknown whether the first of the waiting events are stored.
    is_unsure: bool,
}

#[derive(Clone)]
struct WaitingEvent {
    session: String,
    ordinal: u64,
    event: Json,
}

impl PhiEventLog {
    /// Returns a log of events in this database.
    pub fn new(store: AsyncStore) -> Self {
        let log = EventWriter {
            store,
            queue: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        };
        Self { log: Arc::new(log) }
    }
}

#[async_trait]
impl EventLog for PhiEventLog {
    async fn append(
        &self,
        session_id: &str,
        event: phi_core::AgentEvent,
    ) -> Result<u64, SessionError> {
        let event = Json::of(&event)?;
        if !self.log.knows(session_id) {
            let wanted = session_id.to_owned();
            let stored = self
                .log
                .call(session_id, move |store| length(store, &wanted));
            let stored = stored.await?;
            let mut queue = self.log.queue();
            queue.last.entry(session_id.to_owned()).or_insert(stored);
        }
        let ordinal = self.log.queue().push(session_id, event);
        let log = Arc::clone(&self.log);
        // `flush` returns its errors.
        tokio::spawn(async move { log.write().await });
        Ok(ordinal)
    }

    async fn read_since(
        &self,
        session_id: &str,
        since: u64,
    ) -> Result<Vec<(u64, phi_core::AgentEvent)>, SessionError> {
        let wanted = session_id.to_owned();
        self.log
            .call(session_id, move |store| events(store, &wanted, since))
            .await
    }

    async fn flush(&self, session_id: &str) -> Result<(), SessionError> {
        let log = Arc::clone(&self.log);
        // A task of its own: a flush that is dropped must not leave a batch half written.
        let written = tokio::spawn(async move { log.write().await }).await;
        match written {
            Ok(done) => done.map_err(|error| session_error(error, session_id)),
            Err(error) => Err(SessionError::Task(error.to_string())),
        }
    }
}

impl EventWriter {
    fn queue(&self) -> MutexGuard<'_, EventQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn knows(&self, session: &str) -> bool {
        self.queue().last.contains_key(session)
    }

    async fn call<T: Send + 'static>(
        &self,
        session: &str,
        work: impl FnOnce(&dyn SessionStore) -> Result<T, PhiError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let done = self.store.call(|store| work(store.database())).await;
        outcome(done).map_err(|refused| session_error(refused, session))
    }

    /// Writes all waiting events; events that cannot be written keep waiting.
    async fn write(&self) -> Result<(), PhiError> {
        let _one_at_a_time = self.writing.lock().await;
        let (batch, is_unsure) = {
            let mut queue = self.queue();
            (std::mem::take(&mut queue.waiting), queue.is_unsure)
        };
        if batch.is_empty() {
            return Ok(());
        }
        let copy = batch.clone();
        let work = move |store: &Store| write_batch(store.database(), copy, is_unsure);
        let done = outcome(self.store.call(work).await);
        let mut queue = self.queue();
        if let Err(error) = &done {
            queue.waiting.splice(0..0, batch);
            queue.is_unsure |= matches!(error, PhiError::Store(StoreError::Unconfirmed(_)));
        } else {
            queue.is_unsure = false;
        }
        drop(queue);
        done
    }
}

impl EventQueue {
    fn push(&mut self, session: &str, event: Json) -> u64 {
        let last = self.last.entry(session.to_owned()).or_default();
        *last += 1;
        let ordinal = *last;
        self.waiting.push(WaitingEvent {
            session: session.to_owned(),
            ordinal,
            event,
        });
        ordinal
    }
}

/// True if a session is a log of events.
pub(super) fn is_log(row: &SessionRow) -> bool {
    row.agent_id.as_deref() == Some(LOG) && row.session_id.as_str().starts_with(LOG)
}

fn log_id(session: &str) -> StoreResult<SessionId> {
    SessionId::new(format!("{LOG}/{session}"))
        .map_err(|error| StoreError::Invalid(format!("the session's id: {error}")))
}

fn log_loop(read: &dyn StoreRead, session: &str) -> StoreResult<Option<LoopRow>> {
    let Some(owner) = read.session(&log_id(session)?)? else {
        return Ok(None);
    };
    owner
        .current_loop
        .map(|key| read.loop_by_key(key))
        .transpose()
}

/// Returns the number of events of a session.
fn length(store: &dyn SessionStore, session: &str) -> Result<u64, PhiError> {
    let row = store::read(store, |read| log_loop(read, session))?;
    Ok(row.map_or(0, |row| u64::from(row.totals.next_seq)))
}

fn events(
    store: &dyn SessionStore,
    session: &str,
    since: u64,
) -> Result<Vec<(u64, phi_core::AgentEvent)>, PhiError> {
    let mut texts = Vec::new();
    let first = u32::try_from(since).unwrap_or(u32::MAX);
    store::read(store, |read| {
        let Some(row) = log_loop(read, session)? else {
            return Ok(());
        };
        read.messages(row.key, first..u32::MAX, &mut |message| {
            let ordinal = u64::from(message.seq) + 1;
            if let AgentMessage::Extension(event) = store::decode(read, message.body)? {
                texts.push((ordinal, event.data));
            }
            Ok(ControlFlow::Continue(()))
        })
    })?;
    let read = |(ordinal, event): (u64, Json)| Ok((ordinal, event.read()?));
    texts.into_iter().map(read).collect()
}

/// Writes events; after an unconfirmed write, events that are stored already are skipped.
fn write_batch(
    store: &dyn SessionStore,
    batch: Vec<WaitingEvent>,
    is_unsure: bool,
) -> Result<(), PhiError> {
    store::write(store, |write| {
        let mut by_session: Vec<(String, Vec<WaitingEvent>)> = Vec::new();
        for waiting in batch {
            match by_session.iter_mut().find(|(id, _)| *id == waiting.session) {
                Some((_, events)) => events.push(waiting),
                None => by_session.push((waiting.session.clone(), vec![waiting])),
            }
        }
        by_session
            .into_iter()
            .try_for_each(|(id, events)| write_events(write, store, &id, events, is_unsure))
    })?;
    Ok(())
}

fn write_events(
    write: &mut dyn StoreWrite,
    store: &dyn SessionStore,
    session: &str,
    mut events: Vec<WaitingEvent>,
    is_unsure: bool,
) -> StoreResult<()> {
    let row = match log_loop(write, session)? {
        Some(row) => row,
        None => begin(write, session)?,
    };
    let next = u64::from(row.totals.next_seq) + 1;
    events.retain(|event| !is_unsure || event.ordinal >= next);
    if let Some(first) = events.first().filter(|first| first.ordinal != next) {
        return Err(StoreError::Invalid(format!(
            "event {} of session `{session}` cannot be written: another log has written up to {}",
            first.ordinal,
            next - 1
        )));
    }
    let extensions = events.into_iter().map(|waiting| {
        let event = AgentMessage::extension(KIND, waiting.event);
        event.into()
    });
    append(write, row.key, extensions.collect(), store.counter()).map(drop)
}

fn begin(write: &mut dyn StoreWrite, session: &str) -> StoreResult<LoopRow> {
    let log = Session::new(log_id(session)?, LOG);
    let title = format!("Events of phi-core session {session}");
    let owner = create_session(write, &log, Some(title), None)?;
    let id = LoopId::new(LOG).map_err(|error| StoreError::Invalid(error.to_string()))?;
    let key = create_loop(write, owner, &LoopRecord::new(id, None))?;
    write.loop_by_key(key)
}
