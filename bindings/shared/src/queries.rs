//! Searches and filters of sessions, as JSON.

use loopstore::extend as store;
use loopstore::search::SearchQuery;
use loopstore::{SessionCursor, SessionFilter, SessionId, Store, StoreError, Time};
use serde::{Deserialize, Serialize};

use crate::entries::role;
use crate::errors::CallError;

/// A search: see `SearchQuery`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GivenQuery {
    session: Option<String>,
    source: Option<String>,
    project: Option<String>,
    role: Option<String>,
    tool: Option<String>,
    since: Option<i64>,
    until: Option<i64>,
    hidden: Option<bool>,
    limit: Option<usize>,
    offset: usize,
}

impl GivenQuery {
    pub fn of(text: String, json: &[u8]) -> Result<SearchQuery, CallError> {
        let given: Self = serde_json::from_slice(json)?;
        Ok(SearchQuery {
            text,
            session: given.session.map(SessionId::new).transpose()?,
            source: given.source,
            project: given.project,
            role: given.role.as_deref().map(role).transpose()?,
            tool: given.tool,
            since: given.since,
            until: given.until,
            hidden: given.hidden,
            limit: given.limit,
            offset: given.offset,
        })
    }
}

/// A filter of sessions: see `SessionFilter`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GivenFilter {
    source: Option<String>,
    project: Option<String>,
    text: Option<String>,
    since: Option<String>,
    /// The session after which the list continues.
    after: Option<String>,
    limit: Option<usize>,
}

impl GivenFilter {
    /// Returns the rows of the view `v_sessions` that match.
    pub fn rows(json: &[u8], store: &Store) -> Result<impl Serialize + use<>, CallError> {
        let given: Self = serde_json::from_slice(json)?;
        let behind = |id: String| -> Result<SessionCursor, CallError> {
            let session = SessionId::new(&id)?;
            let found = store::read(store.database(), |read| {
                SessionCursor::behind(read, &session)
            })?;
            Ok(found.ok_or(StoreError::NoSession(id))?)
        };
        let filter = SessionFilter {
            source: given.source,
            project: given.project,
            text: given.text,
            since: given.since.map(Time::from_text),
            after: given.after.map(behind).transpose()?,
            limit: given.limit,
            ..SessionFilter::default()
        };
        Ok(store.database().session_rows(&filter)?)
    }
}
