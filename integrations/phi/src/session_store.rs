//! phi-core's store of sessions over a loopstore database.

use async_trait::async_trait;
use loopstore::extend::{SessionStore, StoreError, StoreWrite, session};
use loopstore::model::SessionId;
use loopstore::{AsyncStore, extend as store};
use loopstore_transcripts::ImportReport;
use phi_core::session::{SessionError, SessionStore as TheirStore};

use super::convert;
use super::error::{PhiError, outcome, session_error};
use super::event_log::is_log;

/// Sessions of phi-core in a loopstore database.
///
/// A saved session is a session of loopstore, whose content is never rewritten. A second save adds new loops and
/// messages and updates the metadata; loops that the saved session lacks stay. A compaction block becomes a run. A
/// session that was recorded from events can be loaded, but not overwritten by a save.
#[derive(Clone)]
pub struct PhiSessionStore {
    store: AsyncStore,
}

impl PhiSessionStore {
    /// Returns a store of sessions in this database.
    pub fn new(store: AsyncStore) -> Self {
        Self { store }
    }

    async fn call<T: Send + 'static>(
        &self,
        session: &str,
        work: impl FnOnce(&dyn SessionStore) -> Result<T, PhiError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let done = self.store.call(|store| work(store.database())).await;
        outcome(done).map_err(|refused| session_error(refused, session))
    }
}

#[async_trait]
impl TheirStore for PhiSessionStore {
    /// Saves a session in one transaction: all of it or nothing.
    ///
    /// An `Err` if a message that is stored has changed, if some part of the session cannot be
    /// stored, or if the session was recorded from events.
    async fn save(&self, session: &phi_core::Session) -> Result<(), SessionError> {
        let copy = session.clone();
        self.call(&session.session_id, move |store| save(store, &copy))
            .await
    }

    async fn load(&self, session_id: &str) -> Result<phi_core::Session, SessionError> {
        let wanted = session_id.to_owned();
        self.call(session_id, move |store| {
            convert::export_session(store, &id_of(&wanted)?)
        })
        .await
    }

    /// Lists the sessions without the logs of events, last active first.
    async fn list_ids(&self) -> Result<Vec<String>, SessionError> {
        self.call("", |store| list(store, None)).await
    }

    /// Always fails, with the kind `Unsupported` if the session is there: removal needs a reason and leaves a receipt,
    /// see `retention::erase`.
    async fn delete(&self, session_id: &str) -> Result<(), SessionError> {
        let wanted = session_id.to_owned();
        self.call(session_id, move |store| {
            let known = store::read(store, |read| read.session(&id_of(&wanted)?))?;
            known.ok_or(StoreError::NoSession(wanted))?;
            Ok(())
        })
        .await?;
        Err(SessionError::Io(std::io::Error::new(
            std::io::ErrorKind::Unsupported,
            "the store does not delete sessions; `retention::erase` does",
        )))
    }

    async fn list_for_agent(&self, agent_id: &str) -> Result<Vec<phi_core::Session>, SessionError> {
        let agent = agent_id.to_owned();
        let ids = self.call("", move |store| list(store, Some(&agent)));
        let mut sessions = Vec::new();
        for id in ids.await? {
            sessions.push(self.load(&id).await?);
        }
        Ok(sessions)
    }
}

/// Returns the id of a session; an invalid id refers to no session.
fn id_of(given: &str) -> Result<SessionId, StoreError> {
    SessionId::new(given).map_err(|_| StoreError::NoSession(given.to_owned()))
}

fn list(store: &dyn SessionStore, agent: Option<&str>) -> Result<Vec<String>, PhiError> {
    let mut rows = store::read(store, session::shown_sessions)?;
    rows.retain(|row| !is_log(row) && agent.is_none_or(|id| row.agent_id.as_deref() == Some(id)));
    Ok(rows
        .into_iter()
        .map(|row| row.session_id.to_string())
        .collect())
}

fn save(store: &dyn SessionStore, session: &phi_core::Session) -> Result<(), PhiError> {
    let mut result = None;
    let written = store.write(Box::new(|write| {
        let refused = match result.insert(import_into(write, store, session)) {
            Ok(()) => return Ok(()),
            Err(refused) => refused.to_string(),
        };
        Err(StoreError::Invalid(refused))
    }));
    match result {
        Some(Err(refused)) => Err(refused),
        _ => Ok(written?),
    }
}

fn import_into(
    write: &mut dyn StoreWrite,
    store: &dyn SessionStore,
    session: &phi_core::Session,
) -> Result<(), PhiError> {
    let id = SessionId::new(session.session_id.as_str())
        .map_err(|error| PhiError::Other(format!("the session's id: {error}")))?;
    let known = write.session(&id)?;
    if known.is_some_and(|row| row.source.as_deref() != Some("phi-core")) {
        return Err(PhiError::Other(format!(
            "session `{id}` was recorded by other means; it cannot be saved over"
        )));
    }
    complete(&convert::import_session(write, store, session)?)
}

/// Fails if a part of the session could not be stored unchanged.
fn complete(report: &ImportReport) -> Result<(), PhiError> {
    if report.revised > 0 {
        return Err(PhiError::Other(format!(
            "{} messages have changed since they were saved; what is stored is never rewritten",
            report.revised
        )));
    }
    match report.skipped.first() {
        Some(skipped) => Err(PhiError::Other(skipped.reason.clone())),
        None => Ok(()),
    }
}
