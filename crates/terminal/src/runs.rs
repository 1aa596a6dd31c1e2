//! Runs of compaction and of edits as texts: whether a run is active, and its undos and redos.

use loopstore::compact::FlipReport;
use loopstore::extend::sqlite::Record;

use super::text;

/// Returns `active` or `undone` for a committed run, an empty text for any other.
pub fn run_state(run: &Record) -> &'static str {
    match (run.text("outcome").as_deref(), run.number("is_live")) {
        (Some("committed"), Some(0)) => "undone",
        (Some("committed"), _) => "active",
        _ => "",
    }
}

/// Returns the reason that was given for a run of edits.
pub fn edit_reason(run: &Record) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct EditConfig {
        reason: String,
    }
    let is_edit = run.text("trigger").as_deref() == Some("edit");
    let config = run.text("config").filter(|_| is_edit)?;
    let config = serde_json::from_str::<EditConfig>(&config).ok()?;
    Some(config.reason)
}

/// Returns the undos and redos of a run, newest first.
pub fn flips(run: &Record) -> Vec<RunFlip> {
    let mut flips: Vec<RunFlip> = run.get("flips").read().unwrap_or_default();
    flips.reverse();
    flips
}

/// An undo or redo of a run.
#[derive(serde::Deserialize)]
pub struct RunFlip {
    /// `undo` or `redo`.
    pub kind: String,
    /// The loop on whose chain it was made.
    pub loop_id: String,
    /// The number of turns of the loop at that time.
    pub turns: i64,
    /// The time, as ISO-8601 text.
    pub at: String,
    /// The reason, if one was given.
    pub reason: Option<String>,
}

/// Returns a line about an undo or redo.
pub fn flip_summary(report: &FlipReport) -> String {
    format!(
        "Run {} is {}: {} -> {} tokens",
        text::line(&report.run_id),
        report.outcome,
        text::number(report.tokens_before),
        text::number(report.tokens_after)
    )
}
