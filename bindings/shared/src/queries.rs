//! What is looked for, as JSON.

use loopstore::SessionId;
use loopstore::search::SearchQuery;
use serde::Deserialize;

use crate::entries::role;
use crate::errors::Failure;

/// What a search is to look for: see `SearchQuery`.
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
    pub fn of(text: String, json: &[u8]) -> Result<SearchQuery, Failure> {
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
