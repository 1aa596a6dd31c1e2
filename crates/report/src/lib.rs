//! A session as one page: the loop tree, the size of its context over time, the state of each turn,
//! tool calls, usage, and all of its messages.
//!
//! A page needs only a browser: no network, no other file. Its data is in the page as
//! compressed pieces that the page's script reads when they are shown, so that a long session
//! opens at once. All text of a transcript is in the page as base64, and the script
//! writes it as text.
//!
//! `loopstore-eval` measures how much of a history a compaction keeps; [`write_compactions`] shows its report.
//!
//! `page.rs` assembles the file from `session.html`, `report.css` and the scripts in the same folder; `gather.rs`
//! defines the index, the first piece of data. The crate writes nothing to a store, and exports no transcripts:
//! `loopstore-export` does.

#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod calls;
mod chain;
mod compactions;
mod curve;
mod edits;
mod error;
mod gather;
mod messages;
mod name;
mod overview;
mod page;
mod prices;
mod usage;

use std::collections::BTreeMap;
use std::io::Write;

pub use compactions::write_compactions;
pub use error::ReportError;
pub use name::file_name;
pub use overview::write_overview;
pub use prices::{PriceError, Prices};

use loopstore::extend::{self as store, SessionStore, StoreRead, leaf_of, session_of};
use loopstore::model::{LoopId, SessionId};

/// The options of a report.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The loop whose chain is shown; the session's current loop if `None`.
    pub leaf: Option<LoopId>,
    /// The prices of tokens. For models without a price, the cost in the transcript is used.
    pub prices: Option<Prices>,
    /// The path of the page that lists all sessions, relative to this page.
    pub overview: Option<String>,
    /// The paths of the reports of other sessions, relative to this page.
    pub others: BTreeMap<SessionId, String>,
}

/// Data for other programs that a page carries: an element `<script type="media type" id="name">` with the data as
/// base64 of gzip, and a `<meta>` element of this name at the beginning of the page. The name and the media type are
/// part of the markup and must not come from a transcript.
#[derive(Clone, Copy, Debug)]
pub struct ReportAttachment<'a> {
    /// The name of both elements.
    pub name: &'static str,
    /// The media type.
    pub media_type: &'static str,
    /// The data.
    pub data: &'a [u8],
}

/// The summary of a report.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ReportLine {
    /// The session.
    pub session_id: String,
    /// The title of the session, else its first prompt.
    pub title: Option<String>,
    /// The folder in which the agent worked.
    pub project: Option<String>,
    /// The format from which the session was imported.
    pub source: Option<String>,
    /// The time of the last activity, as ISO-8601 text.
    pub last_active_at: Option<String>,
    /// Loops.
    pub loops: u64,
    /// Turns of all loops.
    pub turns: u64,
    /// Messages of all loops.
    pub messages: u64,
    /// The tokens of these messages.
    pub tokens: u64,
    /// The tokens of the context of the next model call.
    pub context: u64,
    /// Committed compactions.
    pub compactions: u64,
    /// Tool calls.
    pub calls: u64,
    /// Tool calls that failed.
    pub failed: u64,
    /// The cost of the session with its sub-agents, if known.
    pub cost: Option<f64>,
}

/// Writes the page of a session from one snapshot.
///
/// # Errors
/// If the session or the loop does not exist, the store fails, or `out` fails.
///
/// # Examples
/// ```
/// use loopstore_report::{ReportOptions, write_report};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// let report = |hour| Message::assistant(format!("Hour {hour}: {}", "rain, ".repeat(200)));
/// chat.append([Message::user("How is the weather?")])?;
/// chat.append((0..40).map(report))?;
/// let mut page = Vec::new();
/// let line = write_report(store.database(), chat.id(), &ReportOptions::default(), &mut page)?;
/// assert_eq!((line.turns, line.compactions), (40, 0));
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_report(
    store: &dyn SessionStore,
    session: &SessionId,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> Result<ReportLine, ReportError> {
    store::read(store, |read| {
        Ok(write_from(read, session, options, None, out))
    })?
}

/// Writes the page of a session as [`write_report`] does, with data for other programs in it.
///
/// # Errors
/// As [`write_report`].
pub fn write_report_with(
    store: &dyn SessionStore,
    session: &SessionId,
    options: &ReportOptions,
    attachment: &ReportAttachment<'_>,
    out: &mut dyn Write,
) -> Result<ReportLine, ReportError> {
    let attachment = Some(attachment);
    store::read(store, |read| {
        Ok(write_from(read, session, options, attachment, out))
    })?
}

fn write_from(
    read: &dyn StoreRead,
    session: &SessionId,
    options: &ReportOptions,
    attachment: Option<&ReportAttachment<'_>>,
    out: &mut dyn Write,
) -> Result<ReportLine, ReportError> {
    let owner = session_of(read, session)?;
    let leaf = match (&options.leaf, owner.current_loop) {
        (None, None) => None,
        (leaf, _) => Some(leaf_of(read, &owner, leaf.as_ref())?),
    };
    let mut page = page::HtmlPage::begin(out, attachment)?;
    let found = messages::write_all(read, &owner, &mut page)?;
    if let Some(attachment) = attachment {
        page.attach(attachment)?;
    }
    let index = gather::index(read, &owner, leaf.as_ref(), found, options)?;
    let line = index.line();
    page.finish(&index)?;
    Ok(line)
}
