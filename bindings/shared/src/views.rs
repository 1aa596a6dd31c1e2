//! Views of a session: its rows, the originals behind a summary, exports and reports.

use std::path::PathBuf;

use loopstore::{Error, LoopId, SessionHandle};
use loopstore_admin::inspect::{self, ExpandRequest};
use loopstore_export::{ExportForm, export as write_export};
use loopstore_report::{ReportOptions, write_report};

use crate::calls::{leaf, written};
use crate::errors::CallError;

/// The turns to expand, and the maximum size of the answer.
pub struct ExpandOptions {
    /// The first and the last turn.
    pub turns: (u32, u32),
    /// The loop; the last one of the handle's line if `None`.
    pub loop_id: Option<String>,
    /// Only messages with this text.
    pub matching: Option<String>,
    pub max_tokens: Option<u64>,
    /// The start of the page, as an earlier page returned it.
    pub start: Option<String>,
}

/// Returns the original messages of some turns as JSON.
pub fn expand(session: &SessionHandle, options: ExpandOptions) -> Result<Vec<u8>, CallError> {
    let mut request = ExpandRequest::turns(options.turns.0, options.turns.1);
    request.loop_id = match options.loop_id {
        Some(id) => Some(LoopId::new(id)?),
        None => Some(leaf(session)?),
    };
    request.matching = options.matching;
    request.max_tokens = options.max_tokens;
    let start = options.start.as_deref().map(str::parse).transpose();
    request.from = start.map_err(CallError::Input)?;
    let found = inspect::expand(session.store().database(), session.id(), &request);
    Ok(serde_json::to_vec(&found.map_err(Error::from)?)?)
}

/// Returns the rows of the session, its loops and the blocks on them, as JSON.
pub fn show(session: &SessionHandle) -> Result<Vec<u8>, CallError> {
    let view = session.store().database().session_view(session.id())?;
    let loops = view.loops.iter().map(|(row, blocks)| (row, blocks));
    Ok(serde_json::to_vec(&(
        &view.session,
        loops.collect::<Vec<_>>(),
    ))?)
}

/// Returns an export of the session, or writes it to a file.
pub fn export(
    session: &SessionHandle,
    format: &str,
    loop_id: Option<String>,
    path: Option<PathBuf>,
) -> Result<Option<Vec<u8>>, CallError> {
    let form: ExportForm = format.parse()?;
    let leaf = loop_id.map(LoopId::new).transpose()?;
    let database = session.store().database();
    written(path, |out| {
        write_export(database, session.id(), leaf.as_ref(), form, out)?;
        Ok(())
    })
}

/// Returns the report of the session, an HTML page, or writes it to a file.
pub fn report(
    session: &SessionHandle,
    path: Option<PathBuf>,
) -> Result<Option<Vec<u8>>, CallError> {
    let options = ReportOptions {
        leaf: session.leaf()?,
        ..ReportOptions::default()
    };
    let database = session.store().database();
    written(path, |out| {
        write_report(database, session.id(), &options, out)?;
        Ok(())
    })
}
