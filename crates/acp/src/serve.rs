//! Answers from the store: `session/list`, `session/load` and `session/resume` for agents that cannot do them.

use loopstore::model::SessionId;
use loopstore::{SessionFilter, SessionSummary, Store};
use loopstore_export::originals;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::context::handed_context;
use crate::gate::{StartingSession, own_key};
use crate::replay::replay;
use crate::shared::Shared;
use crate::wire::fields;

/// The number of sessions of a page.
const PAGE: usize = 50;
/// The error codes of JSON-RPC and of the protocol.
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
const NOT_FOUND: i32 = -32002;

/// A request of the editor that the store answers.
#[derive(Debug)]
pub(crate) struct ServeRequest {
    /// The id, as it is written.
    pub id: String,
    pub kind: ServeKind,
    /// The parameters, as they are written.
    pub params: String,
}

/// The kind of a request that the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServeKind {
    List,
    /// `session/load`: the conversation is replayed.
    Load,
    /// `session/resume`: the conversation is not replayed.
    Resume,
}

/// A session that the agent begins for a stored one.
pub(crate) struct BegunSession {
    /// The key of the proxy's request.
    pub key: String,
    /// The stored session.
    pub session_id: String,
}

enum ServedAnswer {
    Result(Value),
    /// The response follows the agent's.
    Begun(BegunSession),
}

/// An error response.
struct Refusal(i32, String);

impl Refusal {
    fn internal(error: impl ToString) -> Self {
        Self(INTERNAL_ERROR, error.to_string())
    }
}

/// Answers requests from the store.
pub(crate) struct Server<'a> {
    pub shared: &'a Shared,
    /// `None` if the store is not open.
    pub store: Option<&'a Store>,
    /// The agent whose sessions are listed; `None` for those of all agents.
    pub agent: Option<String>,
    /// The maximum number of tokens of a conversation for the agent's model.
    pub max_tokens: u64,
    /// The number of the proxy's own requests so far.
    pub requests: &'a mut u64,
}

impl Server<'_> {
    /// Answers a request. If the agent begins a session for a stored one first, returns that session.
    pub fn answer(&mut self, request: ServeRequest) -> Option<BegunSession> {
        let id = &request.id;
        let line = match self.result(&request) {
            Ok(ServedAnswer::Begun(session)) => return Some(session),
            Ok(ServedAnswer::Result(result)) => {
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n")
            }
            Err(Refusal(code, message)) => {
                let error = json!({"code": code, "message": message});
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n")
            }
        };
        // If the editor has closed the stream, its pump reports that.
        let _ = self.shared.to_editor.insert(line.as_bytes());
        None
    }

    fn result(&mut self, request: &ServeRequest) -> Result<ServedAnswer, Refusal> {
        let store = self
            .store
            .ok_or_else(|| Refusal(INTERNAL_ERROR, "the session store is not open".into()))?;
        match request.kind {
            ServeKind::List => {
                let listed = list(store, &request.params, self.agent.as_deref())?;
                Ok(ServedAnswer::Result(listed))
            }
            ServeKind::Load | ServeKind::Resume => {
                self.begin(store, request).map(ServedAnswer::Begun)
            }
        }
    }

    /// Makes the agent begin a session for one of the store.
    fn begin(&mut self, store: &Store, request: &ServeRequest) -> Result<BegunSession, Refusal> {
        let invalid = || Refusal(INVALID_PARAMS, "the request names no session".into());
        let mut params = fields(&request.params).ok_or_else(invalid)?;
        let session_id = params.remove("sessionId").ok_or_else(invalid)?;
        let session_id: String = serde_json::from_str(session_id.get()).map_err(|_| invalid())?;
        let not_found = || Refusal(NOT_FOUND, format!("session `{session_id}` is not stored"));
        let id = SessionId::new(session_id.as_str()).map_err(|_| not_found())?;
        let handle = store.session(id.as_str()).map_err(Refusal::internal)?;
        if !handle.exists().map_err(Refusal::internal)? {
            return Err(not_found());
        }
        let messages = originals(store.database(), &id, None).map_err(Refusal::internal)?;
        let replay = match request.kind {
            ServeKind::Load => replay(&session_id, &messages),
            ServeKind::List | ServeKind::Resume => Vec::new(),
        };
        let context = handed_context(store, &id, self.max_tokens).map_err(Refusal::internal)?;
        let params = serde_json::to_string(&params).map_err(Refusal::internal)?;
        *self.requests += 1;
        let own_id = format!("\"loopstore-{}\"", self.requests);
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{own_id},\"method\":\"session/new\",\"params\":{params}}}\n"
        );
        let starting = StartingSession {
            request_id: request.id.clone(),
            session_id: session_id.clone(),
            replay,
            context,
        };
        let key = own_key(&own_id).unwrap_or_default();
        self.shared.serving().starting.insert(key.clone(), starting);
        match self.shared.to_agent.insert(line.as_bytes()) {
            Ok(()) => Ok(BegunSession { key, session_id }),
            Err(error) => {
                self.shared.serving().starting.remove(&key);
                Err(Refusal::internal(error))
            }
        }
    }
}

#[derive(Default, Deserialize)]
struct ListParams {
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    cursor: Option<String>,
}

/// Returns a page of the stored sessions that have a folder, last active first.
fn list(store: &Store, params: &str, agent: Option<&str>) -> Result<Value, Refusal> {
    let params: ListParams =
        serde_json::from_str(params).map_err(|error| Refusal(INVALID_PARAMS, error.to_string()))?;
    let invalid = |_| Refusal(INVALID_PARAMS, "the cursor is unknown".into());
    let mut offset = params
        .cursor
        .map_or(Ok(0), |cursor| cursor.parse().map_err(invalid))?;
    let is_listed = |summary: &SessionSummary| {
        let project = summary.project.as_deref();
        let is_here = match &params.cwd {
            Some(cwd) => project == Some(cwd.as_str()),
            None => project.is_some_and(|project| project.starts_with('/')),
        };
        is_here && agent.is_none_or(|agent| summary.agent_id.as_deref() == Some(agent))
    };
    let mut listed = Vec::new();
    let mut next = None;
    loop {
        let filter = SessionFilter {
            project: params.cwd.clone(),
            offset,
            limit: Some(PAGE),
            ..SessionFilter::default()
        };
        let page = store.sessions(&filter).map_err(Refusal::internal)?;
        for summary in &page {
            if listed.len() == PAGE {
                next = Some(offset.to_string());
                break;
            }
            offset += 1;
            if is_listed(summary) {
                listed.push(summary_json(summary));
            }
        }
        if next.is_some() || page.len() < PAGE {
            break;
        }
    }
    let mut result = json!({"sessions": listed});
    if let Some(next) = next {
        result["nextCursor"] = next.into();
    }
    Ok(result)
}

fn summary_json(summary: &SessionSummary) -> Value {
    let mut session = json!({
        "sessionId": summary.session_id.as_str(),
        "cwd": summary.project,
    });
    if let Some(title) = &summary.title {
        session["title"] = title.as_str().into();
    }
    if let Some(time) = &summary.last_active_at {
        session["updatedAt"] = time.as_str().into();
    }
    session
}
