//! The page that shows what recorded compactions forgot.

use std::io::Write;

use serde::Serialize;

use super::eval::CompactionsReport;
use super::page;
use crate::ReportError;
use loopstore::model::Time;

#[derive(Serialize)]
struct CompactionsIndex<'a> {
    version: &'static str,
    made_at: String,
    #[serde(flatten)]
    report: &'a CompactionsReport,
}

/// Writes a page of what compactions forgot that transcripts record, of what their agents did again, and of
/// what would have been kept. It needs nothing but a browser, as the page of a session.
///
/// # Errors
/// If `out` fails.
///
/// # Examples
/// ```
/// use loopstore_report::{eval::CompactionsReport, write_compactions};
///
/// let mut page = Vec::new();
/// write_compactions(&CompactionsReport::default(), &mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_compactions(
    report: &CompactionsReport,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let index = CompactionsIndex {
        version: env!("CARGO_PKG_VERSION"),
        made_at: Time::now().as_str().to_owned(),
        report,
    };
    page::compactions(&index, out)
}
