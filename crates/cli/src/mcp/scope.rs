//! The session of a call: the session that the server was started for, the session that the call names, else the
//! session of the calling agent, as far as it is known.

use loopstore::extend::{self as store, SessionFilter};
use loopstore::{Database, SessionId};

use super::tools::{CallArguments, message};
use loopstore_terminal::select;
use serde_json::Value;

/// The value of `session_id` for every session.
pub const EVERY: &str = "all";

/// The maximum number of a folder's sessions that are searched for the session of the agent.
const LOOKED_AT: usize = 20;

/// The maximum length of a chain of sessions in which each started the next.
const DEEPEST: usize = 16;

/// The sessions that the tools may read.
pub enum SessionScope {
    /// Only this one.
    One(SessionId),
    /// Every session; the agent works in this folder.
    Every { folder: Option<String> },
}

/// The session that a call is about.
pub struct CallTarget {
    /// `None` for every session.
    session: Option<SessionId>,
    /// True if the call did not name the session.
    is_assumed: bool,
}

impl CallTarget {
    /// Returns the session; `None` for every session.
    pub fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// Returns a note for an answer without results, if only one session was searched although the call did not name
    /// it.
    pub fn note(&self) -> Option<String> {
        let session = self.session.as_ref().filter(|_| self.is_assumed)?;
        Some(format!(
            "only your current session {session} was searched; with session_id \"{EVERY}\" every one is"
        ))
    }

    /// Returns the session for a tool that reads one.
    ///
    /// # Errors
    /// If the call is not about a single session.
    pub fn one(&self) -> Result<&SessionId, String> {
        self.session.as_ref().ok_or_else(|| {
            "which session is not known: give its id as `session_id`; `list_sessions` lists them"
                .into()
        })
    }
}

impl SessionScope {
    /// True if a call may name the session.
    pub fn is_every(&self) -> bool {
        matches!(self, Self::Every { .. })
    }

    /// Returns the session of a call, and removes `session_id` from its arguments; `agent` is the format of the calling
    /// agent's transcripts, if known.
    ///
    /// # Errors
    /// If no session, or more than one, has the id.
    pub fn of_call(
        &self,
        store: &dyn Database,
        agent: Option<&str>,
        given: &mut CallArguments,
    ) -> Result<CallTarget, String> {
        let folder = match self {
            Self::One(session) => {
                let session = Some(session.clone());
                return Ok(CallTarget {
                    session,
                    is_assumed: false,
                });
            }
            Self::Every { folder } => folder,
        };
        let (session, is_assumed) = match given.remove("session_id") {
            None | Some(Value::Null) => (current(store, agent, folder.as_deref())?, true),
            Some(Value::String(every)) if every == EVERY => (None, false),
            Some(Value::String(id)) => {
                let row = select::session(store, &id).map_err(message)?;
                (Some(row.session_id), false)
            }
            Some(_) => {
                return Err(format!(
                    "`session_id` must be a text: an id, a unique prefix, or `{EVERY}`"
                ));
            }
        };
        Ok(CallTarget {
            session,
            is_assumed,
        })
    }
}

/// Returns the session of an agent in this folder: the session that was active last, or the one that started it.
fn current(
    store: &dyn Database,
    agent: Option<&str>,
    folder: Option<&str>,
) -> Result<Option<SessionId>, String> {
    let Some(folder) = folder else {
        return Ok(None);
    };
    let filter = SessionFilter {
        source: agent.map(str::to_owned),
        project: Some(folder.to_owned()),
        limit: Some(LOOKED_AT),
        ..SessionFilter::default()
    };
    let rows = store.session_rows(&filter).map_err(message)?;
    // The filter also accepts subfolders of this folder.
    let is_here = |project: Option<String>| project.as_deref() == Some(folder);
    let newest = rows.iter().find(|row| is_here(row.text("project")));
    let id = newest.and_then(|row| SessionId::new(row.text("session_id")?).ok());
    id.map(|id| root_of(store, id)).transpose()
}

/// Returns the session that started this one, directly or not.
fn root_of(store: &dyn Database, session: SessionId) -> Result<SessionId, String> {
    let found = store::read(store, |read| {
        let mut root = session.clone();
        for _ in 0..DEEPEST {
            let mut parent = None;
            if let Some(row) = read.session(&root)? {
                parent = row.started_by().and_then(|id| SessionId::new(id).ok());
            }
            match parent {
                Some(id) if read.session(&id)?.is_some() => root = id,
                _ => break,
            }
        }
        Ok(root)
    });
    found.map_err(message)
}
