//! The page that shows what recorded compactions forgot.

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

/// Writes a page of what compactions forgot that transcripts record, of what their agents did again, and of
/// what would have been kept: the report that `loopstore-eval` makes. The page needs nothing but a browser.
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
