//! Comparison of every view on both backends.

use loopstore::extend::sqlite::QueryLimits;
use loopstore::*;

/// The views, each with the columns that differ from run to run.
const VIEWS: [(&str, &[&str]); 19] = [
    ("v_sessions", &["created_at", "last_active_at"]),
    ("v_loops", &["started_at", "ended_at"]),
    // The store sets the time of appended messages.
    ("v_turns", &["started_at", "ended_at"]),
    ("v_messages", &["created_at"]),
    ("v_tool_calls", &[]),
    ("v_file_changes", &[]),
    ("v_commits", &[]),
    ("v_chain", &[]),
    (
        "v_compaction_runs",
        &["run_id", "started_at", "duration_ms"],
    ),
    ("v_compaction_events", &["run_id", "at", "payload"]),
    ("v_compaction_blocks", &["run_id", "created_at"]),
    ("v_coverage", &[]),
    ("v_edits", &["run_id", "created_at"]),
    ("v_pins", &["created_at"]),
    ("v_context", &[]),
    ("v_usage", &[]),
    ("v_session_tree", &[]),
    ("v_manifests", &["manifest_id", "recorded_at"]),
    (
        "v_receipts",
        &["receipt", "opened_at", "closed_at", "detail"],
    ),
];

/// Returns the rows of a view for a session, each as text; their order is that of the text.
fn rows(
    store: &dyn Database,
    (name, differs): (&str, &[&str]),
    session: &SessionId,
) -> (Vec<String>, Vec<String>) {
    let id = session.as_str().replace('\'', "''");
    let sql = format!("SELECT * FROM {name} WHERE session_id = '{id}'");
    let found = store.query_within(&sql, QueryLimits::default()).unwrap();
    let mut rows: Vec<String> = found
        .records()
        .iter()
        .map(|record| {
            let columns = record
                .iter()
                .filter(|(column, _)| !differs.contains(column));
            columns
                .map(|(column, value)| format!("{column}={}", value.as_str()))
                .collect::<Vec<_>>()
                .join("|")
        })
        .collect();
    rows.sort();
    (found.columns, rows)
}

/// Compares the rows of every view for a session.
pub fn compare(sqlite: &dyn Database, postgres: &dyn Database, session: &SessionId) {
    for view in VIEWS {
        let (one, two) = (rows(sqlite, view, session), rows(postgres, view, session));
        assert_eq!(one.0, two.0, "columns of {}", view.0);
        for (at, (one, two)) in one.1.iter().zip(&two.1).enumerate() {
            assert_eq!(one, two, "row {at} of {}", view.0);
        }
        assert_eq!(one.1.len(), two.1.len(), "rows of {}", view.0);
    }
}
