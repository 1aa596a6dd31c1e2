//! The page that lists the sessions of a database.

use std::io::Write;

use serde::Serialize;

use super::{ReportLine, page};
use crate::ReportError;
use loopstore::model::Time;

#[derive(Serialize)]
struct Overview<'a> {
    version: &'static str,
    made_at: String,
    database: &'a str,
    sessions: Vec<OverviewRow<'a>>,
}

#[derive(Serialize)]
struct OverviewRow<'a> {
    file: &'a str,
    #[serde(flatten)]
    line: &'a ReportLine,
}

/// Writes a page that lists reports, each with its path relative to the page. `database` is the name of the database
/// on the page.
///
/// # Errors
/// If `out` fails.
///
/// # Examples
/// ```
/// use loopstore_report::{ReportOptions, file_name, write_overview, write_report};
/// use loopstore::*;
///
/// let store = Store::in_memory()?;
/// let chat = store.session("weather")?;
/// chat.append([Message::user("Will it rain?")])?;
/// let line = write_report(store.database(), chat.id(), &ReportOptions::default(), &mut std::io::sink())?;
/// let mut page = Vec::new();
/// write_overview("agent.db", &[(file_name(chat.id()), line)], &mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_overview(
    database: &str,
    reports: &[(String, ReportLine)],
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let sessions = reports
        .iter()
        .map(|(file, line)| OverviewRow { file, line });
    let overview = Overview {
        version: env!("CARGO_PKG_VERSION"),
        made_at: Time::now().as_str().to_owned(),
        database,
        sessions: sessions.collect(),
    };
    page::overview(&overview, out)
}
