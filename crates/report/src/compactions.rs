//! The page about the information that recorded compactions lost.

use std::io::Write;

use serde::Serialize;

use super::page;
use crate::ReportError;
use loopstore::model::Time;

#[derive(Serialize)]
struct CompactionsIndex<'a, R> {
    version: &'static str,
    made_at: String,
    #[serde(flatten)]
    report: &'a R,
}

/// Writes the report of `loopstore-eval` about recorded compactions as a page: the information that each compaction
/// lost, the calls that the agent repeated, and the information that loopstore would have kept. The page needs only a
/// browser.
///
/// # Errors
/// If `out` fails.
///
/// # Examples
/// ```
/// use loopstore_report::write_compactions;
///
/// let mut page = Vec::new();
/// let report = serde_json::json!({"compactions": [], "needed": 0, "results": []});
/// write_compactions(&report, &mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_compactions(report: &impl Serialize, out: &mut dyn Write) -> Result<(), ReportError> {
    let index = CompactionsIndex {
        version: env!("CARGO_PKG_VERSION"),
        made_at: Time::now().as_str().to_owned(),
        report,
    };
    page::compactions(&index, out)
}
